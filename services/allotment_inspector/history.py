"""The log's past, kept reachable: the state at any sequence, and the records around it.

The newest state is folded as everywhere (`adapters/log/fold.py`). With it are kept

* in files, whom each record concerns (`adapters/log/kept.py`), and encoded states, one every so
  many events; older ones are thinned when they need more than their share of the disk. So memory
  does not grow with the log;
* two states for looking, one near the end of the log and one wherever a reader looks. To show a
  sequence the nearer of them, or of the kept states before it, is taken and folded forward: a step
  ahead costs one record, a step back one kept state and what follows it;
* what is short of every record (`index.py`), and the last records as they were written.

A start from a snapshot that reaches further than these files knows nothing of what is between; that
is read while the pages are served already. A start without files indexes no records before the
segment in which it begins. Any moment can still be shown, from the log's checkpoints; a
question that concerns older records has them indexed, segment by segment, the newest first.

Records that have left NATS are read from the archive (`adapters/archive/whole.py`). While that
cannot be read, the past begins where the records in NATS do.

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
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from allotment.adapters.log.checkpoints import Checkpoint
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.kept import (
    FAR_RECORDS,
    STRETCH_RECORDS,
    WORTH_RECORDS,
    KeptIndex,
    envelope_of,
)
from allotment.adapters.log.snapshots import (
    SnapshotDirectory,
    SnapshotMemory,
    SnapshotStore,
    digests_of,
)
from allotment.adapters.service.reading import ReadableLog
from allotment.adapters.telemetry.log import Logger
from allotment.core import chain
from allotment.core.errors import AllotError
from allotment.core.explain.causes.why import ASKED_OFTEN, Whys
from allotment.core.explain.doctor import Finding, of_leases
from allotment.core.explain.history.concerned import (
    GROUP,
    NODE,
    POD,
    StretchIndex,
    Thing,
    family_of,
    key_of,
)
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogUnavailable, Record
from allotment_inspector.index import Gone, Index, Mark
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope, Event, NodeObserved

STATE_EVENTS = 20_000
"""At least so many events between two kept states, and twice as many as there are pods: then
keeping one costs less than the fold before it.
"""
NEAR_EVENTS = 1_000
"""At least so many events, and as many as there are pods, take longer than to unpack a state."""
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
LOOK_AGAIN_S = 10.0
"""How often at most an archive that could not be read is asked again."""
STEPPING_STONES = 4
STONE_BEHIND = 24
"""After a fold that took longer than to unpack a state, a state a few steps before its end is kept:
who looks there is likely to step back.
"""
STRETCHES_NAMED = 64
"""Names of pods that are gone are looked for in so many of the last stretches."""

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


class Past(Protocol):
    """How a moment comes by the records and states of others; called in a worker thread."""

    def records(self, seqs: Sequence[int]) -> tuple[Entry, ...]:
        """These records, as far as the log has them."""
        ...

    def states(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]:
        """These records with the state after each."""
        ...

    def about(self, thing: Thing, seq: int) -> list[int]:
        """The records about something, up to one."""
        ...

    def may_have(self, key: str) -> bool:
        """Whether records that are not indexed may concern a thing or name that is at their end."""
        ...

    def seq_at(self, ms: int) -> int:
        """The last record at a time or before."""
        ...

    def uids_of(self, name: str) -> list[str]:
        """The pods of a name or family, the oldest first."""
        ...

    def newest(self, number: int) -> StretchIndex | None:
        """The index of the last stretch but so many."""
        ...


class GoneNode(NamedTuple):
    """A node that went, as it was last seen."""

    ms: int
    node: NodeObserved


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
        past: Past,
        memo: "Memo",
        *,
        is_now: bool,
        silent_since_ms: int | None,
        idle: Sequence[Finding],
        first_ms: int,
        unread_seq: int,
        unlisted_seq: int,
        unread: str,
        gone_seq: int,
        gone: str,
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
        self._past = past
        self.memo = memo
        self.first_ms = first_ms
        """When the first record was written that can be read."""
        self.unread_seq = unread_seq
        """Up to this record no index says whom the log concerns."""
        self.unlisted_seq = unlisted_seq
        """Up to this record it cannot be listed; neither times nor marks are known of these."""
        self.unread = unread
        """Why not, "" if it was not asked or is under way."""
        self.missed_seq = 0
        """The last of the records that may say more about what was asked; 0: all is known."""
        self.is_needy = False
        """Whether the answer is of little use without them."""
        self.gone_seq = gone_seq
        """Up to this record the log cannot be read; no earlier moment can be shown."""
        self.gone = gone
        """Why, and what to do."""

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
        return self._past.records([seq for seq in seqs if seq <= self.seq])

    def seqs(self, kind: str, name: str, last: int = 0) -> Sequence[int]:
        """The records about a pod (by uid), a group (``<namespace>/<name>``) or a node; all, or at
        least the last so many.
        """
        found = self._past.about((kind, name), self.seq)
        if not last or len(found) < last:
            self._miss(key_of((kind, name)), is_needy=kind != NODE)
        return found

    def needs(self, seq: int) -> None:
        """Note that the answer is of little use without an index of the records from one on."""
        if seq <= self.unread_seq:
            self._misses(self.unread_seq, is_needy=True)

    def _miss(self, key: str, *, is_needy: bool) -> None:
        """Note that records about a thing or name are wanted, which may not be indexed."""
        if self.unread_seq and (self.seq <= self.unread_seq or self._past.may_have(key)):
            self._misses(self.unread_seq, is_needy=is_needy)

    def _misses(self, seq: int, *, is_needy: bool) -> None:
        self.missed_seq = max(self.missed_seq, seq)
        self.is_needy = self.is_needy or is_needy

    def seq_at(self, ms: int) -> int:
        """The last record at a time or before, up to the moment."""
        return min(self._past.seq_at(ms), self.seq)

    def states(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]:
        """These records, given in order, each with the state after it. The state is the caller's
        until the next one is asked for. Between records that are far apart nothing is folded where
        a checkpoint is nearer.
        """
        seqs = list(seqs)
        is_own = bool(seqs) and seqs[-1] == self.seq
        yield from self._past.states(seqs[:-1] if is_own else seqs)
        entry = self.entry(self.seq) if is_own else None
        if entry is not None:
            yield entry, self.state

    def folded(self, first_seq: int) -> Iterator[tuple[int, ClusterState]]:
        """The state after the record `first_seq`, and then after each record up to the moment, with
        its time. It is one state, which changes as the next one is asked for.
        """
        state = ClusterState()
        for _, found in self._past.states((first_seq,)):
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
        """The uids of the pods that had this name up to the moment, the oldest first. One that was
        gone before the index begins is there only if no later one is.
        """
        found = tuple(filter(self._is_seen, self._past.uids_of(f"{namespace}/{name}")))
        self._miss(f"{namespace}/{name}", is_needy=True)
        if not found:
            self.needs(1)
        return found

    def family(self, name: str) -> Iterator[str]:
        """The uids of the pods of a family (`family_of`) up to the moment, the oldest first; each
        is looked up as it is asked for.
        """
        self._miss(name, is_needy=False)
        return filter(self._is_seen, self._past.uids_of(name))

    def pods_seen(self) -> Iterator[tuple[str, Sequence[str]]]:
        """``<namespace>/<name>`` of pods up to the moment, also of those that are gone, with their
        uids; those of the newest records come first, and a name may come twice.
        """
        for number in range(STRETCHES_NAMED):
            found = self._past.newest(number)
            if found is None:
                self._misses(self.unlisted_seq, is_needy=self.seq <= self.unlisted_seq)
                return
            for name, uids in found.uids.items():
                if "//" in name:
                    continue
                seen = [uid for uid in uids if found.about[key_of((POD, uid))][0] <= self.seq]
                if seen:
                    yield name, seen

    def pod_names(self) -> Iterator[str]:
        """The names of `pods_seen`, each once."""
        seen = set()
        for name, _ in self.pods_seen():
            if name not in seen:
                seen.add(name)
                yield name

    def _is_seen(self, uid: str) -> bool:
        return bool(self._past.about((POD, uid), self.seq))

    def gone_since(self, ms: int) -> list[GoneNode]:
        """The nodes that went since a time, as they were last seen."""
        found = []
        for gone in self.index.gone_between(ms, self.seq):
            key = ("gone", gone.seq, gone.name, self.unread_seq)
            fact = self.memo.get(key, partial(self._last_seen, gone))
            if fact is not None:
                found.append(GoneNode(gone.ms, fact))
        return found

    def _last_seen(self, gone: Gone) -> NodeObserved | None:
        seqs = [seq for seq in self.seqs(NODE, gone.name) if seq <= gone.seq]
        for seq in reversed(seqs):
            for event in reversed([e for entry in self.records((seq,)) for e in entry.events]):
                if isinstance(event, NodeObserved) and event.name == gone.name:
                    return event
        return None

    def ms_of(self, seq: int) -> int | None:
        """When a record was written, None if the log has none there."""
        ms = self.index.ms_of(seq)
        entry = self.entry(seq) if ms is None else None
        return ms if entry is None else entry.time_ms

    def marks(self) -> Sequence[Mark]:
        """The marked records that are known up to the moment, in order."""
        marks = self.index.marks
        return marks[: bisect_right(marks, self.seq, key=lambda mark: mark.seq)]


class _Look:
    """A state for looking, and who may."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.lock = anyio.Lock()


