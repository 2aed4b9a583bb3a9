"""Which groups are let in, in which order, and why others are not."""

import pytest

from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.model import JobView, Phase
from allotment.core.queues.resources import Resources
from allotment.core.reasons import PROMISED_BEFORE
from tests.unit.queues_parts import amounts, job, plugin, queue, session

X = "x"


def asks(uid: str, least: int | None = 1, in_queue: str = "q", **changes: object) -> JobView:
    minimum = None if least is None else amounts(least)
    values = {"queue": in_queue, "phase": Phase.PENDING, "min_resources": minimum, **changes}
    return job(uid, (), **values)


def test_round_robin_over_queues() -> None:
    jobs = [asks(f"{name}{number}", 1, name) for name in "ab" for number in range(2)]
    found = session(
        *jobs, queues=[queue("a"), queue("b")], tiers=[["priority", "gang"]], total=amounts(9)
    )
    assert enqueue(found).let_in == ("a0", "b0", "a1", "b1")
    fair = session(
        *(
            asks(f"{name}{number}", 1, name, priority=number)
            for name in "ab"
            for number in range(2)
        ),
        queues=[queue("a", priority=1), queue("b", priority=2)],
        tiers=[["priority", "gang"], ["capacity"]],
        total=amounts(9),
    )
    assert enqueue(fair).let_in == ("b1", "b0", "a1", "a0"), "b outranks a, so it is first twice"


def test_a_rejected_group_blocks_nobody() -> None:
    found = session(
        asks("big", 9, priority=9),
        asks("small", 2),
        queues=[queue(capability=amounts(4))],
        tiers=[["priority", "gang"], ["capacity"]],
        total=amounts(9),
    )
    done = enqueue(found)
    assert done.let_in == ("small",)
    ((uid, no),) = done.refused
    assert uid == "big"
    assert no.message == "queue resource quota insufficient: insufficient nvidia.com/gpu"
    assert found.jobs["big"].phase is Phase.PENDING
    assert found.jobs["small"].phase is Phase.INQUEUE


def test_what_was_let_in_counts_for_the_next() -> None:
    found = session(
        asks("a", 3, priority=1),
        asks("b", 3),
        queues=[queue(capability=amounts(4))],
        tiers=[["priority"], ["proportion"]],
        total=amounts(9),
    )
    done = enqueue(found)
    assert (done.let_in, [uid for uid, _ in done.refused]) == (("a",), ["b"])


def test_without_a_minimum_nobody_is_asked() -> None:
    found = session(
        asks("free", None), queues=[queue(state="Closed")], tiers=[["proportion", "overcommit"]]
    )
    assert enqueue(found).let_in == ("free",)


def test_other_phases_and_why_unplaceds() -> None:
    found = session(
        asks("new", phase=Phase.NEW), asks("runs", phase=Phase.RUNNING), asks("lost", 1, "nowhere")
    )
    done = enqueue(found)
    assert done.let_in == ("new",)
    ((uid, no),) = done.refused
    assert (uid, no.code) == ("lost", "QueueUnknown")
    assert no.message == "queue nowhere of default/lost does not exist"


@pytest.mark.parametrize(("least", "allowed"), [(30, False), (20, True)])
def test_ex_oc(least: int, allowed: bool) -> None:
    """Total 100, factor 1.2, used 60, inqueue 40: room for 20 more."""
    inqueue = job("i", (), min_resources=Resources({X: 40}))
    group = asks("a", None, min_resources=Resources({X: least}))
    found = session(
        inqueue,
        group,
        tiers=[["overcommit"]],
        total=Resources({X: 100}),
        used=Resources({X: 60}),
    )
    done = enqueue(found)
    assert (done.let_in == ("a",)) == allowed
    if not allowed:
        no = done.refused[0][1]
        assert (no.code, no.short[0].promised) == (PROMISED_BEFORE, 40)


def test_what_is_in_use_leaves_no_room_to_let_others_in() -> None:
    group = asks("a", None, min_resources=Resources({X: 61}))
    total, used = Resources({X: 100}), Resources({X: 60})
    done = enqueue(session(group, tiers=[["overcommit"]], total=total, used=used))
    assert done.refused[0][1].message == "resource in cluster is overused: overused x"


@pytest.mark.parametrize(("factor", "allowed"), [(2_000, True), (1_100, False), (1_000, False)])
def test_the_factor_of_overcommit(factor: int, allowed: bool) -> None:
    configured = plugin("overcommit", None, **{"overcommit-factor": factor})
    group = asks("a", None, min_resources=Resources({X: 115}))
    found = session(group, tiers=[[configured]], total=Resources({X: 100}))
    assert (enqueue(found).let_in == ("a",)) == allowed


def test_two_groups_share_the_room_of_overcommit() -> None:
    groups = [asks(name, None, min_resources=Resources({X: 70})) for name in "ab"]
    found = session(*groups, tiers=[["overcommit"]], total=Resources({X: 100}))
    assert enqueue(found).let_in == ("a",)


def test_sla_lets_in_whoever_waited_too_long() -> None:
    late = asks("late", 9, waiting_most_ms=1_000, created_ms=0)
    young = asks("young", 9, created_ms=1_500)
    for now_ms, expected in ((999, ()), (1_000, ("late",)), (63_000, ("late", "young"))):
        found = session(
            late,
            young,
            queues=[queue(capability=amounts(1))],
            tiers=[[plugin("sla", None, **{"sla-waiting-time": 61_000})], ["capacity"]],
            total=amounts(99),
            now_ms=now_ms,
        )
        assert enqueue(found).let_in == expected
