"""Queues by weight (`proportion`) and by quota (`capacity`)."""

from fractions import Fraction
from typing import Any

import pytest

from allotment.core.queues.answers import PERMIT
from allotment.core.queues.model import Phase, QueueView, Status
from allotment.core.queues.plugins.capacity import Capacity
from allotment.core.queues.plugins.proportion import Claim, Proportion, fill, real_capability
from allotment.core.queues.resources import Resources, total_of
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from tests.unit.queues_parts import GPU, amounts, job, plugin, queue, session, statuses, task, tasks

TREE = plugin("capacity", {"enableHierarchy": True})


def wanting(name: str, pending: int, running: int = 0) -> Any:
    members = (*tasks(name, pending), *statuses(f"{name}-r", Running=running))
    return job(name, members, queue=name, min_member=1)


def due(found: Session) -> dict[str, Fraction]:
    plugin_ = found.plugin("proportion")
    assert isinstance(plugin_, Proportion)
    return {name: Fraction(d.amount(GPU)) / 1000 for name, d in plugin_.deserved.items()}


def by_weight(gpus: int, queues: list[QueueView], *jobs: Any) -> Session:
    return session(*jobs, queues=queues, tiers=[["proportion"]], total=amounts(gpus))


def test_ex_prop1() -> None:
    queues = [queue("a"), queue("b", weight=2)]
    assert due(by_weight(9, queues, wanting("a", 9), wanting("b", 2))) == {"a": 7, "b": 2}
    assert fill(9, [Claim(1, 9), Claim(2, 2)]) == [7, 2]


def test_ex_prop2() -> None:
    queues = [queue("a"), queue("b", weight=2)]
    assert due(by_weight(12, queues, wanting("a", 12), wanting("b", 12))) == {"a": 4, "b": 8}


def test_ex_prop3() -> None:
    queues = [
        queue("a", guarantee=amounts(6)),
        queue("b", weight=2, capability=amounts(6)),
    ]
    assert due(by_weight(12, queues, wanting("a", 12), wanting("b", 12))) == {"a": 6, "b": 6}


def test_a_fraction_of_a_card_is_none() -> None:
    queues = [queue(name) for name in "abc"]
    found = by_weight(11, queues, *(wanting(name, 11) for name in "abc"))
    assert due(found) == dict.fromkeys("abc", Fraction(11, 3))
    a = found.jobs["a"]
    for number in range(3):
        assert found.allocatable(a, a.view.tasks[number]) is None
        found.assume(a, a.view.tasks[number], Status.ALLOCATED)
    no = found.allocatable(a, a.view.tasks[3])
    assert no is not None
    assert no.message == f"queue resource quota insufficient: insufficient {GPU}"


def test_queues_without_jobs_take_no_part() -> None:
    queues = [queue("a"), queue("idle", weight=100)]
    assert due(by_weight(8, queues, wanting("a", 8))) == {"a": 8}


def test_filling_ends_when_resources_are_satisfied_one_by_one() -> None:
    cpu_only = job("c", [task("c", request=Resources({"cpu": 90_000}))], queue="c")
    queues = [queue("c"), queue("g", weight=99)]
    total = Resources({"cpu": 50_000, GPU: 8_000})
    found = session(cpu_only, wanting("g", 20), queues=queues, tiers=[["proportion"]], total=total)
    plugin_ = found.plugin("proportion")
    assert isinstance(plugin_, Proportion)
    assert plugin_.deserved["c"] == {"cpu": 50_000, GPU: 0}
    assert plugin_.deserved["g"] == {"cpu": 0, GPU: 8_000}


def test_zero_rules_of_shares_and_overused_in_every_dimension() -> None:
    found = by_weight(4, [queue("a"), queue("b")], wanting("a", 9, 2), wanting("b", 1, 2))
    assert found.overused("a") is not None, "a has the 2 that it deserves"
    assert found.overused("b") is not None
    found = session(
        job("a", [task("x", status=Status.RUNNING, request=amounts(2, cpu=1)), *tasks("a", 3)]),
        tiers=[["proportion"]],
        total=amounts(2, cpu=4),
    )
    assert found.overused("q") is not None
    more_cpu = task("y", request=amounts(0, cpu=1))
    found = session(
        job("a", [task("x", status=Status.RUNNING, request=amounts(2, cpu=1)), more_cpu]),
        tiers=[["proportion"]],
        total=amounts(2, cpu=4),
    )
    assert found.overused("q") is None, "one free dimension keeps it going"
    assert found.allocatable(found.jobs["a"], more_cpu) is None


