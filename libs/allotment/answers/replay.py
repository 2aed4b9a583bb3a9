"""Every decision of a log made again, and compared bit for bit."""

from contextlib import aclosing
from functools import partial

import msgspec

from allotment.adapters.service.moments import At, AtSequence
from allotment.answers import moments
from allotment.answers.folding import reading
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment.core.replay.replay import Index, Replayer, Report
from allotment_board import NodeRanker

COMPILED_DECISIONS_MIN = 10_000
"""With fewer decisions to recompute, compiled loops take longer to load than they save."""


class ReplayDocument(msgspec.Struct, frozen=True):
    """The report and the range it covers, as JSON."""

    from_seq: int
    to_seq: int
    verified: bool
    report: Report


async def replayed(
    source: Source,
    first: str | At | None = None,
    last: str | At | None = None,
    *,
    verify: bool = True,
    plain: bool = False,
) -> ReplayDocument:
    """Fold the log, and with `verify` make its decisions between two moments again and compare;
    `plain` by the plain rules, not by the board. Raises `AllotError` for a moment that is none or
    not in the log.

    Two readings of the log: where decisions look back to, then everything.
    """
    last_seq = await source.last_seq()
    from_seq = 1 if first is None else await _sequence(source, first, "--from", after=True)
    to_seq = last_seq if last is None else await _sequence(source, last, "--to", after=False)
    if from_seq > last_seq + 1 or to_seq > last_seq:
        raise AllotError(f"the log ends at {last_seq}", "give --from and --to within it")
    if from_seq > to_seq and first is not None and last is not None:
        raise AllotError(
            f"--from is seq {from_seq} and --to is seq {to_seq}: nothing lies between",
            "give --from before --to",
        )
    begins, begun = await source.first_seq(), None
    if begins > 1 and (checkpoint := await source.checkpoint(begins)) is not None:
        begun = snapshot.decode(checkpoint.image)
    index = Index(from_seq, to_seq, begun)
    if verify:
        async with aclosing(reading(source, begins, to_seq)) as batches:
            async for batch in batches:
                for record in batch:
                    index.feed(record)
    replayer = Replayer(index.stops, partial(_ranker, plain, len(index.stops)), begun)
    async with aclosing(reading(source, begins, to_seq)) as batches:
        async for batch in batches:
            for record in batch:
                replayer.feed(record)
    return ReplayDocument(from_seq, to_seq, verify, replayer.report())


def _ranker(plain: bool, decisions: int, state: ClusterState) -> Ranker:
    if plain:
        return Evaluator(state)
    # Without compiled loops the answers are the same, and slower.
    return NodeRanker(state, _ignore if decisions >= COMPILED_DECISIONS_MIN else None)


def _ignore(reason: str) -> None:
    """That loops could not be compiled."""


async def _sequence(source: Source, moment: str | At, option: str, *, after: bool) -> int:
    """The first sequence at or after a moment, or the last one at or before it."""
    at = moments.parse(moment, source.now_ms(), option)
    if isinstance(at, AtSequence):
        return at.seq
    seq = 0
    first_seq = await source.first_seq()
    async with aclosing(reading(source, first_seq, await source.last_seq())) as batches:
        async for batch in batches:
            for record in batch:
                if record.time_ns // 1_000_000 >= at.ms + (not after):
                    return record.seq if after else seq
                seq = record.seq
    return seq + 1 if after else seq
