"""Snapshots: a cache of a fold, so that a start need not read the whole log.

Never a truth. A snapshot that is torn, altered, of another log, or ahead of the log it belongs to
is passed over with a reason, and the fold starts from an older one or from nothing; it ends in the
same state either way.
"""

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Protocol

import anyio.to_thread
import msgspec

KEPT = 2
_FORMAT = 1
_NAME = re.compile(r"snapshot-(\d{20})")


class Ignored(msgspec.Struct, frozen=True):
    """A snapshot that was passed over. `reason`: "corrupt", "another_log" or "newer_than_log"."""

    path: str
    reason: str
    message: str


class _Header(msgspec.Struct, frozen=True):
    """The first line of a file, as JSON; the payload follows."""

    format: int
    log: str
    seq: int
    bytes: int
    sha256: str


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
        self._directory.mkdir(parents=True, exist_ok=True)
        for torn in self._directory.glob("writing-*"):
            torn.unlink()
        name = f"snapshot-{seq:020d}"
        digest = hashlib.sha256(payload).hexdigest()
        header = _Header(_FORMAT, self._log_identity, seq, len(payload), digest)
        handle, temporary = tempfile.mkstemp(prefix="writing-", dir=self._directory)
        try:
            with open(handle, "wb") as file:
                file.write(msgspec.json.encode(header) + b"\n")
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._directory / name)
        except BaseException:
            os.unlink(temporary)
            raise
        kept = [path for path in self._newest_first() if path.name <= name]
        for path in set(self._newest_first()) - set(kept[:KEPT]):
            path.unlink()  # older ones, and those ahead of us: they are of a log that is no more

    def _load(self, last_seq: int) -> tuple[int, bytes] | None:
        ignored = []
        try:
            for path in self._newest_first():
                found = self._read(path, last_seq)
                if not isinstance(found, Ignored):
                    return found
                ignored.append(found)
        finally:
            self.ignored = tuple(ignored)
        return None

    def _read(self, path: Path, last_seq: int) -> tuple[int, bytes] | Ignored:
        line, _, payload = path.read_bytes().partition(b"\n")
        try:
            header = msgspec.json.decode(line, type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Ignored(str(path), "corrupt", f"its header cannot be read: {error}")
        if header.format != _FORMAT:
            return Ignored(str(path), "corrupt", f"format {header.format}, not {_FORMAT}")
        if header.bytes != len(payload):
            found = f"{len(payload)} bytes, not the {header.bytes} written"
            return Ignored(str(path), "corrupt", found)
        if header.sha256 != hashlib.sha256(payload).hexdigest():
            return Ignored(str(path), "corrupt", "its checksum does not fit")
        if header.log != self._log_identity:
            return Ignored(str(path), "another_log", f"{header.log}, not {self._log_identity}")
        if header.seq > last_seq:
            return Ignored(str(path), "newer_than_log", f"at {header.seq}, the log at {last_seq}")
        return header.seq, payload

    def _newest_first(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(
            (path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True
        )
