"""The log's past, kept reachable: the state at any sequence, and the records around it.

The newest state is folded as everywhere (`adapters/log/fold.py`). With it are kept

* checkpoints: encoded states, one every so many events, thinned when they need more than their
  share of memory;
* two states for looking, one near the end of the log and one wherever a reader looks. To show a
  sequence the nearer of them, or of the checkpoints before it, is taken and folded forward: a step
  ahead costs one record, a step back one checkpoint and what follows it;
* the index (`index.py`), and the last records as they were written.

A start from a snapshot knows nothing of what was before; that is read while the pages are served
already. The snapshot itself is the first checkpoint.

States are looked at in worker threads, one at a time each; no other code touches a state meanwhile.
Records are folded there as well, a bounded number at a time: a long way through the log holds
neither the event loop nor all its records in memory.
"""

import threading
import time
import zlib
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from allotment.adapters.log.fold import Fold
from allotment.adapters.service.reading import ReadableLog
from allotment.adapters.telemetry.log import Logger
from allotment.core.explain.causes.why import ASKED_OFTEN, Whys
from allotment.core.explain.doctor import Finding, of_leases
from allotment.core.explain.history.concerned import POD
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogUnavailable, Record
from allotment_inspector.index import Index, Mark
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope, Event

CHECKPOINT_EVENTS = 1_000
"""At least so many events between two checkpoints, and half as many as there are pods: then a
checkpoint costs less than the fold before it.
"""
EVENT_NS, IMAGE_BYTE_NS, POD_BYTES = 9_000, 18, 1_000
"""About what folding an event takes, unpacking a byte of a checkpoint, and a pod in one."""
_LEVEL = 1
MEMO_MAX = 256
RECENT_BYTES = 8 << 20
RECENT_RECORDS = 10_000
ENTRIES_MAX = 5_000
"""At most so many records are read for one question."""
RUN_GAP = 32
"""Records that are not further apart are read in one go."""
CHUNK_RECORDS = 4_000
"""So many records are read and folded at a time on the way to a moment."""
AGAIN_S = 1.0
"""After so long the past is asked for again, when the log did not answer."""
STEPPING_STONES = 4
STONE_BEHIND = 24
STONE_WORTH = 4
"""After folding so many times the events between two checkpoints for a look at the past, a state a
few steps before it is kept: who looks there is likely to step back.
"""

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True):
    """One record, read. `reason` says why it could not be, and `events` is empty then."""

    seq: int
    time_ms: int
    subject: str
    by: str
    events: tuple[Event, ...]
    payload: bytes
    reason: str = ""


class Records(Protocol):
    """How a moment comes by records; called in a worker thread."""

    def __call__(self, seqs: Sequence[int]) -> tuple[Entry, ...]: ...


class States(Protocol):
    """How a moment comes by states of other moments; called in a worker thread."""

    def __call__(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]: ...