class History:
    """Attach it to a fold before that runs (`attach`, `open`), and let `keep` run; then `moment`
    gives any moment. What `directory` has of the log is taken from there (without one all is in
    memory), where states take at most `bytes_max`.
    """

    def __init__(
        self,
        bytes_max: int,
        clock_ms: Callable[[], int],
        logger: Logger,
        directory: Path | None = None,
    ) -> None:
        self.bytes_max = bytes_max
        self.build_s = 0.0
        """How long it took to come to a moment, all in all, and how often that was asked."""
        self.builds = 0
        self.folded_records = 0
        """Records that were folded to come to a moment."""
        self.trouble = ""
        """Why the past cannot be read now, "" while it can."""
        self.silent_since_ms: Callable[[], int | None] = lambda: None
        """When the last news came from NATS, if that is too long ago: what is shown is of then."""
        self.active: Callable[[], Mapping[str, str]] = dict
        """The active replica of each scheduling service, "" for none; empty where not known."""
        self.memo = Memo()
        self.kept = KeptIndex()
        self._clock_ms = clock_ms
        self._logger = logger
        self._directory = directory
        self._whole = Index()
        """Of all records that `kept` has."""
        self._began_seq = 0
        """Where the snapshot stands that the fold started from."""
        self._later, self._later_about = Index(), StretchIndex()
        """Of the records after it, while `kept` has not come so far."""
        self._base_seq = 0
        self._copies = 0
        """How many segments that are in NATS were archived by then."""
        self._indexed_seq = 0
        """Up to here the archive says whom records concern."""
        self._first_ms = 0
        """When the record after it was written, 0 if that is not known."""
        self._near_seq = 1
        """The first record in NATS, when the archive was looked at last."""
        self._gone = ""
        """Why the records up to `_base_seq` cannot be read, and what to do."""
        self._is_away = False
        """Whether there is an archive that cannot be read now."""
        self._looked_s = 0.0
        self._wanted = anyio.Event()
        """Set when records that are not indexed are asked for."""
        self._backs = 0
        """How often that was tried."""
        self._unread = ""
        """Why it failed the last time."""
        self._states: SnapshotStore = SnapshotMemory()
        self._held: dict[int, bytes] = {}
        """States that are not in `_states` yet."""
        self._stones: OrderedDict[int, bytes] = OrderedDict()
        self._events_since = 0
        self._recent: deque[Record] = deque()
        self._recent_bytes = 0
        self._near, self._far = _Look(), _Look()
        self._asking = anyio.Lock()
        """`kept` takes one question at a time."""
        self._changed = anyio.Event()
        self._fold: Fold | None = None
        self._log: ReadableLog | None = None

    # Following

    def attach(self, fold: Fold, log: ReadableLog) -> None:
        """Take in every record that the fold takes from now on."""
        self._fold, self._log = fold, log
        self.kept = KeptIndex(self._directory, log.identity, self._whole)
        if self._directory is not None:
            self._states = SnapshotDirectory(
                self._directory, log_identity=log.identity, bytes_max=self.bytes_max
            )
        fold.restored.append(self._begin)
        fold.listeners.append(self._take)
        fold.passed_over.append(lambda record: self._take(record, None))

    async def open(self) -> None:
        """Find what an earlier run kept; a log that does not answer is asked again."""
        await self._until_done(self._open)

    async def _open(self) -> None:
        assert self._log is not None
        await self.kept.open(digests_of(self._log), await self._log.near_seq())
        await self._look_back()

    def idle(self) -> Sequence[Finding]:
        """The scheduling services that have no active replica now."""
        assert self._fold is not None
        return of_leases(self.active(), self._fold.state.policy.scheduler_names)

    async def _look_back(self) -> None:
        """Find where the log begins that can be read, with its archive."""
        assert self._log is not None
        self._looked_s = time.monotonic()
        self._near_seq = await self._log.near_seq()
        self._is_away = False
        try:
            first_seq = await self._log.first_seq()
        except AllotError as error:
            first_seq, self._is_away, self._gone = self._near_seq, True, str(error)
        else:
            gone = f"records 1 to {first_seq - 1} have left NATS, and no archive has them"
            self._gone = gone if first_seq > 1 else ""
        self._base_seq, self._first_ms = first_seq - 1, 0
        self._indexed_seq = 0
        with suppress(AllotError):
            self._indexed_seq = 0 if self._is_away else await self._log.indexed_seq()
        with suppress(AllotError):  # a file may be damaged, and others not
            first = await self._log.record(first_seq)
            self._first_ms = 0 if first is None else first.time_ns // 1_000_000
        async with self._asking:
            if self.kept.reach < self._base_seq:
                self.kept.begin_at(first_seq)
            await self.kept.forget(self._base_seq)

    @property
    def base_seq(self) -> int:
        """The last record that cannot be read any longer, 0 if all can."""
        return self._base_seq

    @property
    def unread_seq(self) -> int:
        """Up to this record, of those that can be read, no index says whom they concern."""
        return self.unlisted_seq if self.unlisted_seq > self._indexed_seq else 0

    @property
    def unlisted_seq(self) -> int:
        """Up to this record no index is here, so that names in it can be looked up, not listed."""
        if not self.is_filled:
            return self._began_seq
        return self.kept.base if self.kept.base > self._base_seq else 0

    @property
    def head_seq(self) -> int:
        """The last record that took effect."""
        return self._fold.state.seq if self._fold is not None else 0

    @property
    def is_filled(self) -> bool:
        """Whether all that was before a snapshot is known."""
        return self.kept.reach >= self.head_seq

    @property
    def index(self) -> Index:
        """What is short of every record: of all of them, or of those since the snapshot."""
        return self._whole if self.is_filled else self._later

    @property
    def recent_bytes(self) -> int:
        return self._recent_bytes

    async def changed(self) -> None:
        """Wait until a record took effect."""
        await self._changed.wait()

    def _begin(self, seq: int, image: bytes) -> None:
        """The fold starts from a snapshot: perhaps not all of what was before is known yet."""
        assert self._fold is not None
        self._began_seq = seq
        self._later = Index(seq + 1)
        self._held[seq] = image
        opened = self._fold.state.segments.open
        begin = seq if opened.closing == seq else opened.first_seq - 1
        if begin - self.kept.reach > (FAR_RECORDS if self.kept.end > self.kept.base else 0):
            self.kept.begin_at(begin + 1)
        if self.kept.base == seq:
            self._whole.begin_with(_facts(self._fold.state))

    def _take(self, record: Record, envelope: Envelope | None) -> None:
        self.kept.take(record, envelope)
        if not self.is_filled:
            self._later.take(record, envelope)
            for event in envelope.events if envelope is not None else ():
                self._later_about.note(event, record.seq)
        self._recent.append(record)
        self._recent_bytes += len(record.payload)
        while self._recent_bytes > RECENT_BYTES or len(self._recent) > RECENT_RECORDS:
            self._recent_bytes -= len(self._recent.popleft().payload)
        assert self._fold is not None
        self._events_since += 1 if envelope is None else len(envelope.events)
        if self._events_since >= _apart(self._fold.state):
            self._events_since = 0
            self._hold(self._fold.state)
        self._tell()

    def _tell(self) -> None:
        turn, self._changed = self._changed, anyio.Event()
        turn.set()

    async def keep(self) -> None:
        """Read what was before the snapshot that the fold started from, as far as it is not known,
        and write what is learned; for ever. A log that does not answer is asked again.
        """
        while True:
            turn = self._changed
            await self._until_done(self._keep)
            await turn.wait()

    async def fill(self) -> None:
        """Wait until all is known, and a state is at the end of the log; `keep` must be running."""
        assert self._fold is not None
        await self._fold.caught_up.wait()
        await self._until_done(self._look_at_the_end)
        while not self.is_filled:
            await self.changed()

    async def close(self) -> None:
        """Write what was learned, if it is worth it. Raises LogUnavailable."""
        await self._write(WORTH_RECORDS)

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except (LogUnavailable, AllotError) as error:
                self._logger.warning("the past is not read now", reason=str(error))
                self.trouble = f"the past of the log is not read now: {error}"
                self._near_seq = 0  # what there is may have changed
                await anyio.sleep(AGAIN_S)
            else:
                self.trouble = ""
                return

    async def _look_at_the_end(self) -> None:
        async with self.moment(None):
            pass  # so that the first who looks need not wait for it

    async def _keep(self) -> None:
        assert self._log is not None
        assert self._fold is not None
        segments = self._fold.state.segments
        copies = sum(one.archived is not None for one in segments.live)
        is_news = segments.dropped_seq >= self._near_seq or copies != self._copies
        if is_news or self._is_time_to_look():
            self._copies = copies
            await self._look_back()
        while not self.is_filled:
            async with aclosing(self._log.read(self.kept.reach + 1, self.head_seq)) as batches:
                async for batch in batches:
                    async with self._asking:
                        if batch[0].seq > self.kept.reach + 1:
                            break  # what is before it has left the log: see `_look_back`
                        for record in batch:
                            self.kept.take(record, envelope_of(record))
                    await self._write(STRETCH_RECORDS)
            if self.is_filled:
                self._later, self._later_about = Index(), StretchIndex()
                self._tell()
        await self._write(STRETCH_RECORDS)

    async def _write(self, records: int) -> None:
        """Write what waits for it: states, and the index of so many records or more."""
        assert self._log is not None
        if self.kept.is_due(records):
            async with self._asking:
                await self.kept.write()
        while self._held:
            seq, image = next(iter(self._held.items()))
            packed = await anyio.to_thread.run_sync(zlib.compress, image, _LEVEL)
            try:
                await self._states.save(seq, packed, await digests_of(self._log)(seq))
            except (AllotError, OSError) as error:
                self._logger.warning("a state of the past is not kept", reason=str(error))
            del self._held[seq]

    # Looking

    async def seq_at(self, ms: int) -> int:
        """The last record at a time or before. Raises LogUnavailable, AllotError."""
        seq = self.index.seq_at(ms)
        if seq < self.index.first_seq and self._log is not None:
            seq = await self._log.seq_before((ms + 1) * 1_000_000)
        return min(seq, self.head_seq)

    def ask_back(self) -> None:
        """Have the newest segment indexed that is not; see `read_back`."""
        self._wanted.set()

    async def read_back(self) -> None:
        """Index older segments as they are asked for, one each time; for ever."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            try:
                await self._index_back()
            except (LogUnavailable, AllotError, OSError) as error:
                self._logger.warning("older records are not read", reason=str(error))
                self._unread = str(error)
            else:
                self._unread = ""
            self._backs += 1
            self._tell()

    async def asked_back(self, within_s: float) -> None:
        """Ask for older records, and wait until a segment of them is indexed, or so long."""
        before = self._backs
        self.ask_back()
        with anyio.move_on_after(within_s):
            while self._backs == before:
                await self.changed()

    async def _index_back(self) -> None:
        """Index the segment before the oldest record that is indexed. Raises AllotError for an
        archive that cannot be read, or holds other records than the log names; OSError if the disk
        is full.
        """
        while not self.is_filled:
            await self.changed()
        log, last = self._log, self.kept.base
        assert log is not None
        if last <= self._base_seq:
            return
        due = await self._chain_at_base()
        begin = await log.checkpoint(last)
        before = await anyio.to_thread.run_sync(_before, begin)
        del begin  # it may be large
        first = max(before.seq, self._base_seq) + 1
        notes = Index()
        older = KeptIndex(self._directory, log.identity, notes)
        older.begin_at(first)
        if before.seq == first - 1:
            older.begin_among(before.keys)
            notes.begin_with(before.nodes)
        head = bytes.fromhex(before.chain)
        async with aclosing(log.read(first, last)) as batches:
            async for batch in batches:
                head = await anyio.to_thread.run_sync(_index, older, batch, head)
                if older.is_due(STRETCH_RECORDS):
                    await older.write()
        if older.reach != last:
            raise LogUnavailable(f"record {older.reach + 1} has left the log meanwhile")
        if due and before.seq == first - 1 and head.hex() != due:
            raise AllotError(
                f"records {first} to {last} are not those of this log: their chain ends at"
                f" {head.hex()}, and the log names {due}",
                "find the first that is altered: allot log verify",
            )
        if older.is_due(1):
            await older.write()
        async with self._asking:
            self.kept.precede(older)
            self._whole.precede(notes)

    async def _chain_at_base(self) -> str:
        """The chain's head that the log names where the index begins, "" if it names none there;
        then `kept` knows what existed there.
        """
        assert self._log is not None
        found = await self._log.checkpoint(self.kept.base + 1)
        if found is None or found.closed.last_seq != self.kept.base:
            return ""
        if not self.kept.knows_before:
            self.kept.begin_among((await anyio.to_thread.run_sync(_before, found)).keys)
        return found.closed.chain

    @asynccontextmanager
    async def moment(self, seq: int | None) -> AsyncIterator[Moment]:
        """The moment after the record `seq` (None: the newest), for as long as the block lasts.

        A sequence beyond the end of the log counts as its end. Raises LogUnavailable when what is
        needed cannot be read, AllotError when it is in an archive that cannot.
        """
        is_now = seq is None
        if seq is not None and seq <= self.base_seq and self._is_time_to_look():
            await self._look_back()  # the archive may be there again
        wanted = self.head_seq if seq is None else max(min(seq, self.head_seq), self.base_seq)
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
                found = await self.entries((wanted, wanted + 1))
                time_ms = found[0].time_ms if found else 0
            silent_ms = self.silent_since_ms() if is_now else None
            yield Moment(
                look.state,
                self.head_seq,
                time_ms,
                max(silent_ms or self._clock_ms(), time_ms) if is_now else time_ms,
                self.index,
                _Asked(self),
                self.memo,
                is_now=is_now,
                silent_since_ms=silent_ms,
                idle=self.idle() if is_now and silent_ms is None else (),
                first_ms=self._first_ms or next(iter(self.index.times_ms), time_ms),
                unread_seq=self.unread_seq,
                unlisted_seq=self.unlisted_seq,
                unread=self._unread,
                gone_seq=self.base_seq,
                gone=self._gone,
            )

    def _is_time_to_look(self) -> bool:
        return self._is_away and time.monotonic() - self._looked_s > LOOK_AGAIN_S

    async def _bring(self, look: _Look, seq: int) -> None:
        """Bring a state to a sequence: from where it is, from one that is kept, or from nothing."""
        if look.state.seq > seq:
            look.state = ClusterState()
        look.state = await self.nearer(look.state.seq, seq) or look.state
        is_far = self.index.events_between(look.state.seq, seq) >= self._near_events()
        stone = seq - STONE_BEHIND if is_far else 0
        events = 0
        for first, last in _chunks(look.state.seq + 1, seq):
            records = await self.read(first, last)
            if records and records[0].seq != first:
                raise LogUnavailable(f"record {first} has left the log meanwhile; ask again")
            self.folded_records += len(records)
            events = await anyio.to_thread.run_sync(
                self._advance, look.state, records, stone, events
            )
        if events:
            self._tell()  # a state may wait to be kept

    async def nearer(self, at_seq: int, seq: int) -> ClusterState | None:
        """The last kept state up to a sequence; None if to fold on from `at_seq` is faster."""
        # What follows a state before `floor` cannot be read, or is in the archive alone.
        floor = max(self._near_seq - 1 if seq >= self._near_seq else 0, self.base_seq)
        is_cut = at_seq < floor
        held = (each for each in (*self._held, *self._stones) if each <= seq)
        stands = max(max(held, default=0), await self._states.newest(seq))
        state, events = None, self.index.events_between(at_seq, stands)
        if stands > max(at_seq, self.base_seq) and (is_cut or events >= self._near_events()):
            state = await self._kept_state(stands, seq)
        reached = at_seq if state is None or state.seq <= at_seq else state.seq
        is_cut = reached < floor
        if is_cut or self.index.events_between(reached, seq) >= self._far_events():
            assert self._log is not None
            found = await self._log.checkpoint(seq + 1)
            if found is not None and found.closed.last_seq >= max(reached + 1, self.base_seq):
                return await anyio.to_thread.run_sync(snapshot.decode, found.image)
            if reached < self.base_seq:
                raise LogUnavailable(f"there is no state from which record {seq} can be reached")
        return state if reached > at_seq else None

    async def _kept_state(self, stands: int, seq: int) -> ClusterState | None:
        """The state that is kept at a sequence, or the last sound one up to another."""
        image, packed = self._held.get(stands), self._stones.get(stands)
        if image is None and packed is None:
            assert self._log is not None
            found = await self._states.load(self.head_seq, digests_of(self._log), seq)
            if found is None:
                return None
            packed = found[1]
        return await anyio.to_thread.run_sync(_state_of, image, packed or b"")

    def _far_events(self) -> int:
        """So many events take longer to fold than a checkpoint of the log to be read."""
        return _apart(self._fold.state) if self._fold is not None else STATE_EVENTS

    def _near_events(self) -> int:
        """So many events are folded as fast as a state is unpacked."""
        pods = len(self._fold.state.pods) if self._fold is not None else 0
        return max(NEAR_EVENTS, pods)

    def _advance(
        self, state: ClusterState, records: Sequence[Record], stone: int, events: int
    ) -> int:
        """Fold records onto a state, which is kept at `stone` and every so many events. The events
        since then, of which there were `events` before.
        """
        for record in records:
            envelope = _apply(state, record)
            events += 1 if envelope is None else len(envelope.events)
            if events >= _apart(state):
                events = 0
                self._hold(state)
            elif record.seq == stone and (image := _image(state)):
                self._stones[stone] = zlib.compress(image, _LEVEL)
                while len(self._stones) > STEPPING_STONES:
                    self._stones.popitem(last=False)
        return events

    def _hold(self, state: ClusterState) -> None:
        image = _image(state)
        if image:
            self._held[state.seq] = image

    # Records

    async def about(self, thing: Thing, seq: int) -> list[int]:
        """The records about something, up to one."""
        key = key_of(thing)
        archived = (await self._archived(key, seq)).about.get(key, ())
        async with self._asking:
            known = (await self.kept.about((thing,), seq))[thing]
        found = sorted({*archived, *known})
        if not self.is_filled:
            found += [
                each for each in self._later_about.about.get(key_of(thing), ()) if each <= seq
            ]
        return [each for each in found if each <= seq]

    async def uids_of(self, name: str) -> list[str]:
        """The pods of a name or family, the oldest first."""
        archived = (await self._archived(name, self.head_seq)).uids.get(name, ())
        async with self._asking:
            found = await self.kept.uids_of(name)
        later = self._later_about.uids.get(name, ())
        return list(dict.fromkeys((*archived, *found, *later)))

    async def _archived(self, key: str, seq: int) -> StretchIndex:
        """What the archive says under a key of the records before those that are indexed here."""
        last_seq = min(self._indexed_seq, self.kept.base, seq)
        if last_seq <= self._base_seq:
            return StretchIndex()
        assert self._log is not None
        try:
            return await self._log.index_of([key], last_seq)
        except AllotError as error:  # the records are there, as long as nothing else is said
            self._logger.warning("the index in the archive is not read", reason=str(error))
            self._indexed_seq = 0
            return StretchIndex()

    async def newest(self, number: int) -> StretchIndex | None:
        """A copy of the index of the last stretch but so many, the first is that in memory."""
        async with self._asking:
            found = await self.kept.newest(number)
        if number or found is None:
            return found
        copy = StretchIndex()
        for each in (found, self._later_about):
            copy.add(each)
        return copy

    async def entries(self, seqs: Iterable[int]) -> tuple[Entry, ...]:
        """Records, read; of more than `ENTRIES_MAX` the last. Raises LogUnavailable."""
        wanted = sorted({seq for seq in seqs if 1 <= seq <= self.head_seq})[-ENTRIES_MAX:]
        found: list[Record] = []
        for first, last in _runs(wanted):
            found += await self.read(first, last)
        asked = set(wanted)
        return tuple(entry_of(record) for record in found if record.seq in asked)

    async def read(self, first: int, last: int) -> list[Record]:
        """The records from one sequence to another, as far as the log has them: the last ones from
        memory.
        """
        first = max(first, self.base_seq + 1)
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
                return [*found, *await self.read(start, last)]
            found += [recent[seq - recent[0].seq] for seq in range(start, last + 1)]
        return found


class _Before(NamedTuple):
    """What existed at the end of a segment, and the chain's head there."""

    seq: int
    chain: str
    keys: Sequence[str]
    """Of things, and names of pods, as in `StretchIndex`."""
    nodes: Sequence[NodeObserved]


