"""Closes segments of the log: each ends at a size, at an age or when asked, with a checkpoint.

    SegmentClosing      the last record of the segment: every replica notes what its state is there
    CheckpointPart …    the image of that state
    SegmentClosed       on condition that no other checkpoint was completed; now it counts

Decisions go on meanwhile. A binder that stops anywhere leaves a closing that counts for nothing
yet. The next one, if it has read the closing, writes the parts that are missing, and the bytes are
the same; or else another closing takes its place.

Then one empty record goes to each subject on which the next record must follow the last one: these
are looked up in the stream, and the last ones must not leave it with the segment.
"""

import time
from collections.abc import Collection
from typing import Protocol

import anyio

from allotment.adapters.log.checkpoints import count_of, parts_of
from allotment.adapters.log.fold import Fold, Seam
from allotment.adapters.telemetry.log import Logger
from allotment.core.ledger.segments import OpenSegment
from allotment.core.logport import AppendResult, Landed, Record
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    ENVELOPE_VERSION,
    Envelope,
    Event,
    LevelRaised,
    SegmentClosed,
    SegmentClosing,
)
from allotment_proto.segments import CloseCause

LOOK_EVERY_S = 1.0
ASKED_APART_S = 10.0
"""A segment is not closed because it was asked for so soon after the one before."""


class ClosedLog(Protocol):
    """As much of a log as closing its segments takes."""

    async def record(self, seq: int) -> Record | None: ...

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult: ...


class Fenced(Protocol):
    """What appends as one life of a binder does, on its subjects; see `fence`."""

    @property
    def subjects(self) -> Collection[str]: ...

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult: ...