def test_queue_order_is_priority_then_share() -> None:
    queues = [queue("a"), queue("b"), queue("late", priority=-1)]
    jobs = [wanting("a", 2, 2), wanting("b", 3, 1), wanting("late", 1)]
    found = by_weight(8, queues, *jobs)
    assert sorted(found.world.queues, key=found.queue_key) == ["b", "a", "late"]


@pytest.mark.parametrize("name", ["proportion", "capacity", "capacity-card"])
def test_a_closed_queue_takes_nothing(name: str) -> None:
    closed = queue("q", state="Closing", capability=amounts(8))
    waits = job("j", phase=Phase.PENDING, min_resources=amounts(1))
    found = session(waits, queues=[closed], tiers=[[name]])
    one = found.jobs["j"]
    for no in (found.allocatable(one, waits.tasks[0]), found.job_enqueueable(one)):
        assert no is not None
        assert no.code == "QueueClosed"
        assert "Closing" in no.message


@pytest.mark.parametrize("name", ["proportion", "capacity"])
@pytest.mark.parametrize(("least", "allowed"), [(4, True), (5, False)])
def test_ex_enq(name: str, least: int, allowed: bool) -> None:
    """Capability 10, allocated 8 of which 4 are beyond their minimum, 2 more were let in."""
    running = job(
        "r", statuses("r", Running=8), min_member=4, min_resources=amounts(4), phase=Phase.RUNNING
    )
    inqueue = job("i", 2, min_resources=amounts(2))
    asks = job("a", (), phase=Phase.PENDING, min_member=1, min_resources=amounts(least))
    found = session(
        running,
        inqueue,
        asks,
        queues=[queue(capability=amounts(10))],
        tiers=[[name]],
        total=amounts(100),
    )
    assert (found.job_enqueueable(found.jobs["a"]) is None) == allowed


def test_a_running_group_below_its_minimum_promises_nothing() -> None:
    half = job(
        "h",
        statuses("h", Running=1, Succeeded=3),
        min_member=4,
        min_resources=amounts(4),
        phase=Phase.RUNNING,
    )
    asks = job("a", (), phase=Phase.PENDING, min_member=1, min_resources=amounts(3))
    found = session(half, asks, queues=[queue(capability=amounts(4))], tiers=[["proportion"]])
    assert found.job_enqueueable(found.jobs["a"]) is None


def flat(held: int) -> Session:
    """16 cards; guarantees of 6 together, 2 of them our own; capability 14."""
    return session(
        job("held", statuses("h", Running=held), phase=Phase.RUNNING),
        job("j", [task("j", 3)]),
        queues=[
            queue("q", guarantee=amounts(2), capability=amounts(14)),
            queue("other", guarantee=amounts(4)),
        ],
        tiers=[["capacity"]],
        total=amounts(16),
    )


def test_ex_cap() -> None:
    queues = [
        queue("q", guarantee=amounts(2), capability=amounts(14)),
        queue("other", guarantee=amounts(4)),
    ]
    guaranteed = total_of([one.guarantee for one in queues])
    assert real_capability(amounts(16), guaranteed, queues[0]) == amounts(12)
    for held, allowed in ((8, True), (10, False)):
        found = flat(held)
        no = found.allocatable(found.jobs["j"], found.jobs["j"].view.tasks[0])
        assert (no is None) == allowed


def test_cpu_of_nothing_in_a_capability_is_unlimited_but_no_card_is_none() -> None:
    limits = Resources({"cpu": 0, "memory": -1, GPU: 0})
    found = real_capability(amounts(4, cpu=8, memory_gib=2), Resources(), queue(capability=limits))
    assert found == amounts(0, cpu=8, memory_gib=2).plus(Resources({GPU: 0}))


