"""Read the log from its beginning to a moment, and fold it: every answer starts here."""

from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from allotment.core.figures import rfc3339
from allotment.core.logport import Record
from allotment.core.state import ClusterState, apply_all, pass_over
from allotment_cli import moments
from allotment_cli.errors import CliError
from allotment_cli.moments import At, AtSequence
from allotment_cli.output import note
from allotment_cli.source import Source
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Envelope

Observer = Callable[[Record, Envelope, ClusterState], None]
"""Called with every record after it took effect."""


class Unreadable(msgspec.Struct, frozen=True):
    """A record that was passed over, and why."""

    seq: int
    subject: str
    reason: str


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


async def fold_at(source: Source, text: str | None, observer: Observer | None = None) -> Folded:
    """Fold to the moment that `--at` names, or to the newest record; says on stderr where it is.

    Raises `CliError` for a moment that is none, or beyond the end of the log.
    """
    now_ms = source.now_ms()
    at = None if text is None else moments.parse(text, now_ms)
    folded = await fold(source, at, observer)
    if at is None:
        folded = folded._replace(time_ms=max(now_ms, folded.time_ms))
    else:
        note(f"as of {rfc3339(folded.time_ms)}, seq {folded.seq}")
    return folded


async def fold(source: Source, at: At | None, observer: Observer | None = None) -> Folded:
    """Fold from the first record to a moment (None: the newest record)."""
    last_seq = await source.last_seq()
    until_ns: int | None = None
    if isinstance(at, AtSequence):
        if at.seq > last_seq:
            raise CliError(f"sequence {at.seq} is not in the log yet", f"the last is {last_seq}")
        last_seq = at.seq
    elif at is not None:
        until_ns = (at.ms + 1) * 1_000_000
    state = ClusterState()
    unreadable: list[Unreadable] = []
    time_ms = 0
    async with aclosing(source.read(1, last_seq)) as batches:
        async for batch in batches:
            for record in batch:
                if until_ns is not None and record.time_ns >= until_ns:
                    return Folded(state, state.seq, until_ns // 1_000_000 - 1, tuple(unreadable))
                time_ms = record.time_ns // 1_000_000
                envelope = take(state, record, unreadable)
                if observer is not None and envelope is not None:
                    observer(record, envelope, state)
    return Folded(state, state.seq, time_ms, tuple(unreadable))


def take(
    state: ClusterState, record: Record, unreadable: list[Unreadable] | None = None
) -> Envelope | None:
    """Let one record take effect; one that cannot be read changes nothing and is noted."""
    is_decision = record.subject == subjects.DECISION
    try:
        envelope = decode_envelope(record.payload)
    except UndecodableError as error:
        pass_over(state, record.seq, is_decision=is_decision)
        if unreadable is not None:
            unreadable.append(Unreadable(record.seq, record.subject, error.reason))
        return None
    apply_all(state, envelope.events, record.seq, is_decision=is_decision)
    return envelope
