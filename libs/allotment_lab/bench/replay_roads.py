"""The roads that `allot bench replay` measures: fold, journal, and a start from a snapshot.

Seconds are CPU seconds. As in a service there is no garbage collection while something is folded.
"""

import gc
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from allotment.adapters.log.segments import SegmentDirectory
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.replay import journal
from allotment.core.replay.picture import Picture
from allotment.testing.long_log import Entry
from allotment_cli.errors import CliError
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope

LOG = "bench"
SEGMENT_EVENTS = 200_000

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of some work without the garbage collector, and what came out."""
    start = time.process_time()
    gc.disable()
    try:
        result = work()
    finally:
        gc.enable()
    return time.process_time() - start, result


def decoded(entries: Sequence[Entry]) -> float:
    """CPU seconds for reading the records alone."""
    start = time.process_time()
    for entry in entries:
        decode_envelope(entry.payload)
    return time.process_time() - start


def folded(
    state: ClusterState | None,
    entries: Sequence[Entry],
    after: int,
    latencies_us: list[float] | None = None,
) -> ClusterState:
    """Everything after the record `after`, on top of a state or of nothing."""
    state = state or ClusterState()
    for seq, entry in enumerate(entries[after:], start=after + 1):
        start = time.thread_time_ns()
        envelope = decode_envelope(entry.payload)
        apply_all(state, envelope.events, seq, is_decision=entry.subject == subjects.DECISION)
        if latencies_us is not None:
            latencies_us.append((time.thread_time_ns() - start) / 1000)
    return state


class Kept(NamedTuple):
    """What a fold leaves beside the log: the journal, and a snapshot at the cut."""

    segments: list[bytes]
    journal_seconds: float
    image: bytes
    image_seconds: float
    digest: str
    """Of the state at the end: to see that writing a journal changes nothing."""


def kept_beside(entries: Sequence[Entry], cut: int) -> Kept:
    """Fold once more and keep what would be kept; only the keeping is timed."""
    state = ClusterState()
    writer = journal.Writer(state)
    segments: list[bytes] = []
    journal_seconds = image_seconds = 0.0
    image, events = b"", 0
    gc.disable()
    for seq, entry in enumerate(entries, start=1):
        envelope = decode_envelope(entry.payload)
        apply_all(state, envelope.events, seq, is_decision=entry.subject == subjects.DECISION)
        start = time.process_time()
        writer.take(seq, envelope.at_ms, entry.payload, envelope.events)
        events += entry.events
        if events >= SEGMENT_EVENTS or seq == len(entries):
            segments.append(journal.encode(writer.cut()))
            events = 0
        journal_seconds += time.process_time() - start
        if seq == cut:
            start = time.process_time()
            image = snapshot.encode(state)
            image_seconds = time.process_time() - start
    gc.enable()
    digest = hashlib.sha256(snapshot.encode(state)).hexdigest()
    return Kept(segments, journal_seconds, image, image_seconds, digest)


class FromJournal(NamedTuple):
    """The journal's road, in two parts: every amount in arrays; then every holder and card as an
    object with its name."""

    books: float
    objects: float
    picture: Picture


async def from_journal(directory: Path, segments: Sequence[bytes], changes: int) -> FromJournal:
    """Read, check and put together all segments as a command does, and add up what they say."""
    store = SegmentDirectory(directory, log_identity=LOG)
    for segment in segments:
        await store.save(journal.decode(segment))
    start = time.process_time()
    gc.disable()
    whole = await store.load(sys.maxsize)
    balance = whole.books()
    gc.enable()
    took = time.process_time() - start
    if len(whole.entries) != changes:
        raise CliError(
            f"{changes} bookings and releases, but {len(whole.entries)} in the journal: "
            f"{store.ignored}"
        )
    objects, picture = timed(balance.picture)
    return FromJournal(took, objects, picture)


class Restart(NamedTuple):
    start: float
    digest: str


async def restarted(directory: Path, entries: Sequence[Entry], cut: int, image: bytes) -> Restart:
    """Load a snapshot of `cut` as a service does, fold the tail, check the books."""
    store = SnapshotDirectory(directory, log_identity=LOG)

    async def digest_at(seq: int) -> str:
        return hashlib.sha256(entries[seq - 1].payload).hexdigest()

    await store.save(cut, image, await digest_at(cut))
    start = time.process_time()
    gc.disable()
    found = await store.load(len(entries), digest_at)
    if found is None:
        raise CliError(f"the snapshot that was just written is ignored: {store.ignored}")
    started = folded(snapshot.decode(found[1]), entries, found[0])
    wrong = check(started)
    gc.enable()
    took = time.process_time() - start
    if wrong:
        raise CliError(f"the books of a start from a snapshot do not balance: {wrong[0]}")
    digest = hashlib.sha256(snapshot.encode(started)).hexdigest()
    return Restart(took, digest)
