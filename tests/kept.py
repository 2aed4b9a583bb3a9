"""A log with a cache in a directory, as a command on a live log has it, which counts reads."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from allotment.adapters.log.exported import ExportedLog
from allotment.adapters.log.kept import KeptLog
from allotment.adapters.log.snapshots import SnapshotDirectory, SnapshotStore
from allotment.answers.screen import UNSEEN
from allotment.answers.source import FileSource
from allotment.core.logport import Record

BATCH_RECORDS = 16
IDENTITY = "ALLOTMENT_LOG@2026"


class CountedLog(ExportedLog):
    """Remembers how many records it was asked for."""

    read_records = 0

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        last = min(last_seq, len(self.records))
        for first in range(first_seq, last + 1, BATCH_RECORDS):
            batch = self.records[first - 1 : min(first - 1 + BATCH_RECORDS, last)]
            self.read_records += len(batch)
            yield batch


class KeptSource(FileSource):
    """A source of these records, for one command."""

    def __init__(self, records: Sequence[Record], directory: Path | None) -> None:
        self.screen = UNSEEN
        self.records = list(records)
        self.log = CountedLog(self.records)
        self.kept = KeptLog(self.log, directory, IDENTITY)
        self.snapshots: SnapshotStore | None = None
        self.folded = 0
        if directory is not None:
            self.snapshots = SnapshotDirectory(directory, log_identity=IDENTITY, bytes_max=1 << 30)

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        async for batch in super().read(first_seq, last_seq):
            self.folded += len(batch)
            yield batch