def _before(found: Checkpoint | None) -> _Before:
    """What a checkpoint says; None: that before the first record of all."""
    if found is None:
        return _Before(0, chain.START.hex(), (), ())
    state, keys = snapshot.decode(found.image), list[str]()
    for pod in state.pods.values():
        fact = pod.fact
        keys += (key_of((POD, fact.uid)), f"{fact.namespace}/{fact.name}", family_of(fact))
    keys += (key_of((GROUP, group)) for group in state.groups)
    keys += (key_of((NODE, node)) for node in state.nodes)
    return _Before(found.closed.last_seq, found.closed.chain, keys, _facts(state))


def _facts(state: ClusterState) -> list[NodeObserved]:
    return [node.fact for node in state.nodes.values() if node.fact is not None]


def _index(index: KeptIndex, batch: Sequence[Record], head: bytes) -> bytes:
    """Index some records; the chain's head after them, by the one before."""
    for record in batch:
        head = chain.linked(head, record)
        index.take(record, envelope_of(record))
    return head


def entry_of(record: Record) -> Entry:
    """A record, read."""
    ms = record.time_ns // 1_000_000
    try:
        envelope = decode_envelope(record.payload, record.subject)
    except UndecodableError as error:
        return Entry(record.seq, ms, record.subject, "", (), record.payload, error.reason)
    return Entry(record.seq, ms, record.subject, envelope.by, envelope.events, record.payload)


