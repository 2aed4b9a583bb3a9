"""What another policy would have made of the pods of a log."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from allotment.adapters.service.moments import At
from allotment.answers.folding import end_of, reading
from allotment.answers.source import Source
from allotment.core.logport import Record
from allotment_lab.simulate.inputs import recorded
from allotment_lab.simulate.policies import as_recorded, choose
from allotment_lab.simulate.report import RunReport
from allotment_lab.simulate.run import Plan, check_history, draw
from allotment_lab.simulate.run import simulate as run
from allotment_proto.facts import Policy


async def simulate(
    source: Source, words: Sequence[str] = (), at: At | None = None, *, seed: int = 42
) -> list[RunReport]:
    """Schedule the pods of a log up to a moment (None: now) on its nodes in virtual time, under the
    policies that `words` name (none: the log's own): a report for each.

    Raises `AllotError` for a word that names no policy, for a log without cards, and if the log's
    own policy does not reproduce the log, so that others cannot be compared.
    """
    given = recorded([record async for record in _until(source, at)], "the log")
    chosen = choose(words, given.recorded, source.screen.note)
    plan = Plan(given, inflate=None, churn=True)
    drawn = draw(plan, seed)
    own = as_recorded(given.recorded or Policy())
    if given.placed_then and chosen != [own]:
        history = run(plan, drawn, own, seed, _unseen, None).report
        check_history(given.placed_then, history.placed, compares=True)
    return [run(plan, drawn, each, seed, _unseen, None).report for each in chosen]


async def _until(source: Source, at: At | None) -> AsyncIterator[Record]:
    end = await end_of(source, at)
    async with aclosing(reading(source, 1, end.last_seq)) as batches:
        async for batch in batches:
            for record in batch:
                if end.until_ns is not None and record.time_ns >= end.until_ns:
                    return
                yield record


def _unseen(pods: int) -> None:
    """The progress of a run."""
