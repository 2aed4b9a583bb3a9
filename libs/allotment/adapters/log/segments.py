"""The journal's segments as files: a cache beside the log, read as far as nothing is in doubt."""

import re
from pathlib import Path

import anyio.to_thread

from allotment.adapters.log.sealed import Ignored, seal, unseal
from allotment.core.replay import journal

_NAME = re.compile(r"segment-(\d{20})")


class SegmentDirectory:
    """Segments in a directory of one user's own, named by their last sequence.

    `log_identity` is `JetStreamLog.identity`; `ignored` is what the last `load` stopped at.
    """

    def __init__(self, directory: Path, *, log_identity: str) -> None:
        self.ignored: tuple[Ignored, ...] = ()
        self._directory = directory
        self._log_identity = log_identity

    async def save(self, segment: journal.Segment) -> None:
        """Keep a segment; others that reach into it or beyond are removed.

        Raises OSError, and `JournalError` for what no segment can hold.
        """
        await anyio.to_thread.run_sync(self._save, segment)

    async def load(self, last_seq: int) -> journal.Journal:
        """The journal through the last sound segment that ends at `last_seq` or before."""
        return await anyio.to_thread.run_sync(self._load, last_seq)

    def _save(self, segment: journal.Segment) -> None:
        payload = journal.encode(segment)
        for path in self._in_order():
            if _last_seq(path) >= segment.first_seq:
                path.unlink()
        name = f"segment-{segment.last_seq:020d}"
        seal(self._directory / name, self._log_identity, segment.last_seq, payload)

    def _load(self, last_seq: int) -> journal.Journal:
        found, self.ignored = journal.Journal(), ()
        for path in self._in_order():
            if _last_seq(path) > last_seq:
                break
            sealed = unseal(path, self._log_identity, last_seq)
            if isinstance(sealed, Ignored):
                self.ignored = (sealed,)
                break
            try:
                found.add(journal.decode(sealed[1]))
            except journal.JournalError as error:
                self.ignored = (Ignored(str(path), "corrupt", str(error)),)
                break
        return found

    def _in_order(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name))


def _last_seq(path: Path) -> int:
    return int(path.name.removeprefix("segment-"))
