"""The house rules: what goes where, exit codes, clear errors, one fact in both forms."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import allotment_board
from allotment.answers import replay as replay_command
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.round.rounds import Rounds
from allotment_cli.main import COMMANDS, main
from allotment_cli.show.output import bar, table
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Decided, TimePassed
from allotment_proto.facts import Policy
from tests.recording import Recorder, busy_cluster, uid_of


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return busy_cluster().write(tmp_path / "busy.jsonl")


def allot(*words: str) -> Result:
    return CliRunner(env={"ALLOT_HOME": "/nonexistent/home", "ALLOT_NATS_URL": ""}).invoke(
        main, words
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = allot(name, "--help")
    assert result.exit_code == 0
    assert COMMANDS[name][2] in allot("--help").stdout
    assert result.stdout.startswith("Usage: ")


def test_hints_go_to_stderr_and_at_most_one(log_file: Path) -> None:
    result = allot("get", "pods", "--at", "25", "--file", str(log_file))
    assert result.exit_code == 0
    assert "next:" not in result.stdout
    assert result.stderr.count("next:") == 1
    assert ", seq 25" in result.stderr


def test_json_is_one_document_and_nothing_else(log_file: Path) -> None:
    for words in (("get", "nodes"), ("get", "pods"), ("get", "cards"), ("ledger",), ("log",)):
        result = allot(*words, "-o", "json", "--file", str(log_file))
        assert json.loads(result.stdout)
        assert result.stderr == ""


def test_what_is_exported_reads_as_the_same_log(log_file: Path, tmp_path: Path) -> None:
    exported = allot("log", "-o", "jsonl", "--file", str(log_file))
    assert exported.stdout == log_file.read_text()
    again = tmp_path / "again.jsonl"
    again.write_text(exported.stdout)
    first, second = (
        allot("replay", "--verify", "-o", "json", "--file", str(path)).stdout
        for path in (log_file, again)
    )
    assert first == second


def test_where_a_binder_begins_is_in_the_log_and_its_copy(tmp_path: Path) -> None:
    """A record without events moves what the next decision must follow, so no copy may lack it."""
    recorder = busy_cluster()
    for subject in (subjects.OUTCOME, subjects.DECISION, subjects.FACTS):
        recorder.append(subject, "binder/b")
    path = recorder.write(tmp_path / "begun.jsonl")
    lines = allot("log", "--file", str(path)).stdout.splitlines()[-3:]
    assert [line.split("UTC")[1].split(maxsplit=1) for line in lines] == [
        ["Fence", "binder/b binds; what another binder had under way is refused"],
        ["Fence", "binder/b decides; what another binder had under way is refused"],
        ["Empty", "it holds no event"],
    ]
    assert allot("log", "-o", "jsonl", "--file", str(path)).stdout == path.read_text()
    first = allot("log", "--since", str(recorder.seq), "--file", str(path)).stdout
    assert ("Fence" in first, first.count("Empty")) == (False, 1), "what is hidden is not shown"
    seq = str(recorder.seq - 1)
    assert "binder/b decides; what another" in allot("log", "--file", str(path), "show", seq).stdout
    for only in (("--pod", "research/never"), ("--type", "Decided")):
        assert "Fence" not in allot("log", *only, "--file", str(path)).stdout
    assert allot("replay", "--verify", "--file", str(path)).exit_code == 0


@pytest.mark.parametrize("begun_s", [(), (60,), tuple(range(20, 121, 20))])
def test_where_a_binder_begins_nothing_is_decided(begun_s: tuple[int, ...], tmp_path: Path) -> None:
    """Also one that begins again and again while a pod waits that fits."""
    recorder = Recorder()
    recorder.policy(Policy(scheduler_names=("allotment",)))
    recorder.node("gpu-01", cards=4)
    recorder.pod("first")
    decided = recorder.decide(uid_of("first"))
    recorder.pod("waits")
    start_ms = recorder.now_ms
    for at_s in begun_s:
        recorder.now_ms = start_ms + at_s * 1000
        recorder.append(subjects.DECISION, "binder/b")
    recorder.now_ms = start_ms + 121_000
    recorder.append(subjects.TIME, "watcher/0", TimePassed(at_ms=recorder.now_ms))
    found = allot("doctor", "-o", "json", "--file", str(recorder.write(tmp_path / "log.jsonl")))
    (said,) = [f for f in json.loads(found.stdout)["findings"] if f["code"] == "NothingDecided"]
    assert said["message"].endswith(f"(seq {decided})")


def test_the_log_ends_at_a_moment(log_file: Path) -> None:
    whole = allot("log", "--file", str(log_file)).stdout.splitlines()
    for moment in ("7", "2026-11-20T14:00:01.900Z"):
        shown = allot("log", "--at", moment, "--file", str(log_file)).stdout.splitlines()
        assert 0 < len(shown) < len(whole)
        assert shown == whole[: len(shown)]
    beyond = allot("log", "--at", "999", "--file", str(log_file))
    assert beyond.exit_code == 2
    assert "sequence 999 is not in the log yet" in beyond.stderr
    both = allot("log", "-f", "--at", "7", "--nats", "nats://127.0.0.1:1")
    assert "--follow waits for what is new, and --at ends the log" in both.stderr


def test_a_lie_in_the_log_is_found_and_ends_with_1(tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1")
    log.decide(log.pod("a"))
    envelope = decode_envelope(log.records[-1].payload)
    decided = envelope.events[0]
    assert isinstance(decided, Decided)
    placement = msgspec.structs.replace(decided.placements[0], score_micro=7)
    lie = msgspec.structs.replace(
        envelope, events=(msgspec.structs.replace(decided, placements=(placement,)),)
    )
    log.records[-1] = msgspec.structs.replace(log.records[-1], payload=encode(lie))
    path = log.write(tmp_path / "lie.jsonl")
    result = allot("replay", "--verify", "-o", "json", "--file", str(path))
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["decisions"], report["identical"], report["different"]) == (1, 0, 1)
    assert report["first_difference"]["field"] == "placements"
    text = allot("replay", "--verify", "--file", str(path))
    assert text.exit_code == 1
    assert "first difference: decision at seq 3" in text.stdout
    assert f"next: allot log --file {path} show 3" in text.stderr


@pytest.mark.parametrize("more", [(), ("--plain",)])
def test_a_decision_that_raises_is_reported_and_the_others_are_made_again(
    log_file: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    run, whole = Rounds.run, uid_of("default/whole")

    def run_or_raise(rounds: Rounds, batch: Sequence[str], *args: Any, **named: Any) -> Outcome:
        if whole in batch:
            raise KeyError(whole)
        return run(rounds, batch, *args, **named)

    monkeypatch.setattr(Rounds, "run", run_or_raise)
    words = ("replay", "--verify", *more, "--file", str(log_file))
    report = json.loads(allot(*words, "-o", "json").stdout)
    assert (report["decisions"], report["identical"], report["different"]) == (3, 2, 1)
    found = allot(*words)
    assert found.exit_code == 1
    seq = report["first_difference"]["seq"]
    assert (
        f"first difference: decision at seq {seq} (cycle c2) could not be made again:"
        f" KeyError: '{whole}'" in found.stdout
    )


def test_the_plain_rules_decide_as_the_board_does(
    log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("replay", "--verify", "-o", "json", "--file", str(log_file))
    monkeypatch.setattr(allotment_board, "NODES_MIN", 1)
    by_board = allot(*words)
    monkeypatch.setattr(replay_command, "NodeRanker", None)
    by_the_rules = allot(*words, "--plain")
    assert by_the_rules.exit_code == 0
    assert by_the_rules.stdout == by_board.stdout
    alone = allot("replay", "--plain", "--file", str(log_file))
    assert alone.exit_code == 2
    assert "give --verify, too" in alone.stderr


def test_unreadable_records_are_told_of(tmp_path: Path) -> None:
    log = busy_cluster()
    log.append_bytes(subjects.FACTS, b'{"v":7,"at_ms":1,"by":"x","events":[]}')
    path = log.write(tmp_path / "log.jsonl")
    nodes = allot("get", "nodes", "--file", str(path))
    assert "log: record 32 (allot.log.facts) cannot be read: version 7" in nodes.stdout
    assert "Unreadable" in allot("log", "--file", str(path)).stdout
    assert allot("log", "--file", str(path), "show", "32").exit_code == 0
    assert json.loads(allot("get", "nodes", "-o", "json", "--file", str(path)).stdout)["unreadable"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("get", "nodes"), "local mode is not running at /nonexistent/home"),
        (("get", "nodes", "--at", "99", "--file", "LOG"), "sequence 99 is not in the log yet"),
        (("get", "cards", "--node", "nope", "--file", "LOG"), "there is no node nope at seq 31"),
        (("explain", "pod", "a/b/c", "--file", "LOG"), "'a/b/c' is not the name of a pod"),
        (("explain", "pod", "nope", "--file", "LOG"), "pod default/nope is not in the log"),
        (("explain", "pod", "big", "--node", "x", "--file", "LOG"), "there is no node x at"),
        (("log", "--type", "Bond", "--file", "LOG"), "--type 'Bond' is not a type of event"),
        (("log", "--pod", "a", "--node", "b", "--file", "LOG"), "exclude each other"),
        (("log", "--card", "gpu-01", "--file", "LOG"), "--card 'gpu-01' is not a card"),
        (("log", "-f", "--file", "LOG"), "--follow needs a live log"),
        (("log", "-f", "-o", "json"), "-o json is one document and cannot follow"),
        (("log", "--file", "LOG", "show", "99"), "sequence 99 is not in the log yet"),
        (("replay", "--verify", "--to", "99", "--file", "LOG"), "the log ends at 31"),
        (("replay", "--verify", "--file", "/nonexistent"), "/nonexistent cannot be read"),
    ],
)
def test_what_cannot_be_answered_ends_with_2_and_says_why(
    words: tuple[str, ...], said: str, log_file: Path
) -> None:
    result = allot(*(str(log_file) if word == "LOG" else word for word in words))
    assert result.exit_code == 2
    assert result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert first.startswith("allot: ")
    assert said in first
    assert len(rest) <= 1


def test_explain_exit_codes(log_file: Path) -> None:
    for pod, code in (("big", 0), ("research/llama", 3)):
        result = allot("explain", "pod", pod, "--exit-code", "--file", str(log_file))
        assert result.exit_code == code
        assert allot("explain", "pod", pod, "--file", str(log_file)).exit_code == 0


def test_version_is_told_in_both_forms() -> None:
    facts = json.loads(allot("version", "-o", "json").stdout)
    text = allot("version").stdout
    assert all(str(value) in text for value in facts.values())


def test_status_of_nothing_is_an_answer(tmp_path: Path) -> None:
    result = allot("status", "--home", str(tmp_path), "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ready"] is False
    assert "allot up" in allot("status", "--home", str(tmp_path)).stdout


def test_tables_are_padded_and_never_cut() -> None:
    long = "x" * 300
    lines = table(("A", "N"), [[long, "1"], ["", "20"]], right=("N",))
    assert lines == ["A" + " " * 299 + "   N", long + "   1", "-" + " " * 299 + "  20"]


def test_bars() -> None:
    assert bar(0, 10, 4) == "[....]"
    assert bar(1, 1000, 4) == "[#...]"
    assert bar(999, 1000, 4) == "[###.]"
    assert bar(1000, 1000, 4) == bar(2000, 1000, 4) == "[####]"
    assert bar(1, 0, 4) == "[....]"
