"""What pods held, and for how long, added up while the log is folded."""

from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from allotment.adapters.service.moments import At, AtSequence, AtTime, moment_text
from allotment.answers import moments
from allotment.answers.folding import fold, keep_with, kept_with
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.replay.usage import NAMESPACE, Meter, Usage, name_of
from allotment.core.units import rfc3339

SCHEMA = "allotment.dev/usage/v1"
KEEP_AFTER_RECORDS = 5_000
"""After so many records what was added up since the log began is worth keeping."""


class UsageDocument(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts are integers times milliseconds, so that nothing is lost in sums."""

    schema: str
    from_time: str
    to_time: str
    from_ms: int
    to_ms: int
    seq: int
    by: str
    usage: tuple[Usage, ...]


async def measure(
    source: Source,
    first: str | At | None = None,
    last: str | At | None = None,
    by: str = NAMESPACE,
) -> UsageDocument:
    """What pods held between two moments, by default from where the log begins until now, added up
    `by` namespace, queue, node, model, or the value of a label (``label=KEY``).

    Raises `AllotError` for a moment that is none or not in the log, and if `last` is before
    `first`.
    """
    now_ms = source.now_ms()
    begin_ms = await _begin_ms(source)
    from_ms = begin_ms if first is None else await _ms(source, first, "--from")
    if from_ms < begin_ms:
        source.screen.note(f"the log begins at {moment_text(begin_ms)}")
    to_ms = now_ms if last is None else min(await _ms(source, last, "--to"), now_ms)
    if from_ms > to_ms:
        raise AllotError(
            f"--from is {moment_text(from_ms)} and --to is"
            f" {moment_text(to_ms)}: nothing lies between",
            "give --from before --to",
        )
    name = "" if first is not None else f"usage by {by}"
    known = await kept_with(source, AtTime(to_ms), name) if name else None
    before = await fold(source, AtTime(from_ms)) if known is None else known[0]
    meter = Meter(before.state, (from_ms, to_ms), name_of(by, before.state))
    if known is not None:
        meter.go_on(known[1])
    first_seq = before.seq
    folded = await fold(
        source,
        AtTime(to_ms),
        lambda record, envelope, state: meter.take(record.time_ns // 1_000_000),
        after=before,
    )
    if name and folded.seq - first_seq >= KEEP_AFTER_RECORDS:
        await keep_with(source, folded, to_ms, name, meter.image())
    return document_of(meter.found()[0], from_ms, to_ms, folded.seq, by)


def document_of(
    found: Sequence[Usage], from_ms: int, to_ms: int, seq: int, by: str
) -> UsageDocument:
    """What was used between two moments, of which the log has records up to `seq`."""
    times = rfc3339(from_ms), rfc3339(to_ms)
    return UsageDocument(SCHEMA, *times, from_ms, to_ms, seq, by, tuple(found))


async def _begin_ms(source: Source) -> int:
    """When the log begins; an empty one begins now."""
    if not await source.last_seq():
        return source.now_ms()
    return await _record_ms(source, await source.first_seq())


async def _ms(source: Source, moment: str | At, option: str) -> int:
    at = moments.parse(moment, source.now_ms(), option)
    if not isinstance(at, AtSequence):
        return at.ms
    last_seq = await source.last_seq()
    if not 1 <= at.seq <= last_seq:
        named = moment if isinstance(moment, str) else at.seq
        raise AllotError(
            f"{option} {named}: the log goes from 1 to {last_seq}", "give one of these"
        )
    return await _record_ms(source, at.seq)


async def _record_ms(source: Source, seq: int) -> int:
    async with aclosing(source.read(seq, seq)) as batches:
        async for batch in batches:
            return batch[0].time_ns // 1_000_000
    raise AllotError(f"the log has no record {seq}")
