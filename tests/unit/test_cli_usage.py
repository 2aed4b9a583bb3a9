"""`allot usage`: what pods held and for how long, added up while the log is folded."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment.core.ledger import model
from allotment.core.replay.usage import MICRO, CardKind, part_micro
from allotment.core.units import hours_column
from allotment_cli.main import main
from allotment_proto.events import GroupObserved, PodGone
from allotment_proto.facts import Holding
from tests import build
from tests.recording import Recorder


def usage(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["usage", "--file", str(path), *words])


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    """A pod held 4,000 MiB of a card for half of an hour, in a log that goes on."""
    log = Recorder()
    log.append("allot.log.node.n1", "watcher", build.node())
    start_ms = log.now_ms
    log.append("allot.log.pod.a", "watcher", build.pod("a"))
    log.append("allot.log.decision", "binder", build.decided(build.placement("a")))
    log.now_ms = start_ms + 1_800_000
    log.append("allot.log.node.n1", "watcher", build.node(rv=5))
    return log.write(tmp_path / "hour.jsonl")


def test_hours_are_counted_to_the_end_of_the_log(hour: Path) -> None:
    facts = json.loads(usage(hour, "-o", "json").stdout)
    [used] = facts["usage"]
    assert (used["name"], used["pods"]) == ("default", 1)
    assert used["memoryMibMs"] == 4_000 * used["deviceMs"]
    assert 1_790_000 < used["deviceMs"] <= 1_800_000
    name, pods, gpus, devices, memory, cpu = usage(hour).stdout.splitlines()[1].split()
    assert (name, pods, devices, memory) == ("default", "1", "0.500", "1.95")
    assert gpus != devices, "a part of a card is not a card"
    assert float(cpu) > 0


def test_a_part_of_the_time_and_by_node(hour: Path) -> None:
    whole, part = (
        json.loads(usage(hour, "--by", "node", "-o", "json", *words).stdout)["usage"]
        for words in ((), ("--from", "-10m"))
    )
    assert [used["name"] for used in (*whole, *part)] == ["n1", "n1"]
    assert part[0]["deviceMs"] == 600_000 < whole[0]["deviceMs"]
    assert "nothing was held" in usage(hour, "--to", "2").stdout


def test_by_queue_and_by_card_model(tmp_path: Path) -> None:
    log = Recorder()
    cards = [build.card(0, model="A100"), build.card(1, model="T4")]
    log.append("allot.log.node.n1", "watcher", build.node(cards=cards))
    group = GroupObserved(uid="g", namespace="default", name="g", rv=1, queue="research")
    log.append("allot.log.group.g", "watcher", group)
    log.append("allot.log.pod.a", "watcher", build.pod("a", group="default/g"))
    for uid, queue in (("b", "serving"), ("c", ""), ("d", "")):
        log.append(f"allot.log.pod.{uid}", "watcher", build.pod(uid, queue=queue))
    on = {"a": ("GPU-0",), "b": ("GPU-1",), "c": ("GPU-0", "GPU-1")}
    places = [
        build.placement(uid, "n1", *(build.holding(card) for card in cards))
        for uid, cards in on.items()
    ]
    nothing = msgspec.structs.replace(build.placement("d"), holdings=())
    log.append("allot.log.decision", "binder", build.decided(*places, nothing))
    log.now_ms += 3_600_000
    log.append("allot.log.node.n1", "watcher", build.node(cards=cards, rv=5))
    path = log.write(tmp_path / "queues.jsonl")

    def names(by: str) -> dict[str, int]:
        found = json.loads(usage(path, "--by", by, "-o", "json").stdout)["usage"]
        return {used["name"]: used["pods"] for used in found}

    assert names("queue") == {"default": 2, "research": 1, "serving": 1}
    assert names("model") == {"A100": 1, "A100, T4": 1, "T4": 1, "(no cards)": 1}


def test_by_the_value_of_a_label(tmp_path: Path) -> None:
    log = Recorder()
    log.append("allot.log.node.n1", "watcher", build.node())
    facts = {
        "a": (("team", "red"),),
        "b": (("team", "blue"),),
        "c": (("other", "team"),),
        "d": (("team", ""),),
    }
    for name, labels in facts.items():
        log.append(f"allot.log.pod.{name}", "watcher", build.pod(name, labels=labels))
    log.append("allot.log.decision", "binder", build.decided(*map(build.placement, facts)))
    log.now_ms += 3_600_000
    before = log.append("allot.log.node.n1", "watcher", build.node(rv=5))
    log.append("allot.log.pod.b", "watcher", build.pod("b", rv=9, labels=()))
    path = log.write(tmp_path / "log.jsonl")
    first = json.loads(usage(path, "--by", "label=team", "--to", str(before), "-o", "json").stdout)
    assert first["by"] == "label=team"
    names = ["(empty)", "(none)", "blue", "red"]
    assert [used["name"] for used in first["usage"]] == names
    now = json.loads(usage(path, "--by", "label=team", "-o", "json").stdout)["usage"]
    assert [(used["name"], used["pods"]) for used in now] == [
        ("(empty)", 1),
        ("(none)", 2),
        ("red", 1),
    ], "the label counts as it was seen last"
    (all_,) = json.loads(usage(path, "-o", "json").stdout)["usage"]
    assert sum(used["deviceMs"] for used in now) == all_["deviceMs"]
    header = usage(path, "--by", "label=team").stdout.splitlines()[0]
    assert header.split()[:2] == ["team", "PODS"]


@pytest.mark.parametrize(("by", "said"), [("user", "label=user"), ("label=", "label=KEY")])
def test_what_nobody_recorded_cannot_be_added_up_by(by: str, said: str, hour: Path) -> None:
    result = usage(hour, "--by", by)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "-1m", "--to", "-5m"), "nothing lies between"),
        (("--from", "9"), "--from 9: the log goes from 1 to 4"),
        (("--to", "teatime"), "--to 'teatime' is not a moment"),
    ],
)
def test_what_cannot_be_answered(hour: Path, words: tuple[str, ...], said: str) -> None:
    result = usage(hour, *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_empty_log(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    result = usage(empty)
    assert (result.exit_code, result.stdout) == (0, "nothing was held\n")


def test_a_record_that_changes_more_than_the_state_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Recorder()
    names = [f"p{n}" for n in range(9)]
    log.append("allot.log.node.n1", "watcher", build.node("n1", 4))
    start_ms = log.now_ms
    asked = build.request(build.wants(1_000, 10))
    log.append("allot.log.facts", "watcher", *(build.pod(name, asked) for name in names))
    given = (
        build.placement(name, "n1", build.holding(memory_mib=1_000, cores_pct=5)) for name in names
    )
    log.append("allot.log.decision", "binder", build.decided(*given))
    log.now_ms = start_ms + 3_600_000
    log.append(
        "allot.log.facts",
        "watcher",
        *(PodGone(uid=n, namespace="default", name=n, rv=9) for n in names),
    )
    path = log.write(tmp_path / "wide.jsonl")
    found = usage(path, "-o", "json").stdout
    assert json.loads(found)["usage"][0]["pods"] == len(names)
    monkeypatch.setattr(model, "CHANGES_MAX", 2)
    assert usage(path, "-o", "json").stdout == found


@pytest.mark.parametrize(
    ("share", "card", "part"),
    [
        ((4_000, 0), (16_000, 100, 10), 250_000),
        ((4_000, 50), (16_000, 100, 10), 500_000),
        ((0, 100), (16_000, 100, 10), 1_000_000),
        ((0, 4), (0, 20, 7), 200_000),
        ((0, 0), (0, 20, 1), 1_000_000),
        ((0, 0), (0, 100, 4), 250_000),
        ((99_000, 0), (16_000, 0, 10), 1_000_000),
    ],
    ids=["memory", "compute", "exclusive", "cores", "chip", "slot", "shrunk"],
)
def test_a_share_counts_as_its_part_of_its_card(
    share: tuple[int, int], card: tuple[int, int, int], part: int
) -> None:
    assert part_micro(Holding("vgpu", 0, "", *share), CardKind(*card)) == part


def test_a_small_share_is_less_than_a_card_and_a_whole_card_is_one(tmp_path: Path) -> None:
    log = Recorder()
    log.append("allot.log.node.n1", "watcher", build.node(extended=(("nvidia.com/gpu", 8),)))
    start_ms = log.now_ms
    whole = build.pod(
        "w", node="n1", phase="Running", request=build.request(extended=(("nvidia.com/gpu", 2),))
    )
    log.append("allot.log.pod.w", "watcher", whole)
    log.append("allot.log.pod.a", "watcher", build.pod("a"))
    log.append("allot.log.decision", "binder", build.decided(build.placement("a")))
    log.now_ms = start_ms + 200 * 3_600_000
    log.append("allot.log.node.n1", "watcher", build.node(rv=5))
    [used] = json.loads(usage(log.write(tmp_path / "w.jsonl"), "-o", "json").stdout)["usage"]
    share_micro_ms = used["cardMicroMs"] - used["countedMs"]["nvidia.com/gpu"] * MICRO
    assert 0 < share_micro_ms < used["deviceMs"] * MICRO


def test_a_column_has_digits_for_its_largest_and_nothing_held_is_none() -> None:
    hour = 3_600_000
    assert hours_column([0, hour, 250 * hour]) == ["0.0", "1.0", "250.0"]
    assert hours_column([0, 1, hour * 2_000]) == ["0.0", "<0.1", "2,000.0"]
    assert hours_column([hour // 100, hour // 10]) == ["0.010", "0.100"]
