"""Read the log up to a moment, and fold it: every answer starts here.

From its beginning, or from the nearest state that an earlier command kept in the user's cache; both
end in the same state. A question that must see every record as it takes effect always starts at the
beginning.
"""

import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

import msgspec

from allotment.adapters.log.snapshots import SnapshotStore, digests_of
from allotment.adapters.service.heap import uncollected
from allotment.adapters.service.moments import At, AtSequence, AtTime, moment_text
from allotment.adapters.telemetry.log import one_line
from allotment.answers import moments
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.explain.doctor import Began, Finding, Moment, Open
from allotment.core.explain.rows.schema import OpenProblem
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import Record, digest_of
from allotment.core.units import rfc3339
from allotment_proto import subjects
from allotment_proto.codec import UNREADABLE, UndecodableError, decode_envelope
from allotment_proto.events import Envelope

APART_EVENTS = 50_000
"""At least so many events between two states that are kept, and twice as many as there are pods:
then keeping one costs less than the fold before it.
"""
LOOK_BACK_RECORDS = 100_000
"""How far back is searched for when a problem began."""
CHUNK_RECORDS = 2048
_LEVEL = 1

Observer = Callable[[Record, Envelope, ClusterState], None]
"""Called with every record after it took effect."""


class Unreadable(msgspec.Struct, frozen=True):
    """A record that was skipped, and why."""

    seq: int
    subject: str
    reason: str


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A fold in the cache: the state, and what of the records before it an answer needs."""

    time_ms: int
    latest_ms: int
    unreadable: tuple[Unreadable, ...]
    state: bytes


class Folded(NamedTuple):
    """The state at `seq`; `time_ms` is what "now" means there."""

    state: ClusterState
    seq: int
    time_ms: int
    unreadable: tuple[Unreadable, ...]


class AsOf(msgspec.Struct, frozen=True):
    """The moment of an answer, in every JSON document."""

    seq: int
    time: str


def as_of(folded: Folded) -> AsOf:
    return AsOf(folded.seq, rfc3339(folded.time_ms))


async def fold_at(source: Source, moment: str | At | None) -> Folded:
    """Fold to a moment, as text one that `--at` names, or to the newest record; says where it is.

    Raises `AllotError` for a moment that is none, or beyond the end of the log.
    """
    now_ms = source.now_ms()
    at = None if moment is None else moments.parse(moment, now_ms)
    folded = await fold(source, at)
    if at is None:
        folded = folded._replace(time_ms=max(now_ms, folded.time_ms))
    else:
        source.screen.note(f"as of {moment_text(folded.time_ms)}, seq {folded.seq}")
        if not folded.seq and await source.last_seq():
            source.screen.note("nothing was known then: the log begins later")
    return folded


async def fold(
    source: Source,
    at: At | None,
    observer: Observer | None = None,
    *,
    after: Folded | None = None,
) -> Folded:
    """Fold to a moment (None: the newest record); on from `after`, whose state is used up, if that
    is given and `is_after` says so of the two.
    """
    with uncollected():
        return await _fold(source, at, observer, after)


def is_after(one: At | None, other: At | None) -> bool:
    """Whether the fold to `other` has what the fold to `one` has, and perhaps more. Between a
    sequence and a time that is unknown until the log is read.
    """
    if other is None or isinstance(one, AtSequence) != isinstance(other, AtSequence):
        return other is None
    return one is not None and tuple(one) <= tuple(other)


async def _fold(
    source: Source,
    at: At | None,
    observer: Observer | None,
    after: Folded | None,
) -> Folded:
    last_seq, until_ns = await end_of(source, at)
    state, kept = ClusterState(), _Kept(0, 0, (), b"")
    if after is not None:
        state, kept = after.state, _Kept(after.time_ms, 0, after.unreadable, b"")
    if observer is None and source.snapshots is not None:
        beyond_seq = state.seq + (_apart(state) if state.seq else 0)
        found = await _restore(source, source.snapshots, last_seq, until_ns, beyond_seq)
        if found is not None:
            after, (state, kept) = None, found
    if observer is None or not state.seq:
        begun = await _begun(source, last_seq, until_ns, state.seq, whole=observer is not None)
        if begun is not None:
            after, (state, kept) = None, begun
    unreadable = list(kept.unreadable)
    time_ms, latest_ms, events = kept.time_ms, kept.latest_ms, 0
    async with aclosing(reading(source, state.seq + 1, last_seq)) as batches:
        async for batch in batches:
            for record in batch:
                if until_ns is not None and record.time_ns >= until_ns:
                    return Folded(state, state.seq, until_ns // 1_000_000 - 1, tuple(unreadable))
                time_ms = record.time_ns // 1_000_000
                latest_ms = max(latest_ms, time_ms)
                envelope = take(state, record, unreadable)
                if envelope is None:
                    continue
                events += len(envelope.events)
                if observer is not None:
                    observer(record, envelope, state)
                is_worth = events * (8 if record.seq == last_seq else 1) >= _apart(state)
                if is_worth and after is None:
                    folded = Folded(state, state.seq, time_ms, tuple(unreadable))
                    await _keep(source, folded, latest_ms, digest_of(record))
                    events = 0
    return Folded(state, state.seq, time_ms, tuple(unreadable))


def _apart(state: ClusterState) -> int:
    """How many events are folded between two states that are kept; at the end of a fold an eighth
    of them is worth it.
    """
    return max(APART_EVENTS, 2 * len(state.pods))


class End(NamedTuple):
    """The last record up to a moment: at most this one, and written before a time."""

    last_seq: int
    until_ns: int | None


async def end_of(source: Source, at: At | None) -> End:
    """Where the log ends at a moment (None: now). Raises `AllotError` for a sequence beyond it."""
    last_seq = await source.last_seq()
    if isinstance(at, AtSequence):
        if at.seq > last_seq:
            raise AllotError(f"sequence {at.seq} is not in the log yet", f"the last is {last_seq}")
        return End(at.seq, None)
    return End(last_seq, None if at is None else (at.ms + 1) * 1_000_000)


async def reading(source: Source, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
    """The records of a source, with a bar where they are many."""
    with source.screen.progress("reading the log", last_seq - first_seq + 1) as advance:
        async with aclosing(source.read(first_seq, last_seq)) as batches:
            async for batch in batches:
                yield batch
                advance(len(batch))


async def _begun(
    source: Source, last_seq: int, until_ns: int | None, beyond_seq: int, *, whole: bool
) -> tuple[ClusterState, _Kept] | None:
    """The state at the log's nearest checkpoint that is not beyond the moment; `whole`, at the one
    before the first record that can be read. None if none reaches well beyond a sequence.
    """
    if whole:
        first_seq = 1 if beyond_seq else await source.first_seq()
        found = None if first_seq == 1 else await source.checkpoint(first_seq)
    elif beyond_seq and last_seq - beyond_seq <= APART_EVENTS:
        return None
    else:
        try:
            found = await source.checkpoint(last_seq, until_ns)
        except AllotError:  # the records may be kept here; where they are not, reading says so
            return None
    if found is None or found.closed.last_seq <= beyond_seq:
        return None
    return snapshot.decode(found.image), _Kept(found.closed.at_ms, found.closed.at_ms, (), b"")


async def _restore(
    source: Source,
    snapshots: SnapshotStore,
    last_seq: int,
    until_ns: int | None,
    beyond_seq: int,
) -> tuple[ClusterState, _Kept] | None:
    """The nearest kept fold that is not beyond the moment; what cannot be used is skipped. None if
    none reaches beyond a sequence.
    """
    bounds = [last_seq]
    if until_ns is not None:
        bounds.append(min(last_seq, await source.kept.seq_before(until_ns // 1_000_000)))
    for bound in bounds:
        if await snapshots.newest(bound) <= beyond_seq:
            break
        try:
            found = await snapshots.load(bound, digests_of(source), bound)
            if found is None:
                break
            kept = msgspec.msgpack.decode(zlib.decompress(found[1]), type=_Kept)
            if until_ns is None or (kept.latest_ms + 1) * 1_000_000 <= until_ns:
                return snapshot.decode(kept.state), kept
        except AllotError:  # the record on which it stands is in an archive that is not there
            break
        except (*UNREADABLE, zlib.error, snapshot.SnapshotError) as error:
            source.screen.note(
                f"the cache of this log is from another release and is not used: {error}"
            )
            break
    return None


async def _keep(source: Source, folded: Folded, latest_ms: int, record: str) -> None:
    if source.snapshots is not None:
        await _save(source, source.snapshots, folded, _kept_of(folded, latest_ms), record)


def _kept_of(folded: Folded, latest_ms: int) -> _Kept:
    return _Kept(folded.time_ms, latest_ms, folded.unreadable, snapshot.encode(folded.state))


async def _save(
    source: Source, store: SnapshotStore, folded: Folded, kept: msgspec.Struct, record: str
) -> None:
    """For the next command. A cache: that it cannot be written is worth a word, no more."""
    try:
        packed = zlib.compress(msgspec.msgpack.encode(kept), _LEVEL)
        await store.save(folded.seq, packed, record)
    except OSError as error:
        source.screen.note(
            f"the cache of this log cannot be written; each command reads the log again: {error}"
        )


class _KeptWith(msgspec.Struct, frozen=True, array_like=True):
    """A fold, and what was found on the way to it."""

    kept: _Kept
    found: bytes


async def keep_with(
    source: Source, folded: Folded, latest_ms: int, name: str, found: bytes
) -> None:
    """Keep a fold, of which no record is later than `latest_ms`, with what was found on the way."""
    store = source.snapshots and source.snapshots.within(name)
    if store is not None:
        content = _KeptWith(_kept_of(folded, latest_ms), found)
        record = await digests_of(source)(folded.seq)
        await _save(source, store, folded, content, record)


async def kept_with(source: Source, at: AtTime, name: str) -> tuple[Folded, bytes] | None:
    """What `keep_with` kept under a name, if it is not beyond a moment."""
    store = source.snapshots and source.snapshots.within(name)
    read = await store.load(await source.last_seq(), digests_of(source)) if store else None
    if read is None:
        return None
    try:
        kept, found = msgspec.structs.astuple(
            msgspec.msgpack.decode(zlib.decompress(read[1]), type=_KeptWith)
        )
        if kept.latest_ms > at.ms:
            return None
        state = snapshot.decode(kept.state)
    except (*UNREADABLE, zlib.error, snapshot.SnapshotError):
        return None
    return Folded(state, state.seq, kept.time_ms, kept.unreadable), found


Dated = TypeVar("Dated", Finding, OpenProblem)


async def dated(source: Source, found: Sequence[Dated], last_seq: int) -> list[Dated]:
    """The problems at a record; those of nodes and their cards say since when, unless they began
    before the last `LOOK_BACK_RECORDS`.
    """
    open_of = {
        one: Open(one.subject.removeprefix("node "), one.code, one.place)
        for one in found
        if one.subject.startswith("node ") and not one.since
    }
    since = await _began(source, open_of.values(), last_seq)
    return [
        msgspec.structs.replace(one, seq=one.seq or at.seq, since=rfc3339(at.time_ms))
        if one in open_of and (at := since.get(open_of[one]))
        else one
        for one in found
    ]


async def _began(source: Source, problems: Iterable[Open], last_seq: int) -> dict[Open, Moment]:
    asked, end = Began(problems), last_seq
    first = max(0, last_seq - LOOK_BACK_RECORDS)
    while asked.sought and end > first:
        wanted = {subjects.node(name) for name in asked.sought}
        start = max(first, end - CHUNK_RECORDS) + 1
        try:
            async with aclosing(source.read(start, end)) as batches:
                found = [record async for batch in batches for record in batch]
        except AllotError:  # they are in an archive that is not there
            break
        for record in reversed([record for record in found if record.subject in wanted]):
            try:
                events = decode_envelope(record.payload, record.subject).events
            except UndecodableError:
                continue
            for event in reversed(events):
                asked.back(record.seq, record.time_ns // 1_000_000, event)
        end = start - 1
    return asked.known(is_whole=end == 0)


def take(
    state: ClusterState, record: Record, unreadable: list[Unreadable] | None = None
) -> Envelope | None:
    """Let one record take effect; one that cannot be read changes nothing and is noted."""
    is_decision = record.subject == subjects.DECISION
    try:
        envelope = decode_envelope(record.payload, record.subject)
    except UndecodableError as error:
        pass_over(state, record.seq, is_decision=is_decision)
        if unreadable is not None:
            unreadable.append(Unreadable(record.seq, record.subject, error.reason))
        return None
    for event, raised in apply_record(state, envelope.events, record.seq, is_decision=is_decision):
        if unreadable is not None:
            reason = f"{type(event).__name__} is skipped: {one_line(raised)}"
            unreadable.append(Unreadable(record.seq, record.subject, reason))
    return envelope
