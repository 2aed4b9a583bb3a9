"""`explain … -w`: the screen again each time that it says something else, and not else."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment.answers.source import FileSource, Origin
from allotment.core.logport import Record
from allotment_cli.main import main
from allotment_cli.read import explain, explaining
from tests.recording import Recorder
from tests.recording_batch import BatchRecorder, preempted


class Growing(FileSource):
    """A log that ends at first after so many records; following it yields the rest, one by one."""

    def __init__(self, path: Path, known: int) -> None:
        super().__init__(path)
        self._later = self.records[known:]
        self.records = self.records[:known]

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        assert after_seq == len(self.records)
        for record in self._later:
            self.records.append(record)
            yield [record]


def watched(
    log: Recorder, known: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Result:
    path = log.write(tmp_path / "log.jsonl")

    @asynccontextmanager
    async def growing(origin: Origin) -> AsyncIterator[Growing]:
        yield Growing(path, known)

    with monkeypatch.context() as patched:
        for module in (explain, explaining):
            patched.setattr(module, "open_source", growing)
        return CliRunner().invoke(main, ["explain", *words.split(), "-w"])


def screens(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.split("\n---\n")


def status(screen: str) -> str:
    return next(line for line in screen.splitlines() if line.startswith("Status"))


def test_a_pod_is_explained_again_when_something_happens_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Recorder()
    log.node("n1", cards=1)
    uid = log.pod("p")
    known = log.seq
    log.now_ms += 60_000
    log.node("n2", cards=0)  # no news for the pod but one more node that has no card
    log.append("allot.log.class.x", "watcher/0")  # no news at all
    log.decide(uid)
    log.bind(uid)
    first, *later = screens(watched(log, known, "pod p", tmp_path, monkeypatch))
    assert "Pending" in status(first)
    words = [status(each).split()[1] for each in later]
    assert words == ["Pending", "Reserved", "Bound", "Running"], "a new node, and its own steps"
    assert "Rejected nodes" in later[0]


@pytest.mark.parametrize("words", ["gang urgent", "queue default", "node gpu-01"])
def test_the_last_screen_is_what_would_be_said_then(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: BatchRecorder = preempted()
    result = watched(log, 23, words, tmp_path, monkeypatch)
    shown = screens(result)
    assert len(shown) > 1
    assert all(one != other for one, other in pairwise(shown))
    path = tmp_path / "log.jsonl"
    now = CliRunner().invoke(main, ["explain", *words.split(), "--file", str(path)])
    assert bare(shown[-1]) == bare(now.stdout)


def bare(screen: str) -> list[str]:
    """Without moment and ages: the last change to what is shown may be before the last record."""
    texts = (re.sub(r"as of seq.*|\b\d+s$", "", line) for line in screen.strip().splitlines())
    lines = (text.rstrip() for text in texts)
    return [line for line in lines if not line.startswith("As of")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pod p --at 3", "--at and --file do not"),
        ("node n -o json", "leave out --watch, or -o"),
        ("queue q --file log.jsonl", "--at and --file do not"),
    ],
)
def test_what_cannot_go_on_is_said(words: str, said: str) -> None:
    result = CliRunner().invoke(main, ["explain", *words.split(), "-w"])
    assert result.exit_code == 2
    assert said in result.stderr


# `--at` of commands that otherwise ask Kubernetes


def test_jobs_are_listed_by_their_groups_in_the_log(tmp_path: Path) -> None:
    log = BatchRecorder()
    log.queue("default")
    owner = "11111111-2222-4333-8444-555555555555"
    log.group(f"train-{owner}", 2, 2, 3000, owner=owner, queue="default")
    early = log.seq
    log.group(f"late-{owner}", 1, 0, 3000, owner=owner, queue="other", phase="Running")
    log.group(f"podgroup-{owner}", 1, 0, 3000, owner=owner)
    log.group("alone", 1, 1, 3000)
    path = str(log.write(tmp_path / "log.jsonl"))

    def jobs(*words: str) -> list[dict[str, object]]:
        result = CliRunner().invoke(main, ["job", "list", "--file", path, "-o", "json", *words])
        assert result.exit_code == 0, result.output
        items: list[dict[str, object]] = msgspec.json.decode(result.stdout)["items"]
        return items

    late, train = jobs()
    assert (train["name"], train["replicas"], train["pending"]) == ("train", 2, 2)
    assert (train["phase"], late["phase"], late["retryCount"]) == ("Pending", "Running", None)
    assert [job["name"] for job in jobs("--at", str(early))] == ["train"]
    assert [job["name"] for job in jobs("-q", "other")] == ["late"]
    assert jobs("-n", "elsewhere") == []
