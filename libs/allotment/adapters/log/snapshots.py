"""Snapshots: a cache of a fold, so that a start need not read the whole log.

Never a truth. A snapshot that is torn, altered, of another log, or ahead of the log it belongs to
is skipped with a reason, and the fold starts from an older one or from nothing; it ends in the
same state either way.

A log that lost its tail (restored from a copy, truncated by its server) and grew again keeps its
name and its time of creation, and reaches the same sequences with other records. So a snapshot
names the last record it was made from by its digest, and is loaded only where that record stands.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from allotment.adapters.log.sealed import Ignored, Sealed, seal, unseal
from allotment.core.logport import Record, digest_of

KEPT = 2
_NAME = re.compile(r"snapshot-(\d{20})")


DigestAt = Callable[[int], Awaitable[str]]
"""The digest of the record that a log has at a sequence, "" when it has none."""


class Readable(Protocol):
    """As much of a log as finding one record takes."""

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...


def digests_of(log: Readable) -> DigestAt:
    """Asks the log itself which record stands at a sequence."""

    async def digest_at(seq: int) -> str:
        async with aclosing(log.read(seq, seq)) as batches:
            async for batch in batches:
                return digest_of(batch[0]) if batch[0].seq == seq else ""
        return ""

    return digest_at


class SnapshotStore(Protocol):
    """Where a service keeps the newest state it may start from."""

    ignored: tuple[Ignored, ...]

    async def save(self, seq: int, payload: bytes, record: str) -> None:
        """Keep `payload`, the state after applying the log up to `seq`, where the record has the
        digest `record`. Raises OSError.
        """
        ...

    async def load(
        self, last_seq: int, digest_at: DigestAt, until_seq: int | None = None
    ) -> tuple[int, bytes] | None:
        """The newest sound snapshot of a log that has reached `last_seq`, of those not beyond
        `until_seq`, that stands on a record of the log; see `ignored` for the others.
        """
        ...

    async def newest(self, until_seq: int) -> int:
        """Where the newest snapshot up to a sequence stands, by its name; 0 if there is none."""
        ...

    def within(self, name: str) -> "SnapshotStore | None":
        """Where the last two snapshots of another kind are kept, with more than the state; None if
        only states are kept.
        """
        ...


class SnapshotDirectory:
    """Snapshots as files in a directory, the last two of them kept; with `bytes_max` more, and
    every second of the older ones is removed each time that they take more than that.

    `log_identity` is `JetStreamLog.identity`: a snapshot belongs to one log, and a log that was
    created again may well reach the same sequences.
    """

    def __init__(self, directory: Path, *, log_identity: str, bytes_max: int = 0) -> None:
        self.ignored: tuple[Ignored, ...] = ()
        self._bytes_max = bytes_max
        self._directory = directory
        self._log_identity = log_identity

    async def save(self, seq: int, payload: bytes, record: str) -> None:
        await anyio.to_thread.run_sync(self._save, seq, payload, record)

    def within(self, name: str) -> "SnapshotDirectory":
        directory = self._directory / hashlib.sha256(name.encode()).hexdigest()[:16]
        return SnapshotDirectory(directory, log_identity=self._log_identity)

    async def newest(self, until_seq: int) -> int:
        names = await anyio.to_thread.run_sync(self._newest_first)
        return next((seq for path in names if (seq := _seq_of(path)) <= until_seq), 0)

    async def load(
        self, last_seq: int, digest_at: DigestAt, until_seq: int | None = None
    ) -> tuple[int, bytes] | None:
        ignored = []
        try:
            for path in await anyio.to_thread.run_sync(self._newest_first):
                if until_seq is not None and _seq_of(path) > until_seq:
                    continue
                found = await anyio.to_thread.run_sync(unseal, path, self._log_identity, last_seq)
                if not isinstance(found, Ignored):
                    found = await _on_its_record(path, found, digest_at)
                if not isinstance(found, Ignored):
                    return found.seq, found.payload
                ignored.append(found)
                if self._bytes_max:  # many are kept: the next load need not read this one
                    await anyio.to_thread.run_sync(partial(path.unlink, missing_ok=True))
        finally:
            self.ignored = tuple(ignored)
        return None

    def _save(self, seq: int, payload: bytes, record: str) -> None:
        name = f"snapshot-{seq:020d}"
        seal(self._directory / name, self._log_identity, seq, payload, record)
        paths = self._newest_first()
        if self._bytes_max:
            sizes = (path.stat().st_size for path in paths if path.exists())
            spare = paths[KEPT + 1 :: 2] if sum(sizes) > self._bytes_max else []
        else:  # older ones, and those ahead of us: they are of a log that is no more
            spare = [path for path in paths if path.name > name]
            spare += [path for path in paths if path.name <= name][KEPT:]
        for path in spare:
            path.unlink(missing_ok=True)

    def _newest_first(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(
            (path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True
        )


class SnapshotMemory:
    """Snapshots of a log that does not change, for as long as this lives."""

    def __init__(self) -> None:
        self.ignored: tuple[Ignored, ...] = ()
        self._kept: dict[int, bytes] = {}

    async def save(self, seq: int, payload: bytes, record: str) -> None:
        self._kept[seq] = payload

    def within(self, name: str) -> None:
        return None

    async def newest(self, until_seq: int) -> int:
        return max((seq for seq in self._kept if seq <= until_seq), default=0)

    async def load(
        self, last_seq: int, digest_at: DigestAt, until_seq: int | None = None
    ) -> tuple[int, bytes] | None:
        seq = await self.newest(last_seq if until_seq is None else until_seq)
        return (seq, self._kept[seq]) if seq else None


def _seq_of(path: Path) -> int:
    return int(path.name.removeprefix("snapshot-"))


async def _on_its_record(path: Path, found: Sealed, digest_at: DigestAt) -> Sealed | Ignored:
    """The file, unless the log has another record where it ends than the one it was made from."""
    if await digest_at(found.seq) != found.record:
        text = (
            f"the log has another record at {found.seq} than it was made from: the log was cut "
            "short or restored, and has grown again"
        )
        return Ignored(str(path), "another_history", text)
    return found
