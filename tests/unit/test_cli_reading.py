"""Lists, filters, blame, differences and waiting, on a recorded log."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from allotment.answers import folding
from allotment.answers.source import FileSource
from allotment.core.explain.difference import differences
from allotment.core.explain.node import explain_node
from allotment.core.explain.rows.views import summaries
from allotment.core.logport import Record
from allotment_cli.main import main
from allotment_cli.options import completion
from allotment_cli.show import output
from allotment_proto import subjects
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import DevicesConfigured, NodeGone, PolicyLoaded
from allotment_proto.facts import Constraints, Policy, Toleration
from tests import build
from tests.recording import Recorder, busy_cluster, fold, uid_of
from tests.recording_batch import busy_queues

TOO_BIG = """
kind: Pod
apiVersion: v1
metadata: {name: too-big-7c9f8}
spec:
  schedulerName: allotment
  containers:
  - resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 900000}}
    name: main
"""


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return busy_cluster()


@pytest.fixture(scope="module")
def log(recorded: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.write(tmp_path_factory.mktemp("log") / "busy.jsonl")


def allot(*words: str) -> Result:
    env = {"ALLOT_HOME": "/nonexistent/home", "ALLOT_NATS_URL": "", "KUBECONFIG": ""}
    return CliRunner(env=env).invoke(main, words)


def names(log: Path, *words: str) -> list[str]:
    result = allot(*words, "--file", str(log))
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.mark.parametrize("kind", ["node", "no", "nodes"])
def test_get_takes_names_and_short_words(kind: str, log: Path) -> None:
    assert names(log, "get", kind, "gpu-02", "-o", "name") == ["node/gpu-02"]


def test_a_pod_is_named_so_that_the_next_command_takes_it(log: Path) -> None:
    everywhere = names(log, "get", "po", "-A", "-o", "name")
    assert "pod/research/llama" in everywhere
    for name in everywhere:
        assert allot("explain", name, "--file", str(log)).exit_code == 0, name
    assert "pod/llama" in names(log, "get", "po", "-n", "research", "-o", "name")


@pytest.mark.parametrize("kind", ["nodes", "pods", "cards"])
def test_every_format_lists_the_same(kind: str, log: Path) -> None:
    whole = json.loads(allot("get", kind, "-o", "json", "--file", str(log)).stdout)["items"]
    lines = allot("get", kind, "-o", "jsonl", "--file", str(log)).stdout.splitlines()
    assert [json.loads(line) for line in lines] == whole
    assert len(names(log, "get", kind, "-o", "name")) == len(whole)


def test_nodes_and_cards_are_selected_by_the_labels_of_nodes(tmp_path: Path) -> None:
    recorder = Recorder()
    for name, zone in (("n1", "a"), ("n2", "b")):
        labels = (("topology.kubernetes.io/zone", zone),)
        recorder.append(f"allot.log.node.{name}", "watcher", build.node(name, labels=labels))
    log = recorder.write(tmp_path / "zones.jsonl")
    zone = "topology.kubernetes.io/zone"
    assert names(log, "get", "nodes", "-l", f"{zone}=b", "-o", "name") == ["node/n2"]
    assert names(log, "get", "nodes", "-l", f"{zone}!=b", "-o", "name") == ["node/n1"]
    cards = names(log, "get", "cards", "-l", f"{zone} in (a)", "-o", "name")
    assert {card.split("/")[1] for card in cards} == {"n1"}
    shown = allot("ledger", "--zone", "b", "--file", str(log)).stdout
    assert "n2 " in shown
    assert "n1 " not in shown
    by_zone = allot("ledger", "--summary", "--by-zone", "--file", str(log)).stdout.splitlines()
    assert [line.split()[0] for line in by_zone] == ["ZONE", "a", "b"]


def test_pods_are_selected_by_their_labels(tmp_path: Path) -> None:
    recorder = Recorder()
    for name, app in (("a", "web"), ("b", "db")):
        pod = build.pod(name, labels=(("app", app),))
        recorder.append(f"allot.log.pod.{name}", "watcher", pod)
    log = recorder.write(tmp_path / "labels.jsonl")
    assert names(log, "get", "pods", "-l", "app=web", "-o", "name") == ["pod/pod-a"]
    assert names(log, "get", "pods", "-l", "app!=web", "-o", "name") == ["pod/pod-b"]
    result = allot("get", "pods", "-l", "app in", "--file", str(log))
    assert result.exit_code == 2
    assert "-l 'app in' is not a label selector" in result.stderr


def test_a_summary_counts_every_card_once(recorded: Recorder) -> None:
    state = fold(recorded.records)
    rows = summaries(state, state.nodes.values(), by_zone=False)
    assert all(r.cards == r.idle + r.partly + r.full + r.unhealthy for r in rows)
    listed = sum(len(ledger.cards) for n in state.nodes.values() for ledger in n.ledgers.values())
    assert sum(r.cards for r in rows if r.mode != "counted") == listed


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (("--free-memory", "30Gi"), ["gpu-03"]),
        (("--model", "t4"), ["gpu-04"]),
        (("--held-by", "research"), ["gpu-02"]),
        (("--held-by", "default/pair"), ["gpu-01"]),
        (("--problems",), ["gpu-02"]),
        (("--mode", "mig"), []),
        (("--free", "--model", "a100"), ["gpu-03"]),
        (("gpu-04", "gpu-01"), ["gpu-01", "gpu-04"]),
    ],
)
def test_the_ledger_shows_the_nodes_that_are_meant(
    words: tuple[str, ...], nodes: list[str], log: Path
) -> None:
    result = allot("ledger", *words, "-o", "json", "--file", str(log))
    assert [node["name"] for node in json.loads(result.stdout)["nodes"]] == nodes


def test_blame_names_the_decision_of_every_part(log: Path, recorded: Recorder) -> None:
    found = json.loads(allot("blame", "gpu-01", "-o", "json", "--file", str(log)).stdout)
    times = {r.seq: r.time_ns // 1_000_000 for r in recorded.records}
    held = [part for card in found["cards"] for part in card["held"]]
    assert held
    assert all(part["sinceMs"] == times[part["seq"]] for part in held)
    assert "reservations" in found["note"]


def test_blame_of_what_others_bound_names_no_decision(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.append("allot.log.node.n1", "watcher", build.node())
    other = build.pod("s", node="n1", holdings=(build.holding(),), phase="Running")
    recorder.append("allot.log.pod.s", "watcher", other)
    log = recorder.write(tmp_path / "others.jsonl")
    [card] = json.loads(allot("blame", "n1/0", "-o", "json", "--file", str(log)).stdout)["cards"]
    assert [(part["by"], part["seq"]) for part in card["held"]] == [("others", 0)]
    assert "created " in allot("blame", "n1", "--file", str(log)).stdout


def test_a_state_does_not_differ_from_itself_and_each_step_of_a_log_is_seen(
    recorded: Recorder,
) -> None:
    before = fold(recorded.records[:10])
    after = fold(recorded.records)
    assert differences(after, after) == []
    kinds = {each.kind for each in differences(before, after)}
    assert kinds == {"pod", "node", "card"}
    forth, back = differences(before, after), differences(after, before)
    flipped = {"added": "removed", "removed": "added", "changed": "changed"}
    assert [(e.name, flipped[e.how]) for e in forth] == [(e.name, e.how) for e in back]


def test_a_pod_that_was_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1", cards=1)
    first = log.pod("web")
    log.decide(first)
    log.bind(first)
    before = log.seq
    log.gone(first)
    second = log.pod("web", uid="22222222-2222-4222-8222-222222222222")
    log.decide(second)
    log.bind(second)
    path = str(log.write(tmp_path / "log.jsonl"))
    result = allot("diff", str(before), "now", "--file", path, "-o", "json")
    found = msgspec.json.decode(result.stdout)["differences"]
    assert [(each["how"], each["name"], each["uid"]) for each in found] == [
        ("removed", "default/web", first),
        ("added", "default/web", second),
    ]
    text = allot("diff", str(before), "now", "--file", path).stdout
    assert re.search(rf"- +default/web \(created 20[0-9: -]+, uid {first}\)", text)
    assert re.search(rf"\+ +default/web \(created 20[0-9: -]+, uid {second}\)", text)
    assert "different: 2 pods" in text
    earlier = Recorder()
    earlier.node("n1", cards=1)
    earlier.decide(earlier.pod("web", uid="33333333-3333-4333-8333-333333333333"))
    other = str(earlier.write(tmp_path / "other.jsonl"))
    across = allot("diff", other, path).stdout
    assert re.search(r"~ +default/web +status +Reserved +Running", across), "by name in two logs"


@pytest.fixture
def records_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sequences that commands read, as often as they do."""
    found: list[int] = []
    read = FileSource.read

    async def counted(
        source: FileSource, first_seq: int, last_seq: int
    ) -> AsyncGenerator[list[Record]]:
        async for batch in read(source, first_seq, last_seq):
            found.extend(record.seq for record in batch)
            yield batch

    monkeypatch.setattr(FileSource, "read", counted)
    return found


