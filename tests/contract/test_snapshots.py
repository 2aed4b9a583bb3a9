"""Snapshots are a cache: a bad one is skipped with a reason, and never stops a start."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from allotment.adapters.log.snapshots import SnapshotDirectory

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]

LOG = "ALLOTMENT_LOG@2026-01-01T00:00:00Z"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def digest(seq: int) -> str:
    return f"record {seq}"


async def digest_at(seq: int) -> str:
    """A log that has all records that snapshots stand on."""
    return digest(seq)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_nothing_there_is_nothing_loaded(directory: Path) -> None:
    store = SnapshotDirectory(directory, log_identity=LOG)
    assert await store.load(10, digest_at) is None
    assert store.ignored == ()


async def test_the_newest_is_loaded_and_two_are_kept(directory: Path) -> None:
    store = SnapshotDirectory(directory, log_identity=LOG)
    for seq in (3, 70, 1000):
        await store.save(seq, b"state\nat %d" % seq, digest(seq))
    assert await SnapshotDirectory(directory, log_identity=LOG).load(1000, digest_at) == (
        1000,
        b"state\nat 1000",
    )
    assert len(names(directory)) == 2


def truncated(content: bytes) -> bytes:
    return content[:-1]


def altered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def emptied(content: bytes) -> bytes:
    return b""


def garbled(content: bytes) -> bytes:
    return b"\xff\xfe" + content


def of_the_future(content: bytes) -> bytes:
    return content.replace(b'"format":1', b'"format":2')


@pytest.mark.parametrize("damage", [truncated, altered, emptied, garbled, of_the_future])
async def test_a_corrupt_snapshot_gives_way_to_the_older_one(
    directory: Path, damage: Callable[[bytes], bytes]
) -> None:
    store = SnapshotDirectory(directory, log_identity=LOG)
    await store.save(1, b"old", digest(1))
    await store.save(2, b"new", digest(2))
    newest = directory / names(directory)[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    assert await store.load(2, digest_at) == (1, b"old")
    [ignored] = store.ignored
    assert (ignored.path, ignored.reason) == (str(newest), "corrupt")


async def test_a_snapshot_ahead_of_the_log_is_ignored(directory: Path) -> None:
    store = SnapshotDirectory(directory, log_identity=LOG)
    await store.save(5, b"five", digest(5))
    await store.save(9, b"nine", digest(9))
    assert await store.load(8, digest_at) == (5, b"five")
    assert [ignored.reason for ignored in store.ignored] == ["newer_than_log"]


async def test_a_snapshot_of_another_log_is_ignored_and_then_replaced(directory: Path) -> None:
    await SnapshotDirectory(directory, log_identity="another").save(900, b"theirs", digest(900))
    store = SnapshotDirectory(directory, log_identity=LOG)
    assert await store.load(1000, digest_at) is None
    assert [ignored.reason for ignored in store.ignored] == ["another_log"]
    await store.save(3, b"ours", digest(3))
    assert await store.load(1000, digest_at) == (3, b"ours")
    assert len(names(directory)) == 1


@pytest.fixture
def torn(directory: Path) -> Path:
    directory.mkdir()
    path = directory / "writing-torn"
    path.write_bytes(b"half")
    os.utime(path, (0, 0))
    return path


async def test_a_save_that_was_interrupted_leaves_nothing_behind(
    directory: Path, torn: Path
) -> None:
    store = SnapshotDirectory(directory, log_identity=LOG)
    assert await store.load(10, digest_at) is None
    await store.save(1, b"whole", digest(1))
    assert names(directory) == ["snapshot-00000000000000000001"]


async def test_a_snapshot_whose_record_the_log_has_no_more_gives_way_to_an_older_one(
    directory: Path,
) -> None:
    """The log was cut short between the two, and grew again to the sequence of the newer one."""
    store = SnapshotDirectory(directory, log_identity=LOG)
    await store.save(5, b"five", digest(5))
    await store.save(9, b"nine", digest(9))

    async def regrown(seq: int) -> str:
        return digest(seq) if seq < 7 else "another record"

    assert await store.load(20, regrown) == (5, b"five")
    [ignored] = store.ignored
    assert ignored.reason == "another_history"
    assert "another record at 9" in ignored.message
