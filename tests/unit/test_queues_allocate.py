"""Whose pods are tried, in which order, and what becomes of jobs that do not get all they need."""

from typing import Any

import pytest

from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.actions.allocate import (
    COMMITTED,
    DISCARDED,
    INVALID,
    KEPT,
    OVERUSED,
    Placed,
    Promised,
    Turn,
    cause_of,
    needs_continue,
)
from allotment.core.queues.model import Phase, Task
from allotment.core.queues.reservations import Hold
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from tests.unit.queues_parts import (
    Toy,
    allocate,
    amounts,
    backfill,
    job,
    plugin,
    queue,
    session,
    task,
)


def run(found: Session, toy: Toy, **options: Any) -> list[Turn]:
    return list(allocate(found, toy, **options))


def short_form(turns: list[Turn]) -> list[tuple[str, str, int]]:
    return [(turn.job, turn.ending, len(turn.placed)) for turn in turns]


def test_a_gang_is_placed_whole_or_leaves_no_trace() -> None:
    found, toy = session(job("g", 4), job("s", 1, created_ms=1)), Toy({"n1": 2, "n2": 1})
    turns = run(found, toy)
    assert short_form(turns) == [("g", DISCARDED, 3), ("s", COMMITTED, 1)]
    assert turns[0].together == 3
    assert [uid for uid, _ in turns[0].refused] == ["g-w-3"]
    assert toy.free == {"n1": 1, "n2": 1}, "only the small one is there"
    fresh = Job(found.jobs["g"].view)
    assert found.jobs["g"].counts == fresh.counts
    assert found.jobs["g"].allocated == {"nvidia.com/gpu": 0}


def test_stop_at_ready_and_interleave() -> None:
    """An elastic job gets its minimum, then competes one by one; gangs that wait come first."""
    elastic = job("e", 5, min_member=2)
    gang = job("g", 2, created_ms=5)
    turns = run(session(elastic, gang), Toy({"n1": 6}))
    assert short_form(turns) == [
        ("e", COMMITTED, 2),
        ("g", COMMITTED, 2),
        ("e", COMMITTED, 1),
        ("e", COMMITTED, 1),
        ("e", COMMITTED, 0),
    ]
    assert turns[-1].refused[0][0] == "e-w-4"


def test_two_elastic_jobs_take_turns_by_share() -> None:
    a, b = job("a", 3, min_member=1), job("b", 3, min_member=1, created_ms=1)
    turns = run(session(a, b, tiers=[["gang"], ["drf"]], total=amounts(6)), Toy({"n1": 6}))
    assert [turn.job for turn in turns] == ["a", "b", "a", "b", "a", "b"]


def test_a_gang_that_does_not_fit_is_tried_once_a_round() -> None:
    toy = Toy({"n1": 1})
    run(session(job("g", 3)), toy)
    assert toy.calls == ["g-w-0", "g-w-1"], "minimum is all of it, so the second failure ends it"


def test_a_pipelined_job_holds_its_promises() -> None:
    gang, small = job("g", 2, priority=1), job("s", 1)
    toy = Toy({"n1": 1}, soon={"n1": 1})
    turns = run(session(gang, small), toy)
    assert short_form(turns) == [("g", KEPT, 2), ("s", DISCARDED, 0)]
    assert turns[0].placed == (("g-w-0", Placed("n1")), ("g-w-1", Promised("n1")))
    assert (toy.free, toy.soon) == ({"n1": 0}, {"n1": 0})


def test_idle_comes_before_future_idle() -> None:
    toy = Toy({"n1": 0, "n2": 1}, soon={"n1": 5})
    (turn,) = run(session(job("j", 1)), toy)
    assert turn.placed == (("j-w-0", Placed("n2")),)


def role(name: str, count: int) -> tuple[Task, ...]:
    return tuple(task(f"j-{name}-{index}", role=name) for index in range(count))