class Memo:
    """What views found out of the log and will be asked again. It must follow from the key and the
    log alone; the oldest is forgotten.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key, else what `make` makes."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return cast(T, self._kept[key])
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MEMO_MAX:
                self._kept.popitem(last=False)
        return made


class Moment:
    """One moment of the log, for a view to draw. Look at `state`, never change it. Records after it
    do not exist for it: a view shows the same whether the log continues or ends there.

    `is_now` says that the end of the log is meant, wherever that is: no moment was named. `now_ms`
    is what ages are measured against: the clock then, or when the last news came from NATS
    (`silent_since_ms`) if it brings none; else the time of the record.
    """

    def __init__(
        self,
        state: ClusterState,
        head_seq: int,
        time_ms: int,
        now_ms: int,
        index: Index,
        records: Records,
        states: States,
        memo: "Memo",
        *,
        is_now: bool,
        silent_since_ms: int | None,
        idle: Sequence[Finding],
        unread_seq: int,
    ) -> None:
        self.state = state
        self.seq = state.seq
        self.head_seq = head_seq
        self.time_ms = time_ms
        self.time_ns = time_ms * 1_000_000
        self.now_ms = now_ms
        self.is_now = is_now
        self.silent_since_ms = silent_since_ms
        self.idle = idle
        """The scheduling services without an active replica; of the past nothing is known."""
        self.index = index
        self._records = records
        self._states = states
        self.memo = memo
        self.unread_seq = unread_seq
        """Up to this record the log is still being read: of what was there little is known yet."""

    @cached_property
    def whys(self) -> Whys:
        """Why each pod waits."""
        return Whys(self.state, ASKED_OFTEN)

    @property
    def at(self) -> int | None:
        """The moment to give to a command: nothing at the end of the log."""
        return None if self.is_now else self.seq

    def entry(self, seq: int) -> Entry | None:
        """The record at a sequence, None if the log has none there up to the moment."""
        found = self.records((seq,))
        return found[0] if found else None

    def records(self, seqs: Sequence[int]) -> tuple[Entry, ...]:
        """These records, as far as the log has them up to the moment."""
        return self._records([seq for seq in seqs if seq <= self.seq])

    def seqs(self, kind: str, name: str) -> tuple[int, ...]:
        """The records about a pod (by uid), a group (``<namespace>/<name>``) or a node."""
        found = self.index.seqs(kind, name)
        return found[: bisect_right(found, self.seq)]

    def states(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]:
        """These records, given in order, each with the state after it. The state is the caller's
        until the next one is asked for. Between records that are far apart nothing is folded where
        a checkpoint is nearer.
        """
        seqs = list(seqs)
        is_own = bool(seqs) and seqs[-1] == self.seq
        yield from self._states(seqs[:-1] if is_own else seqs)
        entry = self.entry(self.seq) if is_own else None
        if entry is not None:
            yield entry, self.state

    def folded(self, first_seq: int) -> Iterator[tuple[int, ClusterState]]:
        """The state after the record `first_seq`, and then after each record up to the moment, with
        its time. It is one state, which changes as the next one is asked for.
        """
        state = ClusterState()
        for _, found in self._states((first_seq,)):
            state = found
        yield self.ms_of(first_seq) or 0, state
        for first, last in _chunks(state.seq + 1, self.seq):
            for entry in self.records(range(first, last + 1)):
                is_decision = entry.subject == subjects.DECISION
                if entry.reason:
                    pass_over(state, entry.seq, is_decision=is_decision)
                else:
                    apply_record(state, entry.events, entry.seq, is_decision=is_decision)
                yield entry.time_ms, state

    def pods_named(self, namespace: str, name: str) -> tuple[str, ...]:
        """The uids of the pods that had this name up to the moment, the oldest first."""
        return tuple(filter(self._is_seen, self.index.uids_of(namespace, name)))

    def pod_names(self) -> Iterator[str]:
        """``<namespace>/<name>`` of every pod up to the moment, also of those that are gone."""
        for key in self.index.pod_names():
            namespace, _, name = key.partition("/")
            if any(map(self._is_seen, self.index.uids_of(namespace, name))):
                yield key

    def _is_seen(self, uid: str) -> bool:
        first = self.index.first_seq_of(POD, uid)
        return first is not None and first <= self.seq

    def ms_of(self, seq: int) -> int | None:
        """When a record was written."""
        return self.index.ms_of(seq)

    def marks(self) -> Sequence[Mark]:
        """The marked records that are known up to the moment, in order."""
        marks = self.index.marks
        return marks[: bisect_right(marks, self.seq, key=lambda mark: mark.seq)]


class _Checkpoint(NamedTuple):
    """A state, packed: its image has a size of many times these bytes."""

    seq: int
    packed: bytes
    size: int

    @classmethod
    def of(cls, seq: int, image: bytes) -> "_Checkpoint":
        return cls(seq, zlib.compress(image, _LEVEL), len(image))

    def state(self) -> ClusterState:
        return snapshot.decode(zlib.decompress(self.packed))


class _Past:
    """What was before the snapshot that the fold started from, as far as it was read."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.index = Index()
        self.events = 0
        """Since the last checkpoint."""