@pytest.mark.parametrize("other", ["now", "12", "31"])
@pytest.mark.parametrize("one", ["4", "12", "25"])
def test_diff_reads_the_log_once_and_finds_what_two_folds_do(
    one: str, other: str, log: Path, recorded: Recorder, records_read: list[int]
) -> None:
    states = [
        fold(recorded.records if text == "now" else recorded.records[: int(text)])
        for text in (one, other)
    ]
    for (before, after), words in ((states, (one, other)), (states[::-1], (other, one))):
        records_read.clear()
        shown = allot("diff", *words, "--file", str(log), "-o", "json").stdout
        found = msgspec.json.decode(shown)["differences"]
        assert found == msgspec.json.decode(msgspec.json.encode(differences(before, after)))
        assert len(records_read) == len(set(records_read)), "no record twice"


def test_diff_shows_a_configuration_that_was_read_in_between(tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1")
    policy = PolicyLoaded(policy=Policy(scheduler_names=("x",)), source="test", text_sha256="")
    devices = DevicesConfigured(config=DeviceConfig(), source="test", text_sha256="")
    log.append(subjects.CONFIG, "watcher/0", policy, devices)
    path = log.write(tmp_path / "log.jsonl")
    for words in ((str(log.seq - 1), str(log.seq)), (str(log.seq), str(log.seq - 1))):
        shown = allot("diff", *words, "--file", str(path), "-o", "json").stdout
        found = {each["name"]: each for each in json.loads(shown)["differences"]}
        assert "sources" in found


@pytest.mark.parametrize("apart", [1, folding.APART_EVENTS])
def test_the_doctor_compares_with_the_state_of_a_minute_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    monkeypatch.setattr(folding, "_apart", lambda state: apart)
    log = Recorder()
    log.node("n1", cards=1)
    log.decide(log.pod("p"))  # reserved, and nobody binds it
    log.now_ms += 120_000
    log.node("n2", cards=1)
    path = log.write(tmp_path / "log.jsonl")
    result = allot("doctor", "--file", str(path))
    assert "NothingBound" in result.stdout


def test_diff_takes_ages_and_says_which_moment_is_none(log: Path) -> None:
    for words in (("-4s", "now"), ("now", "-1h"), ("now-2s", "-1h")):
        result = allot("diff", *words, "--file", str(log))
        assert result.exit_code == 1, result.output
        assert "different:" in result.stdout
    for at, words in (("A", ("0001-01-01", "now")), ("B", ("now", "-1e30s"))):
        result = allot("diff", *words, "--file", str(log))
        assert result.exit_code == 2
        assert f"allot: {at} " in result.stderr
        assert "allot: give a sequence" in result.stderr


def test_diff_ends_with_1_where_logs_differ(log: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.jsonl"
    same.write_text(log.read_text())
    assert allot("diff", str(log), str(same)).exit_code == 0
    other = busy_queues().write(tmp_path / "other.jsonl")
    result = allot("diff", str(log), str(other), "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["differences"]
    assert "setting" in {each["kind"] for each in found}
    missing = allot("diff", str(log), "/nonexistent.jsonl")
    assert missing.exit_code == 2
    assert "/nonexistent.jsonl cannot be read" in missing.stderr


@pytest.mark.parametrize(
    ("condition", "pod", "code"),
    [
        ("placed", "big", 0),
        ("bound", "pod/big", 0),
        ("running", "pod/default/big", 0),
        ("ended", "big", 3),
        ("gone", "big", 3),
        ("bound", "research/llama", 3),
        ("bound", "never-seen", 3),
        ("gone", "never-seen", 0),
    ],
)
def test_wait_looks_once(condition: str, pod: str, code: int, log: Path) -> None:
    words = ("wait", f"--for={condition}", pod, "--timeout", "0", "--file", str(log))
    result = allot(*words)
    assert result.exit_code == code, result.output
    assert bool(result.stdout) == (code == 0)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_wait_answers_programs(output: str, log: Path) -> None:
    words = ("wait", "--for=running", "big", "research/llama", "--timeout", "0", "-o", output)
    result = allot(*words, "--file", str(log))
    assert result.exit_code == 3
    found = yaml.safe_load(result.stdout)  # JSON is YAML
    assert (found["schema"], found["condition"]) == ("allotment.dev/wait/v1", "running")
    assert [(pod["name"], pod["answer"]) for pod in found["pods"]] == [
        ("big", "yes"),
        ("llama", "notYet"),
    ]
    assert found["pods"][1]["status"].startswith("Pending (")


def test_replay_answers_in_yaml_as_in_json(log: Path) -> None:
    words = ("replay", "--verify", "--file", str(log))
    as_json = json.loads(allot(*words, "-o", "json").stdout)
    assert yaml.safe_load(allot(*words, "-o", "yaml").stdout) == as_json


def test_wait_says_that_a_pod_ended_instead(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.append("allot.log.node.n1", "watcher", build.node())
    recorder.append("allot.log.pod.a", "watcher", build.pod("a", phase="Failed"))
    log = recorder.write(tmp_path / "failed.jsonl")
    for condition, code in (("running", 1), ("ended", 0), ("gone", 3)):
        result = allot("wait", f"--for={condition}", "pod-a", "--timeout", "0", "--file", str(log))
        assert result.exit_code == code, condition
    assert allot("wait", "pod-a", "--timeout", "soon", "--file", str(log)).exit_code == 2


def test_a_node_answers_for_every_pod_that_waits() -> None:
    state = fold(busy_queues().records)
    for name in state.nodes:
        found = explain_node(state, name, 0)
        assert sum(answer.pods for answer in found.answers) <= found.waiting
        for answer in found.answers:
            assert answer.fits == (not answer.step)
    fits = [a for a in explain_node(state, "gpu-01", 0).answers if a.fits]
    assert [a.waits_for for a in fits] == ["QueueQuotaInsufficient"]


SCREENS = (
    ("usage",),
    ("usage", "--by", "node"),
    ("ledger",),
    ("ledger", "--summary"),
    ("blame", "gpu-01"),
    ("diff", "10", "31"),
    ("explain", "node", "gpu-02"),
    ("explain", "pod", "research/never"),
    ("explain", "pod", "research/llama"),
    ("get", "pods", "-A"),
    ("get", "nodes"),
    ("get", "cards"),
    ("trace", "research/llama"),
    ("story", "research/llama"),
    ("doctor",),
)


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_screens_fit_the_terminal_and_say_the_same_at_every_width(
    words: tuple[str, ...], log: Path
) -> None:
    def shown(columns: str) -> str:
        result = CliRunner(env={"COLUMNS": columns}).invoke(main, [*words, "--file", str(log)])
        return result.stdout

    wide, usual = shown("1000"), shown("100")
    assert max(map(len, usual.splitlines())) <= 100
    assert set(re.findall(r"[a-z]+/[a-z0-9-]+", wide)) == set(
        re.findall(r"[a-z]+/[a-z0-9-]+", usual)
    ), "names stay whole"


def test_a_cell_is_folded_between_words_and_after_commas() -> None:
    rows = [["a", "one two three", "x-1,x-2"], ["bb", "", "y"]]
    lines = output.table(("N", "WORDS", "LIST"), rows)
    assert output.wrapped(lines, 16) == [
        "N   WORDS  LIST",
        "a   one    x-1,",
        "    two    x-2",
        "    three",
        "bb  -      y",
    ]
    assert output.wrapped(lines, None) == list(lines)


def test_headers_of_amounts_are_folded_where_amounts_are_not() -> None:
    lines = output.table(("N", "MEMORY FREE"), [["a", "10 GiB"]], right=("MEMORY FREE",))
    assert output.wrapped(lines, 9) == ["N  MEMORY", "     FREE", "a  10 GiB"]
    assert output.wrapped(lines, 8) == ["N  MEMORY", "     FREE", "a  10 GiB"], "never cut"


def test_no_screen_is_wider_than_a_terminal_of_80(log: Path) -> None:
    """But for names and codes, which stay whole: `get nodes` and `explain node` may need more."""
    commands = (
        *("get pods -A", "get cards", "ledger --summary", "blame gpu-01"),
        *("explain research/llama", "explain research/never", "diff 4 now"),
        *("usage", "queue list", "job list -A", "story big", "trace big", "doctor", "fit -f -"),
    )
    for command in commands:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(
            main, [*command.split(), "--file", str(log)], input=TOO_BIG
        )
        wide = [line for line in result.stdout.splitlines() if len(line) > 80]
        assert not wide, (command, wide)


def test_a_narrow_screen_leaves_optional_columns_out() -> None:
    lines = output.table(("NAME", "SIZE"), [["long-name", "7"]], optional=("SIZE",))
    assert output.wrapped(lines, 12) == ["NAME", "long-name"]
    assert output.wrapped(lines, 20) == ["NAME       SIZE", "long-name  7"]


def test_rows_are_whole_where_no_terminal_reads(log: Path) -> None:
    """One line a row with every column, for grep and awk."""
    whole = CliRunner(env={"COLUMNS": "1000"}).invoke(
        main, ["get", "pods", "-A", "--file", str(log)]
    )
    piped = CliRunner(env={"COLUMNS": None}).invoke(main, ["get", "pods", "-A", "--file", str(log)])
    assert piped.stdout == whole.stdout
    assert "no room" not in piped.stderr
    story = CliRunner(env={"COLUMNS": None}).invoke(
        main, ["explain", "research/llama", "--file", str(log)]
    )
    lines = story.stdout.splitlines()
    assert max(map(len, lines[: lines.index("Rejected nodes")])) <= 100, "prose is wrapped"
    rows = lines[lines.index("Timeline") + 2 :]
    assert all(re.match(r"  \d\d:\d\d:\d\d", row) for row in rows), "each row begins with its time"


def test_columns_without_room_are_named(log: Path) -> None:
    def listed(columns: str, *words: str) -> Result:
        return CliRunner(env={"COLUMNS": columns}).invoke(
            main, ["get", "pods", "-A", *words, "--file", str(log)]
        )

    narrow = listed("80")
    left_out = [name for name in ("COMPUTE", "MEMORY") if name not in narrow.stdout]
    assert left_out
    assert f"no room for {', '.join(sorted(left_out, reverse=True))}" in narrow.stderr
    assert "-o wide" in narrow.stderr
    for all_there in (listed("200"), listed("80", "-o", "wide")):
        assert "COMPUTE" in all_there.stdout
        assert "no room" not in all_there.stderr


def test_colour_is_for_terminals_and_says_nothing_that_the_words_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers, rows = ("NAME", "STATUS"), [["pending", "Pending"], ["a", "Ready,Cordoned"]]
    plain = output.table(headers, rows)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    coloured = output.wrapped(output.table(headers, rows), None)
    assert coloured[1] == "pending  \x1b[33mPending\x1b[0m"
    assert coloured[2] == "a        Ready,\x1b[33mCordoned\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.wrapped(output.table(headers, rows), None) == plain


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_for_each_shell(shell: str) -> None:
    result = allot("completion", shell)
    assert result.exit_code == 0
    assert "_ALLOT_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("allot ex", {"explain"}),
        ("allot explain pod --file LOG research/", {"research/llama", "research/never"}),
        ("allot explain pod --file LOG -n research ll", {"llama"}),
        ("allot get nodes --file LOG gpu-0", {"gpu-01", "gpu-02"}),
        ("allot explain pod --file /nonexistent b", set()),
    ],
)
def test_names_are_completed_from_the_log(line: str, wanted: set[str], log: Path) -> None:
    words = line.replace("LOG", str(log))
    env = {
        **os.environ,
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_ALLOT_COMPLETE": "bash_complete",
    }
    program = "from allotment_cli.main import main; main(prog_name='allot')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )
    found = {each.removeprefix("plain,") for each in done.stdout.split()}
    assert wanted <= found
    assert bool(found) == bool(wanted)
    assert done.stderr == ""


def test_the_usual_namespace_is_looked_up_once_for_all_names(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def usual() -> str:
        asked.append(1)
        return "research"

    monkeypatch.setattr(completion, "usual_namespace", usual)
    command = main.get_command(click.Context(main), "story")
    assert command is not None
    with click.Context(command) as ctx:
        ctx.params = {"file": log, "nats": None, "home": Path("/nonexistent"), "namespace": None}
        found = completion.pods(ctx, command.params[0], "ll")
        assert "llama" in {item.value for item in found}
    assert len(asked) == 1


def test_what_every_pod_tolerates_is_no_part_of_what_one_asks_for(tmp_path: Path) -> None:
    recorder = Recorder()
    usual = [
        Toleration(f"node.kubernetes.io/{what}", "Exists", "", "NoExecute")
        for what in ("not-ready", "unreachable")
    ]
    own = Toleration("dedicated", "Equal", "serving", "NoSchedule")
    recorder.pod("p", constraints=Constraints(tolerations=(*usual, own)))
    log = recorder.write(tmp_path / "log.jsonl")
    told = json.loads(allot("story", "default/p", "--file", str(log), "-o", "json").stdout)
    assert told["ask"]["tolerations"] == ["dedicated=serving:NoSchedule"]


@pytest.mark.parametrize("name", ["pod/llama", "po/research/llama", "research/llama", "llama"])
@pytest.mark.parametrize("command", [("story",), ("trace",), ("explain", "pod")])
def test_a_pod_is_taken_by_the_name_that_get_prints(
    command: tuple[str, ...], name: str, log: Path
) -> None:
    result = allot(*command, name, "-n", "research", "--file", str(log))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["gang/llama", "node/llama", "pod"])
def test_what_is_no_pod_is_not_waited_for(name: str, log: Path) -> None:
    result = allot("wait", name, "--timeout", "0", "--file", str(log))
    assert result.exit_code == 2
    assert "is no pod" in result.stderr or "alone names no pod" in result.stderr


@pytest.mark.parametrize(
    "words", [("blame", "gpu-9"), ("explain", "node", "gpu-9"), ("get", "cards", "--node", "gpu-9")]
)
def test_a_node_that_is_not_there_may_have_gone(words: tuple[str, ...], log: Path) -> None:
    result = allot(*words, "--file", str(log))
    assert result.exit_code == 2
    assert "allot log --node gpu-9" in result.stderr


def test_a_moment_before_the_log_is_said(log: Path) -> None:
    result = allot("get", "pods", "--at", "2020-01-01", "--file", str(log))
    assert "nothing was known then: the log begins later" in result.stderr
    used = allot("usage", "--from", "2020-01-01", "--file", str(log))
    assert "the log begins at 2026-11-20" in used.stderr


def test_the_next_command_is_about_the_same_log(log: Path) -> None:
    told = allot("blame", "gpu-01/GPU-0", "--file", str(log)).stderr
    assert f"next: allot log --file {log} show " in told
    (line,) = [line for line in told.splitlines() if line.startswith("next: allot ")]
    assert allot(*line.removeprefix("next: allot ").split()).exit_code == 0
    told = allot("story", "research/llama", "--file", str(log)).stderr
    assert f"next: allot explain pod research/llama --file {log}" in told


@pytest.mark.parametrize("apart", [1, folding.APART_EVENTS])
@pytest.mark.parametrize("words", [("explain", "node", "lost"), ("blame", "lost/0")])
def test_of_a_node_that_went_it_is_said_when_and_who_was_on_it(
    words: tuple[str, ...], apart: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_apart", lambda state: apart)
    log = Recorder()
    log.node("lost")
    uid = log.pod("a")
    log.decide(uid)
    gone = NodeGone(name="lost", uid=uid_of("lost"), rv=99)
    log.append(subjects.node("lost"), "watcher", gone)
    log.gone(uid)
    path = log.write(tmp_path / "log.jsonl")
    result = allot(*words, "--file", str(path))
    assert result.exit_code == 2
    assert "node lost went at" in result.stderr
    assert "it had default/a" in result.stderr
    assert "allot log show" in result.stderr
    at = re.search(r"by record (\d+)", result.stderr)
    assert at is not None
    then = allot(*words, "--file", str(path), "--at", f"{at[1]}~1")
    assert then.exit_code == 0, then.output


def test_the_pod_that_had_the_name_before_is_explained(tmp_path: Path) -> None:
    log = Recorder()
    for node in ("n1", "n2"):
        log.node(node, cards=1)
    other, first = log.pod("other"), log.pod("web")
    log.decide(other)
    log.decide(first)
    log.bind(first)
    before = log.seq
    log.gone(first)
    second = log.pod("web", uid="22222222-2222-4222-8222-222222222222")
    log.decide(second)
    path = str(log.write(tmp_path / "log.jsonl"))

    def told(*words: str) -> Any:
        result = allot("explain", "web", *words, "--file", path, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert told()["subject"]["uid"] == second
    earlier, then = told("--previous"), told("--at", str(before))
    assert earlier["subject"]["uid"] == first
    assert earlier["status"]["phase"] == "Gone"
    for same in ("candidates", "decision", "request"):
        assert earlier[same] == then[same], "as it was explained while it ran"
    assert earlier["life"]["successor"]["uid"] == second
    shown = allot("explain", "pod", "web", "--previous", "--file", path)
    assert first in shown.stdout or "Gone" in shown.stdout
    for command in ("explain", "story"):
        alone = allot(command, "other", "--previous", "--file", path)
        assert alone.exit_code == 2
        assert "no other pod had the name default/other" in alone.stderr
