"""A command that starts from what an earlier one kept gives the very same answer."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from allotment.adapters.log import exported
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.adapters.service.moments import At, AtSequence, AtTime
from allotment.answers import folding
from allotment.answers.folding import Folded, fold
from allotment.answers.source import FileSource
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record, digest_of
from allotment_cli.show.progress import TERMINAL
from tests.recorded import read_log
from tests.recording import Recorder, busy_cluster
from tests.segmenting import segmented

LOG = "ALLOTMENT_LOG@2026"


class Counting(FileSource):
    """Remembers from where it was read."""

    def __init__(self, path: Path, directory: Path) -> None:
        super().__init__(path, TERMINAL)
        self.path = path
        self.snapshots = SnapshotDirectory(directory, log_identity=LOG)
        self.firsts: list[int] = []

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        if first_seq != last_seq:  # one record: to hold what was kept against it
            self.firsts.append(first_seq)
        async for batch in super().read(first_seq, last_seq):
            yield batch


@pytest.fixture
def log() -> Recorder:
    made = busy_cluster()
    made.append_bytes("allot.log.facts", b"not a record")
    return made


@pytest.fixture
def source(log: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(folding, "APART_EVENTS", 5)
    monkeypatch.setattr(folding, "_apart", lambda state: folding.APART_EVENTS)
    return Counting(log.write(tmp_path / "log.jsonl"), tmp_path / "cache")


def folded(source: FileSource, at: At | None = None) -> Folded:
    return anyio.run(fold, source, at)


def same(a: Folded, b: Folded) -> bool:
    return snapshot.encode(a.state) == snapshot.encode(b.state) and a[1:] == b[1:]


def test_the_second_fold_reads_only_what_is_new(source: Counting, log: Recorder) -> None:
    first = folded(source)
    assert len(first.unreadable) == 1
    assert same(folded(source), first)
    assert source.firsts[0] == 1
    assert source.firsts[1] > log.seq - 5


def test_every_moment_is_folded_from_the_nearest_state_before_it(
    source: Counting, log: Recorder
) -> None:
    plain = FileSource(source.path)
    folded(source)
    firsts = []
    for record in log.records:
        for at in (AtSequence(record.seq), AtTime(record.time_ns // 1_000_000)):
            assert same(folded(source, at), folded(plain, at))
        firsts.append(source.firsts[-2])
        assert firsts[-1] <= record.seq + 1
    assert firsts == sorted(firsts)
    assert len(set(firsts)) > 3
    late = AtTime(log.now_ms + 60_000)
    assert same(folded(source, late), folded(plain, late))
    assert source.firsts[-1] > log.seq - 5


def test_who_must_see_every_record_starts_at_the_beginning(source: Counting) -> None:
    folded(source)
    seen: list[int] = []

    async def observed() -> Folded:
        return await fold(source, None, lambda record, envelope, state: seen.append(record.seq))

    anyio.run(observed)
    assert seen[0] == 1
    assert source.firsts[-1] == 1


def test_what_another_release_kept_is_passed_over(
    source: Counting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SnapshotDirectory(tmp_path / "cache", log_identity=LOG)
    anyio.run(store.save, 3, b"\xc1 another format", digest_of(source.records[2]))
    assert folded(source).state.seq == len(source.records)
    assert "another release" in capsys.readouterr().err


def test_nothing_is_kept_of_a_short_log(
    source: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "APART_EVENTS", 10_000)
    assert isinstance(folded(source).state, ClusterState)
    assert not (tmp_path / "cache").exists()


def test_a_fold_goes_on_from_the_nearest_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "APART_EVENTS", 5)
    grown = segmented(read_log("churn-spread"), (100, 200, 300, 400))
    path, end = tmp_path / "log.jsonl", len(grown.records)
    path.write_text("".join(f"{exported.encode(record)}\n" for record in grown.records))

    async def one_by_one(source: Counting) -> Folded:
        return await fold(source, None, after=await fold(source, AtSequence(50)))

    source = Counting(path, tmp_path / "cache")
    last = anyio.run(one_by_one, source)
    assert source.firsts == [1, grown.closed[-1].last_seq + 1]
    assert snapshot.encode(last.state) == snapshot.encode(grown.state)
    assert last.seq == end