def tree(**changes: Any) -> list[QueueView]:
    return [
        queue("root"),
        queue("team", capability=amounts(4), **changes),
        queue("a", parent="team", deserved=amounts(2)),
        queue("b", parent="team", deserved=amounts(2)),
        queue("other", deserved=amounts(4)),
    ]


def in_tree(*jobs: Any, tier: Any = TREE) -> Session:
    return session(*jobs, queues=tree(), tiers=[[tier]], total=amounts(8))


def test_every_queue_above_is_asked() -> None:
    a, b = wanting("a", 1, 3), wanting("b", 2, 1)
    found = in_tree(a, b)
    no = found.allocatable(found.jobs["b"], b.tasks[0])
    assert no is not None
    assert no.queue == "team", "b itself has room"
    flat_ = in_tree(a, b, tier="capacity")
    assert flat_.allocatable(flat_.jobs["b"], b.tasks[0]) is None


def test_only_leaves_take_pods() -> None:
    found = in_tree(wanting("team", 1))
    no = found.allocatable(found.jobs["team"], found.jobs["team"].view.tasks[0])
    assert no is not None
    assert (no.code, "a, b" in no.message) == ("QueueNotLeaf", True)


def test_queues_are_ordered_from_the_top_down() -> None:
    found = in_tree(wanting("a", 1, 2), wanting("b", 1), wanting("other", 1, 1))
    # team has half of its due of 4, other a quarter of its: so a and b both come after it
    assert sorted(("a", "b", "other"), key=found.queue_key) == ["other", "b", "a"]


def test_enqueue_counts_for_every_queue_above() -> None:
    first = job("f", (), queue="a", phase=Phase.PENDING, min_resources=amounts(3))
    second = job("s", (), queue="b", phase=Phase.PENDING, min_resources=amounts(2))
    found = in_tree(first, second)
    assert found.job_enqueueable(found.jobs["s"]) is None
    found.let_in(found.jobs["f"])
    no = found.job_enqueueable(found.jobs["s"])
    assert no is not None
    assert no.queue == "team"


def test_a_circle_of_parents_ends() -> None:
    queues = [queue("a", parent="b"), queue("b", parent="a")]
    found = session(wanting("a", 1), queues=queues, tiers=[[TREE]])
    no = found.allocatable(found.jobs["a"], found.jobs["a"].view.tasks[0])
    assert no is not None
    assert no.code == "QueueNotLeaf"


def test_capacity_reclaims_what_is_borrowed_and_keeps_guarantees() -> None:
    queues = [
        queue("lender", deserved=amounts(4)),
        queue("borrower", deserved=amounts(2), guarantee=amounts(1)),
        queue("free"),
    ]
    taker = wanting("lender", 4)
    borrower, free = wanting("borrower", 0, 4), wanting("free", 0, 1)
    found = session(taker, borrower, free, queues=queues, tiers=[["capacity"]], total=amounts(8))
    victims = found.reclaimable(taker.tasks[0], (*borrower.tasks, *free.tasks))
    assert [one.uid for one in victims] == ["borrower-r-w-0", "borrower-r-w-1", "free-r-w-0"]
    lender: Job = found.jobs["lender"]
    assert found.preemptive(lender, taker.tasks[0])
    # beyond its due a queue may not take from others
    for one in taker.tasks:
        found.assume(lender, one, Status.ALLOCATED)
    assert not found.preemptive(lender, taker.tasks[0])


def test_proportion_reclaims_down_to_the_due() -> None:
    poor, rich = wanting("poor", 4), wanting("rich", 0, 4)
    found = by_weight(4, [queue("poor"), queue("rich")], poor, rich)
    assert len(found.reclaimable(poor.tasks[0], rich.tasks)) == 2


def test_votes_without_minimum_are_permits() -> None:
    found = session(job("j", 1), tiers=[["proportion"]])
    plugin_ = found.plugin("proportion")
    assert isinstance(plugin_, Proportion)
    assert plugin_.job_enqueueable(found.jobs["j"]) is PERMIT
    capacity = session(job("j", 1), tiers=[["capacity"]]).plugin("capacity")
    assert isinstance(capacity, Capacity)
    assert capacity.job_enqueueable(found.jobs["j"]) is PERMIT
