"""A log, decided again by both readings of the rules."""

from collections.abc import Callable, Sequence

import pytest

import allotment_board
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment.core.replay.replay import Index, Replayer, Report
from allotment_board import NodeRanker


def verify(records: Sequence[Record], first: int = 1, last: int | None = None) -> Report:
    """Every decision made again by the board, wherever it knows the policy, and by the plain rules:
    both must find the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allotment_board, "NODES_MIN", 0)
        report = replayed(records, first, last)
    assert replayed(records, first, last, Evaluator) == report
    return report


def replayed(
    records: Sequence[Record],
    first: int = 1,
    last: int | None = None,
    make_ranker: Callable[[ClusterState], Ranker] = NodeRanker,
) -> Report:
    """Every decision made again by one of them."""
    index = Index(first, last)
    for record in records:
        index.feed(record)
    replayer = Replayer(index.stops, make_ranker)
    for record in records if last is None else records[:last]:
        replayer.feed(record)
    return replayer.report()


def assert_replays(records: Sequence[Record]) -> int:
    """Every decision comes out as it was recorded, by both; how many there are."""
    report = verify(records)
    assert report.first_difference is None
    assert report.decisions == report.identical
    return report.decisions
