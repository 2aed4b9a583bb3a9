"""A job on which opening a session fails is left out, and all others are placed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import SINGLE
from allotment.core.metrics.queues import queue_gauges
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues import shares
from allotment.core.queues.model import JobView
from allotment.core.queues.plugins.priority import Priority
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.round import failing, members, views
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import group_verdict, queue_verdict, verdict
from allotment.core.queues.work import Job
from allotment.core.reasons import SCHEDULER_DEFECT
from allotment_filter.batches import next_round
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.groups import GroupBatch, Groups
from allotment_proto.events import QueueObserved
from allotment_proto.facts import PluginUse, PodRequest, Policy
from tests import build
from tests.unit.rounds_world import World, group

EVIL = PodRequest(666, 1 << 20)
"""Whoever asks for this makes the planted defect raise."""
GOOD = PodRequest(100, 1 << 20)
POLICY = Policy(
    tiers=((PluginUse("priority"), PluginUse("gang")), (PluginUse("proportion"),)),
    actions=("enqueue", "allocate", "backfill", "preempt"),
)


def is_evil(job: JobView) -> bool:
    return any(task.request.amount("cpu") == EVIL.cpu_milli for task in job.tasks)


def plant(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """From now on a function or method raises for evil jobs."""
    real: Callable[..., Any] = getattr(where, name)

    def raises(*args: Any, **options: Any) -> Any:
        for each in args:
            view = each.view if isinstance(each, Job) else each
            if isinstance(view, JobView) and is_evil(view):
                raise KeyError("planted")
        return real(*args, **options)

    monkeypatch.setattr(where, name, raises)


PLANTS = [
    pytest.param(shares, "share_of", id="as plugins open"),
    pytest.param(Priority, "job_key", id="in the order of jobs"),
    pytest.param(Proportion, "job_enqueueable", id="at the gate"),
]


class Filtered(World):
    """A world whose batches the filter chooses."""

    def __init__(self) -> None:
        super().__init__(*(build.node(f"n{n}", 0, pods=99) for n in range(2)), policy=POLICY)
        self.groups = Groups(self.state)

    def gang_of(self, name: str, request: PodRequest, number: int = 2) -> list[str]:
        self.tell(group(name, number, phase="Pending", min_resources=(("cpu", 10),)))
        uids = [f"{name}-{n}" for n in range(number)]
        for uid in uids:
            self.tell(build.pod(uid, request, name=uid, group=f"default/{name}"))
        return uids

    def lone(self, uid: str, request: PodRequest) -> str:
        self.tell(build.pod(uid, request, name=uid, queue="default"))
        return uid

    def settle(self) -> None:
        """Cycles, until nobody is due."""
        for _ in range(20):
            found: GroupBatch | None = self.groups.next_batch(())
            if found is None:
                return
            self.decide(list(found.batch.uids))
            self.groups.tried(found)
        raise AssertionError("somebody is due for ever")

    def code(self, uid: str) -> str:
        refusal = self.state.pods[uid].refusal
        return refusal.problem.code if refusal is not None and refusal.problem is not None else ""


@pytest.mark.parametrize(("where", "name"), PLANTS)
@pytest.mark.parametrize("is_gang", [True, False], ids=["gang", "lone"])
def test_one_job_that_fails_harms_nobody_else(
    where: Any, name: str, is_gang: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, where, name)
    world = Filtered()
    too_much = group("too-much", 1, phase="Pending", min_resources=(("cpu", 999_000),))
    world.tell(too_much)  # so that each is asked about at the gate
    good = [world.lone("before", GOOD), *world.gang_of("good", GOOD)]
    evil = world.gang_of("evil", EVIL) if is_gang else [world.lone("evil", EVIL)]
    good += [world.lone("after", GOOD), *world.gang_of("other", GOOD)]
    world.settle()
    good.append(world.lone("later", GOOD))
    world.settle()
    assert world.placed() == set(good)
    job = "default/evil" if is_gang else f"{SINGLE}evil"
    assert world.groups.left_out.keys() <= {job}
    for uid in evil:
        assert world.code(uid) == SCHEDULER_DEFECT
        refusal = world.state.pods[uid].refusal
        assert refusal is not None
        assert refusal.problem is not None
        assert "KeyError: 'planted'" in refusal.problem.message


def test_a_job_of_which_not_even_a_view_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    real = members.job_of

    def raises(state: Any, key: str, *more: Any) -> Any:
        if key == "default/evil":
            raise ValueError("planted")
        return real(state, key, *more)

    monkeypatch.setattr(f"{views.__name__}.job_of", raises)
    world = Filtered()
    evil, good = world.gang_of("evil", GOOD), world.gang_of("good", GOOD)
    world.settle()
    assert world.placed() == set(good)
    assert {world.code(uid) for uid in evil} == {SCHEDULER_DEFECT}


def test_a_job_that_was_changed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, shares, "share_of")
    world = Filtered()
    world.lone("evil", EVIL)
    world.settle()
    assert world.placed() == set()
    fact = world.state.pods["evil"].fact
    world.tell(msgspec.structs.replace(fact, rv=2, request=GOOD))
    world.settle()
    assert world.placed() == {"evil"}


def test_all_that_fail_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, shares, "share_of")
    world = Filtered()
    for number in range(5):
        world.gang_of(f"evil-{number}", EVIL)
        world.gang_of(f"good-{number}", GOOD)
    world.settle()
    assert len(world.placed()) == 10
    assert len(world.groups.left_out) == 5


@pytest.mark.parametrize(("where", "name"), PLANTS[:2])
def test_explanations_are_given_all_the_same(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Filtered()
    world.gang_of("evil", EVIL)
    world.lone("good", GOOD)
    plant(monkeypatch, where, name)
    assert verdict(world.state, world.state.pods["good"].fact).queue == "default"
    assert queue_verdict(world.state, "default")
    group_verdict(world.state, "default/evil")
    Rounds(world.state).ask(queue_gauges)


def test_what_is_not_about_jobs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Proportion, "__init__", raises)
    world = Filtered()
    world.lone("a", GOOD)
    with pytest.raises(ZeroDivisionError):
        world.settle()
    assert world.groups.left_out == {}


def test_the_trials_are_few() -> None:
    """Halves find one of a thousand jobs."""
    trials: list[int] = []

    def opened(jobs: Any) -> Any:
        trials.append(len(jobs))
        if any(job.name == "j700" for job in jobs):
            raise ValueError("planted")

    jobs = [JobView(uid=f"j{n}", name=f"j{n}") for n in range(1000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failing, "_ask_all", lambda _: None)
        found = failing.culprits((), jobs, lambda _, some: opened(some))
    assert (found.queues, found.jobs) == ({}, {"j700": "ValueError: planted"})
    assert len(trials) < 20


class _Failing(Evaluator):
    """Asks nodes, and fails on one request."""

    def rank(self, request: PodRequest) -> Any:
        if request == EVIL:
            raise IndexError("planted")
        return super().rank(request)

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        if request == EVIL:
            raise IndexError("planted")
        return super().holds_at_most(request, wanted)


def test_a_pod_on_which_asking_the_nodes_fails_is_worth_a_cycle_and_others_are_too() -> None:
    """That cycle fails, and is cut in halves until only this pod waits for it."""
    pods = [build.pod(uid, EVIL if uid == "evil" else GOOD) for uid in ("a", "evil", "b")]
    state = build.state_of(build.policy(), build.node("n1", 0, pods=99), *pods)
    feasibility = FeasibilityCache(state, _Failing(state))
    assert set(next_round(feasibility, {}, {}).batch.uids) == {"a", "evil", "b"}
    assert set(next_round(feasibility, {}, {"evil": 1.0}).batch.uids) == {"a", "b"}
    assert feasibility.room(pods[1], 5) == 1


def test_a_queue_that_fails_harms_its_own_pods_only(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Proportion.__init__

    def raises(self: Proportion, arguments: Any, world: Any) -> None:
        if any(queue.name == "odd" and queue.weight == 7 for queue in world.queues.values()):
            raise OverflowError("planted")
        real(self, arguments, world)

    monkeypatch.setattr(Proportion, "__init__", raises)
    world = Filtered()
    odd = QueueObserved(uid="odd", name="odd", rv=1, weight=7)
    world.tell(odd)
    world.lone("good", GOOD)
    world.tell(build.pod("in-odd", GOOD, name="in-odd", queue="odd"))
    world.settle()
    assert world.placed() == {"good"}
    assert world.code("in-odd") == SCHEDULER_DEFECT
    world.tell(msgspec.structs.replace(odd, rv=2, weight=1))
    world.settle()
    assert world.placed() == {"good", "in-odd"}
