"""Reading the log by questions, for users who may not have a consumer on it.

A consumer costs the server memory, and its creator decides how much (the server keeps every
record that a consumer does not acknowledge, without a limit if the consumer names none), and there
are only so many of them on a stream. So only services whose work depends on getting each record at
once have consumers. Everybody else asks the stream's leader for one record after the other, many
at a time, and for what is new a few times a second: no more is kept for them than one answer.
"""

import anyio

from allotment.adapters.log.jetstream import JetStream
from allotment.core.logport import Record

LOOK_AGAIN_S = 0.2
FIRST_RECORDS = 8
RECORDS_MAX = 64
"""Asked for at once. A server that has 10,000 questions waiting drops them all."""
BATCH_BYTES_MAX = 4 * 1024 * 1024


class Questions:
    """One life of reading: asks until something about the log is doubtful (`lost` says what).

    The counterpart of `Intake`, with the same fields for the follower.
    """

    is_stalled = False

    def __init__(
        self, jetstream: JetStream, stream: str, after_seq: int, last: Record | None
    ) -> None:
        """`last` is the record at `after_seq` if it was read. It is asked for again with each
        batch: a log that was replaced has another one there.
        """
        self.lost = ""
        self.is_another_log = False
        self.hole_before = 0
        self.count = 0
        self._jetstream = jetstream
        self._stream = stream
        self._next_seq = after_seq + 1
        self._last = last
        self._had_last = False
        """Whether the log has sent the last record in this life."""
        self._end_seq = 0
        self._at_once = FIRST_RECORDS

    async def start(self) -> str:
        """Look where the log ends. Returns the name of the consumer: there is none."""
        info = await self._jetstream.stream_info(self._stream)
        self._end_seq = 0 if info is None else int(info["state"]["last_seq"])
        return ""

    async def take(self) -> list[Record] | None:
        """The next records, waiting for the first; None when this reading is lost."""
        while True:
            first = self._next_seq - (self._last is not None)
            until = min(max(self._end_seq, self._next_seq), first + self._at_once)
            found = await self._jetstream.records(self._stream, first, until)
            if (last := self._last) is not None:
                again = found.pop(0) if found and found[0].seq == last.seq else None
                if again is None or (again.payload, again.subject) != (last.payload, last.subject):
                    # A new leader may not have it yet; the next life begins when it says it has.
                    self.is_another_log = again is not None or not self._had_last
                    self.lost = f"at {last.seq} stands another record than was read, or none"
                    return None
                self._had_last = True
            batch = [record for at, record in enumerate(found, self._next_seq) if record.seq == at]
            if batch:
                self._note(batch)
                return batch
            if self._end_seq >= self._next_seq and await self._is_hole():
                return None
            await anyio.sleep(LOOK_AGAIN_S)

    def compare(self, last_seq: int, _patience_s: float) -> None:
        """Take note that the log ends at `last_seq`."""
        self._end_seq = last_seq

    async def stop(self) -> None:
        """Nothing is left behind."""

    def _note(self, batch: list[Record]) -> None:
        self._last, self._had_last = batch[-1], True
        self._next_seq += len(batch)
        self.count += len(batch)
        if sum(len(record.payload) for record in batch) > BATCH_BYTES_MAX:
            self._at_once = max(self._at_once // 2, 1)
        elif len(batch) >= self._at_once:
            self._at_once = min(self._at_once * 2, RECORDS_MAX)

    async def _is_hole(self) -> bool:
        """Whether the log continues without the record that is due."""
        after = await self._jetstream.first_on_subject(self._stream, ">", self._next_seq)
        if after is None or after.seq == self._next_seq:
            return False
        self.hole_before = after.seq
        self.lost = f"{after.seq} came where {self._next_seq} was due"
        return True