class Closer:
    """Closes segments while this binder lives; `closed` counts them.

    Keeps the image of the state at a closing until its segment is closed.
    """

    def __init__(
        self, log: ClosedLog, fold: Fold, settings: BinderSettings, logger: Logger
    ) -> None:
        self.closed = 0
        self._log = log
        self._fold = fold
        self._settings = settings
        self._logger = logger
        self._by = f"binder/{settings.instance}"
        self._seam: tuple[Seam, bytes] | None = None
        self._began: tuple[int, int] = (0, 0)
        """The first record of the open segment, and when it was written (Unix nanoseconds)."""
        self._last_seq = 0
        """The last record on the checkpoints' subject that the state does not count as one."""
        self._raises = False
        self._asked = False
        self._closed_s = -ASKED_APART_S
        fold.on_seam.append(self._keep)

    def _keep(self, seam: Seam, image: bytes) -> None:
        self._seam = seam, image

    def ask_to_close(self) -> None:
        """Close the open segment soon, whatever its size and age."""
        self._asked = time.monotonic() - self._closed_s >= ASKED_APART_S

    def ask_to_raise(self) -> None:
        """Let records be of the level of this release from here on."""
        self._raises = True

    async def run(self, fence: Fenced) -> None:
        """Close what is due, for ever. Raises LogUnavailable."""
        while True:
            now = self._fold.state.segments.open
            if now.closing:
                await self._complete(fence, now)
                continue
            self._seam = None
            if self._raises:
                self._raises = False
                if self._fold.state.segments.level < ENVELOPE_VERSION:
                    event = LevelRaised(level=ENVELOPE_VERSION)
                    await self._append(fence, event, f"level/{ENVELOPE_VERSION}")
            if (cause := await self._due(now)) is not None:
                await self._begin(fence, now, cause)
                continue
            await anyio.sleep(LOOK_EVERY_S)

    async def _due(self, now: OpenSegment) -> CloseCause | None:
        if self._asked:
            return "asked"
        live = self._fold.state.segments.live
        checkpoint_bytes = live[-1].closed.image_bytes if live else 0  # it is in this segment
        if self._fold.segment_bytes >= max(self._settings.segment_bytes, checkpoint_bytes):
            return "size"
        if self._began[0] != now.first_seq:
            record = await self._log.record(now.first_seq)
            if record is None:
                return None  # nothing was written yet
            self._began = now.first_seq, record.time_ns
        age_s = (time.time_ns() - self._began[1]) // 1_000_000_000
        return "age" if age_s >= self._settings.segment_days * 86_400 else None

    async def _begin(self, fence: Fenced, now: OpenSegment, cause: CloseCause) -> None:
        """End the segment with the next record."""
        event = SegmentClosing(number=now.number, cause=cause)
        await self._append(fence, event, f"closing/{now.number}.{self._fold.state.seq}")

    async def _complete(self, fence: Fenced, now: OpenSegment) -> None:
        """Write what is missing of a checkpoint, and that the segment is closed."""
        await self._fold.at_rest()  # it may be making the image now
        seam, image = self._seam or (None, b"")
        if seam is None or seam.seq != now.closing:
            self._logger.info("a closing of an earlier binder is replaced", seq=now.closing)
            await self._begin(fence, now, "asked" if self._asked else "size")
            return
        for part in parts_of(image, seam.seq):
            state = self._fold.state.segments.open
            if (state.closing, state.parts) != (seam.seq, part.index):
                if state.closing == seam.seq and state.parts > part.index:
                    continue  # an earlier binder wrote it
                return
            await self._append(fence, part, f"part/{seam.seq}.{part.index}")
        if self._fold.state.segments.open.parts != count_of(image):
            return
        await self._close(seam, image, now)
        await self._follow_up(fence)

    async def _close(self, seam: Seam, image: bytes, now: OpenSegment) -> None:
        event = SegmentClosed(
            number=now.number,
            at_ms=time.time_ns() // 1_000_000,
            first_seq=now.first_seq,
            last_seq=seam.seq,
            parts=count_of(image),
            image_bytes=len(image),
            digest=seam.digest,
            chain=seam.chain,
        )
        answer = await self._log.compare_and_append(
            subjects.CHECKPOINT,
            self._encoded(event),
            msg_id=f"closed/{self._by}/{seam.seq}",
            expected_seq=max(self._fold.state.segments.checkpoint_seq, self._last_seq),
        )
        if not isinstance(answer, Landed):
            self._logger.warning("the segment is not closed", reason=answer.message)
            # What took the place may have closed it, or be no checkpoint at all.
            self._last_seq = answer.last_subject_seq or 0
            await self._fold.wait_for(self._last_seq)
            await anyio.sleep(LOOK_EVERY_S)
            return
        await self._fold.wait_for(answer.seq)
        self._seam = None
        self._asked, self._closed_s = False, time.monotonic()
        self.closed += 1
        self._logger.info(
            "segment closed",
            number=event.number,
            firstSeq=event.first_seq,
            lastSeq=event.last_seq,
            checkpointBytes=event.image_bytes,
            parts=event.parts,
        )

    async def _follow_up(self, fence: Fenced) -> None:
        """Write an empty record on each subject that is written on a condition."""
        state, seq = self._fold.state, self._fold.state.seq
        if subjects.OUTCOME in fence.subjects:
            await self._append(fence, None, f"on/{seq}", subject=subjects.OUTCOME)
        await self._log.compare_and_append(  # refused: there is a newer decision, as wanted
            subjects.DECISION,
            self._encoded(None),
            msg_id=f"on/{self._by}/{seq}",
            expected_seq=state.decision_seq,
        )

    async def _append(
        self, fence: Fenced, event: Event | None, name: str, subject: str = subjects.SEGMENT
    ) -> None:
        """Append one event (None: an empty record), and wait until it has taken effect."""
        answer = await fence.append(subject, self._encoded(event), msg_id=f"{name}/{self._by}")
        if isinstance(answer, Landed):
            await self._fold.wait_for(answer.seq)
            return
        self._logger.warning("the segment cannot be closed now", reason=answer.message)
        await anyio.sleep(LOOK_EVERY_S)

    def _encoded(self, event: Event | None) -> bytes:
        events = () if event is None else (event,)
        return encode(Envelope(at_ms=time.time_ns() // 1_000_000, by=self._by, events=events))
