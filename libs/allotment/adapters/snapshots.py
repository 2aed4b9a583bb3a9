"""Snapshots: a cache of a fold, so that a start need not read the whole log.

Never a truth. A snapshot that is torn, altered, of another log, or ahead of the log it belongs to
is passed over with a reason, and the fold starts from an older one or from nothing; it ends in the
same state either way.
"""

import re
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from allotment.adapters.sealed import Ignored, seal, unseal

KEPT = 2
_NAME = re.compile(r"snapshot-(\d{20})")


class SnapshotStore(Protocol):
    """Where a service keeps the newest state it may start from."""

    ignored: tuple[Ignored, ...]

    async def save(self, seq: int, payload: bytes) -> None:
        """Keep `payload`, the state after applying the log up to `seq`. Raises OSError."""
        ...

    async def load(self, last_seq: int) -> tuple[int, bytes] | None:
        """The newest sound snapshot not ahead of `last_seq`; see `ignored` for the others."""
        ...


class SnapshotDirectory:
    """Snapshots as files in a directory of one process's own, the last two of them kept.

    `log_identity` is `JetStreamLog.identity`: a snapshot belongs to one log, and a log that was
    made anew may well reach the same sequences.
    """

    def __init__(self, directory: Path, *, log_identity: str) -> None:
        self.ignored: tuple[Ignored, ...] = ()
        self._directory = directory
        self._log_identity = log_identity

    async def save(self, seq: int, payload: bytes) -> None:
        await anyio.to_thread.run_sync(self._save, seq, payload)

    async def load(self, last_seq: int) -> tuple[int, bytes] | None:
        return await anyio.to_thread.run_sync(self._load, last_seq)

    def _save(self, seq: int, payload: bytes) -> None:
        name = f"snapshot-{seq:020d}"
        seal(self._directory / name, self._log_identity, seq, payload)
        kept = [path for path in self._newest_first() if path.name <= name]
        for path in set(self._newest_first()) - set(kept[:KEPT]):
            path.unlink()  # older ones, and those ahead of us: they are of a log that is no more

    def _load(self, last_seq: int) -> tuple[int, bytes] | None:
        ignored = []
        try:
            for path in self._newest_first():
                found = unseal(path, self._log_identity, last_seq)
                if not isinstance(found, Ignored):
                    return found
                ignored.append(found)
        finally:
            self.ignored = tuple(ignored)
        return None

    def _newest_first(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(
            (path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True
        )
