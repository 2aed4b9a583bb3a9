"""The roads that `allot bench replay` measures: a fold, and a start from a snapshot.

Seconds are CPU seconds. As in a service there is no garbage collection while something is folded.
"""

import gc
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.testing.long_log import Entry
from allotment_cli.errors import CliError
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope

LOG = "bench"

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
    """A snapshot of the state at the cut, and what encoding it cost."""

    image: bytes
    seconds: float


def kept_at(entries: Sequence[Entry], cut: int) -> Kept:
    """Fold up to the cut; only the encoding is timed."""
    state = folded(None, entries[:cut], 0)
    seconds, image = timed(lambda: snapshot.encode(state))
    return Kept(image, seconds)


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
