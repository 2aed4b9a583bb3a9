"""The journal's files are a cache: what is in doubt ends it there, and never stops a start."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests import build

from allotment.adapters.log.segments import SegmentDirectory
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.replay.journal import JournalError, Segment, Writer
from allotment_proto.events import Event, PodGone

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]

LOG = "ALLOTMENT_LOG@2026-01-01T00:00:00Z"
LIFE: tuple[Event, ...] = (
    build.node(),
    build.pod("a"),
    build.decided(build.placement("a")),
    PodGone(uid="a", namespace="default", name="a", rv=9),
)


def segments_of(*cuts: int) -> list[Segment]:
    """The segments of `LIFE`, cut after these sequences."""
    state, found = ClusterState(), []
    writer = Writer(state)
    for seq, event in enumerate(LIFE, start=1):
        apply_all(state, (event,), seq)
        writer.take(seq, seq, b"%d" % seq, (event,))
        if seq in cuts:
            found.append(writer.cut())
    return found


@pytest.fixture
def store(tmp_path: Path) -> SegmentDirectory:
    return SegmentDirectory(tmp_path / "journal", log_identity=LOG)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def ends(directory: Path) -> list[int]:
    """Up to where the files go that are there."""
    return sorted(int(path.name[-20:]) for path in directory.glob("segment-*"))


async def test_nothing_there_is_an_empty_journal(store: SegmentDirectory) -> None:
    assert (await store.load(9)).last_seq == 0
    assert store.ignored == ()


async def test_segments_are_put_together_as_far_as_is_asked(store: SegmentDirectory) -> None:
    for segment in segments_of(2, 3, 4):
        await store.save(segment)
    assert len((await store.load(4)).entries) == 2
    assert len((await store.load(3)).entries) == 1
    assert (await store.load(1)).last_seq == 0
    assert store.ignored == ()


async def test_a_segment_that_is_made_again_replaces_what_it_reaches_into(
    store: SegmentDirectory, directory: Path
) -> None:
    for segment in segments_of(1, 2, 3, 4):
        await store.save(segment)
    await store.save(segments_of(1, 3)[1])
    assert ends(directory) == [1, 3]
    assert (await store.load(4)).last_seq == 3


def truncated(content: bytes) -> bytes:
    return content[:-1]


def altered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def emptied(content: bytes) -> bytes:
    return b""


def of_another_log(content: bytes) -> bytes:
    return content.replace(b"2026-01-01", b"2026-01-02", 1)


@pytest.mark.parametrize("damage", [truncated, altered, emptied, of_another_log])
async def test_what_is_in_doubt_ends_the_journal(
    store: SegmentDirectory, directory: Path, damage: Callable[[bytes], bytes]
) -> None:
    for segment in segments_of(2, 3, 4):
        await store.save(segment)
    path = directory / f"segment-{3:020d}"
    path.write_bytes(damage(path.read_bytes()))
    assert (await store.load(4)).last_seq == 2
    [ignored] = store.ignored
    assert ignored.path == str(path)


async def test_a_gap_ends_the_journal(store: SegmentDirectory, directory: Path) -> None:
    for segment in segments_of(2, 3, 4):
        await store.save(segment)
    (directory / f"segment-{3:020d}").unlink()
    assert (await store.load(4)).last_seq == 2
    [ignored] = store.ignored
    assert ignored.message == "a segment from 4 to 4 does not follow 2"


async def test_what_no_segment_can_hold_is_not_written(
    store: SegmentDirectory, directory: Path
) -> None:
    [segment] = segments_of(4)
    huge = msgspec.structs.replace(segment.names.taken[0], cpu_milli=1 << 70)
    segment.names.taken[0] = huge
    with pytest.raises(JournalError, match="a number is too large for a journal"):
        await store.save(segment)
    assert ends(directory) == []