@pytest.mark.parametrize(
    ("minimum", "roles", "never", "calls"),
    [
        # as many tasks as the minimum: the first failure ends it
        (4, {"a": 2, "b": 2}, ["j-a-0"], ["j-a-0"]),
        # minimum below the roles' sum: go on while other roles can still reach it
        (2, {"a": 2, "b": 1}, ["j-a-0"], ["j-a-0", "j-b-0", "j-b-1"]),
        (3, {"a": 2, "b": 2}, ["j-a-0"], ["j-a-0"]),
        # else: go on if every role that failed has its own minimum
        (3, {"a": 1, "b": 2}, ["j-a-0"], ["j-a-0"]),
        (3, {"b": 2}, ["j-a-0"], ["j-a-0", "j-b-0", "j-b-1"]),
        (3, {"a": 1, "b": 1}, ["j-a-1"], ["j-a-0", "j-b-0", "j-a-1", "j-b-1"]),
    ],
)
def test_need_continue(
    minimum: int, roles: dict[str, int], never: list[str], calls: list[str]
) -> None:
    members = (*role("a", 2), *role("b", 2))
    gang = job("j", members, min_member=minimum, min_task_member=tuple(roles.items()))
    toy = Toy({"n1": 9}, never=never)
    run(session(gang), toy)
    assert toy.calls == calls


def test_need_continue_without_roles_goes_on() -> None:
    gang = Job(job("j", 3, min_member=2))
    assert needs_continue(gang, set())


def test_same_role_shortcut() -> None:
    members = (task("j-a-0", role="a"), task("j-a-1", role="a"), task("j-b-2"))
    toy = Toy({"n1": 9}, never=["j-a-0"])
    (turn,) = run(session(job("j", members, min_member=1)), toy)
    assert toy.calls == ["j-a-0", "j-b-2"]
    assert turn.ending == COMMITTED
    assert turn.refused[1][1].message == (
        "Task j-a-1 with role spec a has already predicated failed, skip"
    )


def test_pods_without_a_role_are_all_tried() -> None:
    toy = Toy({"n1": 9}, never=["j-w-0", "j-w-1"])
    (turn,) = run(session(job("j", 3, min_member=1)), toy)
    assert (toy.calls, turn.ending) == (["j-w-0", "j-w-1", "j-w-2"], COMMITTED)


def test_a_quota_skips_the_task_and_says_so() -> None:
    members = (task("j-w-0", 4), task("j-w-1", 1))
    found = session(
        job("j", members, min_member=1),
        queues=[queue(capability=amounts(2))],
        tiers=[["gang"], ["capacity"]],
    )
    toy = Toy({"n1": 9})
    (turn,) = run(found, toy)
    assert toy.calls == ["j-w-1"]
    assert [(uid, no.code) for uid, no in turn.refused] == [("j-w-0", "QueueQuotaInsufficient")]


def test_later_jobs_see_what_earlier_ones_took_of_the_quota() -> None:
    found = session(
        job("a", 2),
        job("b", 2, created_ms=1),
        queues=[queue(capability=amounts(3))],
        tiers=[["gang"], ["capacity"]],
    )
    turns = run(found, Toy({"n1": 9}))
    assert short_form(turns) == [("a", COMMITTED, 2), ("b", DISCARDED, 1)]
    plugin_: Any = found.plugin("capacity")
    assert plugin_.books["q"].allocated == amounts(2)


def test_an_overused_queue_is_dropped() -> None:
    jobs = [job(f"{name}{n}", 1, queue=name, created_ms=n) for name in "ab" for n in range(2)]
    found = session(
        *jobs, queues=[queue("a"), queue("b")], tiers=[["gang"], ["proportion"]], total=amounts(2)
    )
    assert [(turn.job, turn.ending) for turn in run(found, Toy({"n1": 9}))] == [
        ("a0", COMMITTED),
        ("b0", COMMITTED),
        ("a1", OVERUSED),
        ("b1", OVERUSED),
    ]


def test_who_is_not_tried() -> None:
    jobs = [
        job("pending", 1, phase=Phase.PENDING),
        job("invalid", 1, min_member=3),
        job("done", ()),
        job("settled", 1),
        job("best-effort", [task("x", request=Resources({"pods": 1}))]),
    ]
    toy = Toy({"n1": 9})
    (turn,) = run(session(*jobs), toy, wanted={"pending", "invalid", "done", "best-effort"})
    assert (turn.job, turn.ending, toy.calls) == ("invalid", INVALID, [])
    assert turn.no is not None
    assert turn.no.code == "NotEnoughTasks"
    both = run(session(jobs[0]), toy, pending_too=True)
    assert short_form(both) == [("pending", COMMITTED, 1)]


