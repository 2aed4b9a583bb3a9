"""How many plugins' answers become one."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from allotment.core.queues import votes
from allotment.core.queues.answers import ABSTAIN, PERMIT, No, Vote
from allotment.core.queues.model import Phase
from allotment.core.queues.plugins.base import Plugin
from allotment.core.queues.work import Job
from tests.unit.queues_parts import amounts, job, plugin, queue, session, tasks

REJECT = No("Because", "because")


class Says(Plugin):
    """A plugin that always gives the same answer."""

    name: ClassVar[str] = "says"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def job_enqueueable(self, job: Job) -> Vote | No:
        assert isinstance(self.answer, Vote | No)
        return self.answer


def outcome(*tiers: Sequence[Any]) -> No | None:
    asked = [[Says(answer) for answer in tier] for tier in tiers]
    return votes.poll(asked, lambda one: one.job_enqueueable(Job(job("j"))))


@pytest.mark.parametrize(
    ("tiers", "yes"),
    [
        ([[PERMIT], [REJECT]], True),
        ([[PERMIT, REJECT]], False),
        ([[REJECT, PERMIT]], False),
        ([[ABSTAIN], [REJECT]], False),
        ([[ABSTAIN], [ABSTAIN]], True),
        ([[REJECT], [PERMIT]], False),
        ([[ABSTAIN, PERMIT], [REJECT]], True),
        ([[], [REJECT]], False),
        ([], True),
    ],
)
def test_ex_vote(tiers: Sequence[Sequence[Any]], yes: bool) -> None:
    assert (outcome(*tiers) is None) == yes


@pytest.mark.parametrize(
    ("tiers", "let_in"),
    [
        ([["overcommit"], ["capacity"]], True),
        ([["overcommit", "capacity"]], False),
        ([["capacity"], ["overcommit"]], False),
    ],
)
def test_ex_vote_with_the_real_plugins(tiers: Any, let_in: bool) -> None:
    """The queue's quota is 1 card and the group asks for 2; the cluster has plenty."""
    asks = job("j", (), phase=Phase.PENDING, min_resources=amounts(2))
    found = session(asks, queues=[queue(capability=amounts(1))], tiers=tiers, total=amounts(9))
    assert (found.job_enqueueable(found.jobs["j"]) is None) == let_in


def test_switched_off_votes_hide_nothing() -> None:
    asks = job("j", (), phase=Phase.PENDING, min_resources=amounts(2))
    silent = plugin("overcommit", {"enableJobEnqueued": False})
    found = session(
        asks,
        queues=[queue(capability=amounts(1))],
        tiers=[[silent], ["capacity"]],
        total=amounts(9),
    )
    assert found.job_enqueueable(found.jobs["j"]) is not None


class Names(Plugin):
    name: ClassVar[str] = "names"

    def __init__(self, uids: str | None) -> None:
        self.uids = uids

    def preemptable(self, taker: Any, candidates: Any) -> Any:
        return (
            None if self.uids is None else [one for one in candidates if one.uid[-1] in self.uids]
        )


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([["01", "12"]], "1"),
        ([["01", None]], "01"),
        ([["0", "1"], ["2"]], "2"),
        ([["0"], ["012"]], "0"),
        ([["", "012"], [None], ["12"]], "12"),
        ([[None]], ""),
        ([], ""),
    ],
)
def test_victims_intersect_in_a_tier(tiers: Any, expected: str) -> None:
    members = tasks("j", 3)
    found = votes.victims(
        [[Names(uids) for uids in tier] for tier in tiers],
        lambda one: one.preemptable(members[0], members),
    )
    assert "".join(one.uid[-1] for one in found) == expected