class _Asked:
    """See `Past`."""

    def __init__(self, history: History) -> None:
        self._history = history

    def records(self, seqs: Sequence[int]) -> tuple[Entry, ...]:
        return anyio.from_thread.run(self._history.entries, seqs)

    def states(self, seqs: Sequence[int]) -> Iterator[tuple[Entry, ClusterState]]:
        history, state = self._history, ClusterState()
        for seq in seqs:
            if not history.base_seq < seq <= history.head_seq:
                continue
            state = anyio.from_thread.run(history.nearer, state.seq, seq) or state
            first = min(state.seq + 1, seq)  # right at a kept state the record itself is wanted
            records: list[Record] = []
            for chunk in _chunks(first, seq):
                records = anyio.from_thread.run(history.read, *chunk)
                for record in records:
                    if record.seq > state.seq:
                        _apply(state, record)
            if records and records[-1].seq == seq:
                yield entry_of(records[-1]), state

    def about(self, thing: Thing, seq: int) -> list[int]:
        return anyio.from_thread.run(self._history.about, thing, seq)

    def may_have(self, key: str) -> bool:
        return self._history.kept.began_before(key)

    def seq_at(self, ms: int) -> int:
        return anyio.from_thread.run(self._history.seq_at, ms)

    def uids_of(self, name: str) -> list[str]:
        return anyio.from_thread.run(self._history.uids_of, name)

    def newest(self, number: int) -> StretchIndex | None:
        return anyio.from_thread.run(self._history.newest, number)


def _apply(state: ClusterState, record: Record) -> Envelope | None:
    """Let a record take effect as every service does; None if it is unreadable."""
    is_decision = record.subject == subjects.DECISION
    envelope = envelope_of(record)
    if envelope is None:
        pass_over(state, record.seq, is_decision=is_decision)
    else:
        apply_record(state, envelope.events, record.seq, is_decision=is_decision)
    return envelope


def _apart(state: ClusterState) -> int:
    """How many events there are between two kept states."""
    return max(STATE_EVENTS, 2 * len(state.pods))


def _image(state: ClusterState) -> bytes:
    """The state, encoded; b"" if it holds a number that no snapshot can hold."""
    try:
        return snapshot.encode(state)
    except OverflowError:
        return b""


def _state_of(image: bytes | None, packed: bytes) -> ClusterState:
    return snapshot.decode(zlib.decompress(packed) if image is None else image)


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