def test_a_hopeless_gang_is_refused_untried() -> None:
    toy = Toy({"n1": 2, "n2": 1}, bound=True)
    (turn,) = run(session(job("g", 4)), toy)
    assert (turn.ending, turn.together, toy.calls) == (DISCARDED, 3, [])
    assert turn.untried == ("g-w-1", "g-w-2", "g-w-3")
    (turn,) = run(session(job("g", 3)), toy)
    assert turn.ending == COMMITTED


def test_it_can_be_stopped_at_any_time() -> None:
    toy = Toy({"n1": 9})
    turns = allocate(session(job("a", 1), job("b", 1)), toy)
    assert next(turns).job == "a"
    assert toy.calls == ["a-w-0"]


def test_the_oracle_hears_of_cards_with_quota() -> None:
    found = session(
        job("j", [task("x", card_names=("B", "A"))]),
        queues=[queue(card_quota=Resources({"A": 1000}))],
        tiers=[["gang"], [plugin("capacity-card")]],
        cards=[Card("A", "nvidia.com/gpu"), Card("B", "nvidia.com/gpu")],
    )
    toy = Toy({"n1": 1, "n2": 1}, model={"n1": "B", "n2": "A"})
    (turn,) = run(found, toy)
    assert toy.limits[0].cards == ("A",)
    assert turn.placed == (("x", Placed("n2", "A")),)


PODS_ONLY = Resources({"pods": 1})


def test_backfill_places_pods_without_a_request() -> None:
    gang = (task("g-w-0"), task("g-w-1", request=PODS_ONLY))
    found = session(job("g", gang), job("wait", 1, phase=Phase.PENDING))
    toy = Toy({"n1": 1})
    assert short_form(run(found, toy)) == [("g", COMMITTED, 1)], "the other counts as ready"
    (turn,) = backfill(found, toy)
    assert (turn.job, turn.ending, turn.placed) == ("g", COMMITTED, (("g-w-1", Placed("n1")),))
    assert list(backfill(found, toy)) == []


def test_backfill_gives_back_what_an_unready_job_found() -> None:
    gang = (task("g-w-0"), task("g-w-1", request=PODS_ONLY))
    found, toy = session(job("g", gang)), Toy({"n1": 0})
    run(found, toy)
    (turn,) = backfill(found, toy)
    assert (turn.ending, found.jobs["g"].best_effort_pending) == (DISCARDED, 1)


def test_backfill_leaves_held_nodes_alone() -> None:
    small = job("s", [task("s", request=PODS_ONLY)])
    found = session(job("g", 2), small)
    (turn,) = backfill(found, Toy({"n1": 1, "n2": 1}), holds=[Hold("g", 1, ("n1",))])
    assert turn.placed == (("s", Placed("n2")),)


def test_promises_of_a_ready_job_are_not_counted_as_committed() -> None:
    elastic = job("e", 2, min_member=1)
    turns = run(session(elastic), Toy({"n1": 1}, soon={"n1": 1}))
    assert [turn.placed[0][1] for turn in turns] == [Placed("n1"), Promised("n1")]
    assert [turn.ending for turn in turns] == [COMMITTED, COMMITTED]


@pytest.mark.parametrize(("second", "queue_short"), [(3, ""), (5, "q")])
def test_room_goes_before_quota_as_the_cause(second: int, queue_short: str) -> None:
    found = session(
        job("big", [task("x", 5), task("y", second)]),
        queues=[queue(capability=amounts(4))],
        tiers=[["priority", "gang"], ["capacity"]],
    )
    (turn,) = run(found, Toy({"n1": 2}))
    cause = cause_of(turn)
    assert cause is not None
    assert (turn.refused[0][1].queue, cause.queue) == ("q", queue_short)


def test_priority_of_queues_and_jobs() -> None:
    jobs = [
        job("low", 1, queue="b", priority=9),
        job("high", 1, queue="a"),
        job("higher", 1, queue="a", priority=1),
    ]
    found = session(
        *jobs,
        queues=[queue("b"), queue("a", priority=1)],
        tiers=[["priority", "gang"], ["capacity"]],
    )
    assert [turn.job for turn in run(found, Toy({"n1": 9}))] == ["higher", "high", "low"]