class _Look:
    """A state for looking, and who may."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.lock = anyio.Lock()


class History:
    """Attach it to a fold before that runs (`attach`); then `moment` gives any moment."""

    def __init__(
        self,
        bytes_max: int,
        clock_ms: Callable[[], int],
        logger: Logger,
    ) -> None:
        self.index = Index()
        self.bytes_max = bytes_max
        self.checkpoint_bytes = 0
        self.thinned = 0
        self.build_s = 0.0
        """How long it took to come to a moment, all in all, and how often that was asked."""
        self.builds = 0
        self.folded_records = 0
        """Records that were folded to come to a moment."""
        self.is_filled = True
        """Whether all that was before a snapshot is known."""
        self.trouble = ""
        """Why the past cannot be read now, "" while it can."""
        self.silent_since_ms: Callable[[], int | None] = lambda: None
        """When the last news came from NATS, if that is too long ago: what is shown is of then."""
        self.active: Callable[[], Mapping[str, str]] = dict
        """The active replica of each scheduling service, "" for none; empty where not known."""
        self._clock_ms = clock_ms
        self._logger = logger
        self._began_seq = 0
        """Where the snapshot stands that the fold started from."""
        self._checkpoints: list[_Checkpoint] = []
        self._stones: OrderedDict[int, _Checkpoint] = OrderedDict()
        self._events_since = 0
        self._spacing = 1
        self._recent: deque[Record] = deque()
        self._recent_bytes = 0
        self._near, self._far = _Look(), _Look()
        self.memo = Memo()
        self._changed = anyio.Event()
        self._fold: Fold | None = None
        self._log: ReadableLog | None = None

    # Following

    def attach(self, fold: Fold, log: ReadableLog) -> None:
        """Take in every record that the fold takes from now on."""
        self._fold, self._log = fold, log
        fold.restored.append(self._begin)
        fold.listeners.append(self._take)
        fold.passed_over.append(lambda record: self._take(record, None))

    def idle(self) -> Sequence[Finding]:
        """The scheduling services that have no active replica now."""
        return of_leases(self.active())

    @property
    def head_seq(self) -> int:
        """The last record that took effect."""
        return self._fold.state.seq if self._fold is not None else 0

    @property
    def checkpoints(self) -> int:
        return len(self._checkpoints)

    @property
    def recent_bytes(self) -> int:
        return self._recent_bytes

    async def changed(self) -> None:
        """Wait until a record took effect."""
        await self._changed.wait()

    def _begin(self, seq: int, image: bytes) -> None:
        """The fold starts from a snapshot: what was before is not known yet."""
        self._began_seq, self.is_filled = seq, False
        self.index.first_seq = seq + 1
        self._keep(_Checkpoint.of(seq, image))

    def _take(self, record: Record, envelope: Envelope | None) -> None:
        self.index.take(record, envelope)
        self._recent.append(record)
        self._recent_bytes += len(record.payload)
        while self._recent_bytes > RECENT_BYTES or len(self._recent) > RECENT_RECORDS:
            self._recent_bytes -= len(self._recent.popleft().payload)
        assert self._fold is not None
        state = self._fold.state
        self._events_since += 1 if envelope is None else len(envelope.events)
        if self._is_due(self._events_since, state):
            self._events_since = 0
            if checkpoint := _checkpoint(state):
                self._keep(checkpoint)
        turn, self._changed = self._changed, anyio.Event()
        turn.set()

    async def fill(self) -> None:
        """Bring a state to the end of the log, and read what was before the snapshot that the fold
        started from, if it did. A log that does not answer is asked again.
        """
        assert self._fold is not None
        await self._fold.caught_up.wait()
        await self._until_done(self._look_at_the_end)
        if not self.is_filled:
            past = _Past()
            await self._until_done(lambda: self._read_past(past))
            past.index.join(self.index)
            self.index, self.is_filled = past.index, True

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except LogUnavailable as error:
                self._logger.warning("the past is not read now", reason=str(error))
                self.trouble = f"the past of the log is not read now: {error}"
                await anyio.sleep(AGAIN_S)
            else:
                self.trouble = ""
                return

    async def _look_at_the_end(self) -> None:
        async with self.moment(None):
            pass  # so that the first who looks need not wait for it

    async def _read_past(self, past: _Past) -> None:
        """Read on from where the past ends: what was read is not read again."""
        assert self._log is not None
        first, last = past.state.seq + 1, self._began_seq
        async with aclosing(self._log.read(first, last)) as batches:
            async for batch in batches:
                for checkpoint in await anyio.to_thread.run_sync(self._extend, past, batch):
                    self._keep(checkpoint)

    def _extend(self, past: _Past, batch: Sequence[Record]) -> list[_Checkpoint]:
        """Fold records onto the past; the checkpoints on the way."""
        found = []
        for record in batch:
            envelope = _apply(past.state, record)
            past.index.take(record, envelope)
            past.events += 1 if envelope is None else len(envelope.events)
            if self._is_due(past.events, past.state):
                past.events = 0
                if checkpoint := _checkpoint(past.state):
                    found.append(checkpoint)
        return found

    # Checkpoints

    def _is_due(self, events: int, state: ClusterState) -> bool:
        return events >= self._events_apart(len(state.pods)) * self._spacing

    def _keep(self, checkpoint: _Checkpoint) -> None:
        place = bisect_right(self._checkpoints, checkpoint.seq, key=lambda c: c.seq)
        self._checkpoints.insert(place, checkpoint)
        self.checkpoint_bytes += len(checkpoint.packed)
        while self.checkpoint_bytes > self.bytes_max and len(self._checkpoints) > 1:
            self._thin()

    def _pods(self) -> int:
        return len(self._fold.state.pods) if self._fold is not None else 0

    def _events_apart(self, pods: int) -> int:
        """How many events there are between two checkpoints, before any were thinned."""
        return max(CHECKPOINT_EVENTS, pods // 2)

    def _thin(self) -> None:
        """Leave out every second one, and make them half as often from now on."""
        self._checkpoints = self._checkpoints[1::2]
        self.checkpoint_bytes = sum(len(found.packed) for found in self._checkpoints)
        self._spacing *= 2
        self.thinned += 1

    # Looking

    def seq_at(self, ms: int) -> int:
        """The last record at a time or before."""
        return min(self.index.seq_at(ms), self.head_seq)

    @asynccontextmanager
    async def moment(self, seq: int | None) -> AsyncIterator[Moment]:
        """The moment after the record `seq` (None: the newest), for as long as the block lasts.

        A sequence beyond the end of the log counts as its end. Raises LogUnavailable when what is
        needed cannot be read.
        """
        is_now = seq is None
        wanted = self.head_seq if seq is None else max(min(seq, self.head_seq), 0)
        look = self._near if wanted == self.head_seq else self._far
        async with look.lock:
            if is_now:  # others may have brought it further while we waited for our turn
                wanted = self.head_seq
            began_s = time.perf_counter()
            await self._bring(look, wanted)
            self.build_s += time.perf_counter() - began_s
            self.builds += 1
            time_ms = self.index.ms_of(wanted)
            if time_ms is None:
                found = await self.entries((wanted,))
                time_ms = found[0].time_ms if found else 0
            silent_ms = self.silent_since_ms() if is_now else None
            yield Moment(
                look.state,
                self.head_seq,
                time_ms,
                max(silent_ms or self._clock_ms(), time_ms) if is_now else time_ms,
                self.index,
                self._records_from_thread,
                self._states_from_thread,
                self.memo,
                is_now=is_now,
                silent_since_ms=silent_ms,
                idle=self.idle() if is_now and silent_ms is None else (),
                unread_seq=0 if self.is_filled else self._began_seq,
            )

    async def _bring(self, look: _Look, seq: int) -> None:
        """Bring a state to a sequence: from where it is, from a checkpoint, or from nothing."""
        start = self._start(look.state.seq, seq)
        if start.packed:
            look.state = await anyio.to_thread.run_sync(start.state)
        elif look.state.seq != start.seq:
            look.state = ClusterState()
        worth = STONE_WORTH * self._events_apart(len(look.state.pods))
        is_far = self.index.events_between(start.seq, seq) >= worth
        stone = seq - STONE_BEHIND if is_far else 0
        for first, last in _chunks(start.seq + 1, seq):
            records = await self._read(first, last)
            self.folded_records += len(records)
            await anyio.to_thread.run_sync(self._advance, look.state, records, stone)

    def _start(self, at_seq: int, seq: int) -> _Checkpoint:
        """The best place to start from: an empty one stands for the state as it is."""
        found = [stone for stone in self._stones.values() if stone.seq <= seq]
        place = bisect_right(self._checkpoints, seq, key=lambda c: c.seq)
        found += self._checkpoints[place - 1 : place] if place else []
        best = max(found, key=lambda c: c.seq, default=_Checkpoint(0, b"", 0))
        if best.seq <= at_seq <= seq:
            return _Checkpoint(at_seq, b"", 0)
        # To read a state takes as long as to fold about as many events as it has pods.
        is_near = self.index.events_between(at_seq, best.seq) <= 2 * self._events_apart(
            self._pods()
        )
        return _Checkpoint(at_seq, b"", 0) if at_seq <= seq and is_near else best

    def _advance(self, state: ClusterState, records: Sequence[Record], stone: int) -> None:
        """Fold records onto a state; at `stone` it is kept."""
        for record in records:
            _apply(state, record)
            if record.seq == stone and (kept := _checkpoint(state)):
                self._stones[stone] = kept
                while len(self._stones) > STEPPING_STONES:
                    self._stones.popitem(last=False)

    # Records

    def _records_from_thread(self, seqs: Sequence[int]) -> tuple[Entry, ...]:
        return anyio.from_thread.run(self.entries, seqs)

    def _states_from_thread(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]:
        state = ClusterState()
        for seq in seqs:
            if not 1 <= seq <= self.head_seq:
                continue
            nearer = anyio.from_thread.run_sync(self._nearer, state.seq, seq)
            if nearer is not None:
                state = nearer.state()
            first = min(state.seq + 1, seq)  # right at a checkpoint the record itself is wanted
            records: list[Record] = []
            for chunk in _chunks(first, seq):
                records = anyio.from_thread.run(self._read, *chunk)
                for record in records:
                    if record.seq > state.seq:
                        _apply(state, record)
            if records and records[-1].seq == seq:
                yield entry_of(records[-1]), state

    def _nearer(self, at_seq: int, seq: int) -> _Checkpoint | None:
        """The last checkpoint up to a sequence, if decoding it takes less time than folding on from
        the state at `at_seq`. Between two checkpoints lie as many events as their size tells.
        """
        place = bisect_right(self._checkpoints, seq, key=lambda c: c.seq)
        passed = place - bisect_right(self._checkpoints, at_seq, key=lambda c: c.seq)
        if not passed:
            return None
        found = self._checkpoints[place - 1]
        size = found.size
        events = passed * max(CHECKPOINT_EVENTS, size // (2 * POD_BYTES)) * self._spacing
        return found if events * EVENT_NS > size * IMAGE_BYTE_NS else None

    async def entries(self, seqs: Iterable[int]) -> tuple[Entry, ...]:
        """Records, read; of more than `ENTRIES_MAX` the last. Raises LogUnavailable."""
        wanted = sorted({seq for seq in seqs if 1 <= seq <= self.head_seq})[-ENTRIES_MAX:]
        found: list[Record] = []
        for first, last in _runs(wanted):
            found += await self._read(first, last)
        asked = set(wanted)
        return tuple(entry_of(record) for record in found if record.seq in asked)

    async def _read(self, first: int, last: int) -> list[Record]:
        """The records from one sequence to another: the last ones from memory."""
        recent = self._recent
        begin = recent[0].seq if recent else self.head_seq + 1
        found: list[Record] = []
        if first < begin:
            log = self._log
            assert log is not None
            until = min(last, begin - 1)
            if first == until:
                record = await log.record(first)
                found = [] if record is None else [record]
            else:
                async with aclosing(log.read(first, until)) as batches:
                    async for batch in batches:
                        found += batch
        if last >= begin:
            start = max(first, begin)
            if len(found) and recent and recent[0].seq > begin:  # some went while we read
                return [*found, *await self._read(start, last)]
            found += [recent[seq - recent[0].seq] for seq in range(start, last + 1)]
        return found


def entry_of(record: Record) -> Entry:
    """A record, read."""
    ms = record.time_ns // 1_000_000
    try:
        envelope = decode_envelope(record.payload, record.subject)
    except UndecodableError as error:
        return Entry(record.seq, ms, record.subject, "", (), record.payload, error.reason)
    return Entry(record.seq, ms, record.subject, envelope.by, envelope.events, record.payload)


def _apply(state: ClusterState, record: Record) -> Envelope | None:
    """Let a record take effect as every service does; None if it is unreadable."""
    is_decision = record.subject == subjects.DECISION
    try:
        envelope = decode_envelope(record.payload, record.subject)
    except UndecodableError:
        pass_over(state, record.seq, is_decision=is_decision)
        return None
    apply_record(state, envelope.events, record.seq, is_decision=is_decision)
    return envelope


def _checkpoint(state: ClusterState) -> _Checkpoint | None:
    """The state, encoded; None if it holds a number that no snapshot can hold."""
    try:
        return _Checkpoint.of(state.seq, snapshot.encode(state))
    except OverflowError:
        return None


def _chunks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """A stretch of sequences in parts that are not too long."""
    for begin in range(first, last + 1, CHUNK_RECORDS):
        yield begin, min(begin + CHUNK_RECORDS - 1, last)


def _runs(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Sequences in stretches that are read in one go."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and seq - runs[-1][1] <= RUN_GAP:
            runs[-1] = runs[-1][0], seq
        else:
            runs.append((seq, seq))
    return runs
