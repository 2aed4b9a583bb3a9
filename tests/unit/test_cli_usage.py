"""`allot usage`: sums of a log's journal, the same from what was kept and from the beginning."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from allotment.core.ledger import model
from allotment.core.logport import Record
from allotment.core.replay.journal import Journal
from allotment.core.replay.journal.usage import CardKind, part_micro
from allotment.core.replay.picture import picture_of
from allotment.core.units import hours_column
from allotment_cli import journaling
from allotment_cli.journaling import journal_of
from allotment_cli.main import main
from allotment_cli.source import FileSource, JournalCache
from allotment_cli.usage import MICRO
from allotment_proto.facts import Holding
from tests import build
from tests.recording import Recorder, busy_cluster, fold

LOG = "ALLOTMENT_LOG@2026"


@pytest.fixture
def log() -> Recorder:
    made = busy_cluster()
    made.append_bytes("allot.log.facts", b"not a record")
    return made


class Counting(FileSource):
    """Remembers from where it was read."""

    def __init__(self, path: Path, directory: Path) -> None:
        super().__init__(path)
        self.journal = JournalCache.at(directory, LOG)
        self.firsts: list[int] = []

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        self.firsts.append(first_seq)
        async for batch in super().read(first_seq, last_seq):
            yield batch


@pytest.fixture
def cached(log: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(journaling, "KEEP_AFTER_EVENTS", 5)
    return Counting(log.write(tmp_path / "log.jsonl"), tmp_path / "cache")


def found(source: FileSource) -> Journal:
    return anyio.run(journal_of, source)


def test_what_was_kept_goes_on_where_it_ended(
    cached: Counting, log: Recorder, tmp_path: Path
) -> None:
    first = found(cached)
    assert first.books().picture() == picture_of(fold(log.records[:-1]))
    log.gone(next(uid for uid, pod in log.state.pods.items() if pod.allocation is not None))
    longer = Counting(log.write(tmp_path / "longer.jsonl"), tmp_path / "cache")
    again, fresh = found(longer), found(FileSource(tmp_path / "longer.jsonl"))
    end = len(cached.records)  # where the record is that the snapshot was made from
    assert longer.firsts == [end, end + 1]
    assert (again.last_seq, again.chain) == (fresh.last_seq, fresh.chain)
    assert again.entries.tobytes() == fresh.entries.tobytes()
    assert len(again.entries) == len(first.entries) + 1


@pytest.mark.parametrize("name", ["segment", "snapshot"])
def test_without_one_part_of_what_was_kept_all_is_made_again(
    cached: Counting, tmp_path: Path, name: str
) -> None:
    before = found(cached)
    [kept] = (tmp_path / "cache").glob(f"{name}-*")
    kept.unlink()
    after = found(cached)
    compared = [len(cached.records)] if name == "segment" else []  # the snapshot, with its record
    assert cached.firsts == [1, *compared, 1]
    assert after.entries.tobytes() == before.entries.tobytes()
    assert found(cached).chain == before.chain
    assert cached.firsts[-1] == len(cached.records) + 1


def test_what_was_kept_is_damaged(
    cached: Counting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = found(cached)
    [kept] = (tmp_path / "cache").glob("segment-*")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert found(cached).entries.tobytes() == before.entries.tobytes()
    assert f"the cached journal is not used: {kept}: " in capsys.readouterr().err
    assert cached.firsts == [1, len(cached.records), 1]


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


def test_a_record_that_no_journal_can_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Recorder()
    log.append("allot.log.facts", "watcher", *(build.node(f"n{n}") for n in range(3)))
    monkeypatch.setattr(model, "CHANGES_MAX", 2)
    result = usage(log.write(tmp_path / "wide.jsonl"))
    assert result.exit_code == 2
    assert (
        "the usage in this log cannot be computed: the record at 1 changed more than is"
        in result.stderr
    )


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
