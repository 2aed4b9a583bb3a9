"""Random jobs and queues, driven through the allocate action on a toy cluster.

Whatever comes: no quota is exceeded, no gang is broken, nothing is given twice, books add up, and
once there is room and quota for everything, everything is placed. Orders are total, and do not
depend on the order in which things were given.
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.actions.allocate import COMMITTED, KEPT, Turn
from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.model import (
    CHARGED_SET,
    JobView,
    Phase,
    QueueView,
    Share,
    Status,
    Task,
)
from allotment.core.queues.plugins.capacity import Capacity
from allotment.core.queues.plugins.card import CapacityCard
from allotment.core.queues.plugins.gang import is_ready
from allotment.core.queues.plugins.proportion import Claim, Proportion, fill
from allotment.core.queues.reservations import Hold
from allotment.core.queues.resources import Resources, total_of
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from tests.unit.queues_parts import Toy, allocate, amounts, job, plugin, queue, session, task

MODELS = ("A", "B")
CARDS = tuple(Card(name, "nvidia.com/gpu", 10_000) for name in MODELS)
NODES = {"n1": 2, "n2": 3, "n3": 1}
MODEL_OF = {"n1": "A", "n2": "B", "n3": "A"}
QUEUES = ("q", "r", "below")
TIERS: tuple[Any, ...] = (
    (("priority", "gang"),),
    (("priority", "gang"), ("drf", "proportion")),
    (("priority", "gang"), ("drf", plugin("capacity", {"enableHierarchy": True}))),
    (("gang",), ("drf", plugin("capacity"), "overcommit")),
    (("priority", "gang"), ("drf", plugin("capacity-card", None, cardUnlimitedCpuMemory=True))),
)


@st.composite
def queues(draw: st.DrawFn) -> list[QueueView]:
    small = st.integers(0, 5)
    return [
        queue(
            name,
            weight=draw(st.integers(1, 3)),
            priority=draw(st.integers(0, 1)),
            capability=amounts(draw(small)) if draw(st.booleans()) else Resources(),
            deserved=amounts(draw(small)),
            parent="r" if name == "below" else "root",
            card_quota=Resources({model: draw(small) * 1000 for model in MODELS}),
            created_ms=draw(st.integers(0, 2)),
        )
        for name in QUEUES
    ]


@st.composite
def members(draw: st.DrawFn, uid: str) -> tuple[Task, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        gpus = draw(st.integers(1, 3))
        kind = draw(st.sampled_from(("whole", "either", "share")))
        changes: dict[str, Any] = {
            "role": draw(st.sampled_from(("", "a", "b"))),
            "priority": draw(st.integers(0, 1)),
            "created_ms": draw(st.integers(0, 1)),
        }
        if kind == "share":
            changes["shares"] = (Share(gpus, draw(st.sampled_from((0, 2_500, 3_333)))),)
        else:
            changes["card_names"] = MODELS if kind == "either" else ("A",)
        found.append(task(f"{uid}-w-{number}", gpus, **changes))
    return tuple(found)


@st.composite
def jobs(draw: st.DrawFn) -> list[JobView]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        uid = f"j{number}"
        tasks = draw(members(uid))
        least = draw(st.integers(1, len(tasks)))
        roles = {one.role for one in tasks if one.role}
        minima = {role: 1 for role in sorted(roles) if draw(st.booleans())}
        found.append(
            job(
                uid,
                tasks,
                queue=draw(st.sampled_from(QUEUES)),
                priority=draw(st.integers(0, 2)),
                created_ms=draw(st.integers(0, 2)),
                min_member=least,
                min_task_member=tuple(minima.items()),
                min_resources=amounts(draw(st.integers(0, 6))) if draw(st.booleans()) else None,
            )
        )
    return found


worlds = st.tuples(queues(), jobs(), st.sampled_from(TIERS), st.integers(0, 2))


def opened(of: Sequence[QueueView], wanted: Sequence[JobView], tiers: Any) -> Session:
    total = amounts(sum(NODES.values()))
    return session(*wanted, queues=of, tiers=tiers, total=total, cards=CARDS)


def toy(soon: int = 0) -> Toy:
    return Toy(NODES, soon={"n2": soon}, model=MODEL_OF)


def check_books(found: Session, cluster: Toy, free: dict[str, int]) -> None:
    """Everything recomputed from the tasks' statuses, and compared with what was kept."""
    for one in found.jobs.values():
        held = [t.request for t in one.view.tasks if one.status[t.uid] in CHARGED_SET]
        assert {n: a for n, a in one.allocated.items() if a} == total_of(held)
        fresh = [one.status[uid] for uid in one.tasks]
        assert {s: fresh.count(s) for s in fresh} == {s: n for s, n in one.counts.items() if n}
    charged = total_of([one.allocated for one in found.jobs.values()])
    taken = sum(free.values()) - sum(cluster.free.values()) - sum(cluster.soon.values())
    assert charged.amount("nvidia.com/gpu") == 1000 * taken
    assert all(amount >= 0 for amount in (*cluster.free.values(), *cluster.soon.values()))


def check_quotas(found: Session) -> None:
    proportion, capacity = found.plugin("proportion"), found.plugin("capacity")
    if isinstance(proportion, Proportion):
        for name in found.world.queues:
            book = proportion.books[name]
            due = proportion.deserved.get(name, Resources())
            assert not book.allocated.exceeding(due, book.allocated.named)
    if isinstance(capacity, Capacity):
        for name in found.world.queues:
            book = capacity.books[name]
            limit = capacity.tree.capability[name]
            assert not book.allocated.exceeding(limit, book.allocated.named)
    card = found.plugin("capacity-card")
    if isinstance(card, CapacityCard):
        for name in found.world.queues:
            book = card.books[name]
            assert not book.allocated.exceeding(card.capability[name], MODELS)


def check_gangs(found: Session, turns: Sequence[Turn]) -> None:
    kept = {turn.job for turn in turns if turn.ending == KEPT}
    for one in found.jobs.values():
        given = [uid for uid, status in one.status.items() if status in CHARGED_SET]
        if given and one.uid not in kept:
            assert is_ready(one), "a gang was broken"
    tried = [uid for turn in turns for uid, _ in turn.placed if turn.ending == COMMITTED]
    assert len(tried) == len(set(tried)), "a task was given two places"


@given(worlds)
def test_no_quota_is_exceeded_and_no_gang_is_broken(world: Any) -> None:
    of, wanted, tiers, soon = world
    found, cluster = opened(of, wanted, tiers), toy(soon)
    free = {**cluster.free, "soon": soon}
    turns = []
    for turn in allocate(found, cluster):
        turns.append(turn)
        check_quotas(found)
    check_books(found, cluster, free)
    check_gangs(found, turns)


@given(worlds, st.randoms(use_true_random=False))
def test_orders_are_total_and_independent_of_input(world: Any, dice: random.Random) -> None:
    of, wanted, tiers, soon = world
    outcomes = []
    for _ in range(2):
        found = opened(of, wanted, tiers)
        keys = [found.job_key(one) for one in found.jobs.values()]
        assert len(set(keys)) == len(keys)
        assert len({found.queue_key(name) for name in QUEUES}) == len(QUEUES)
        outcomes.append(list(allocate(found, toy(soon))))
        of, wanted = dice.sample(of, len(of)), dice.sample(wanted, len(wanted))
        wanted = [_shuffled(one, dice) for one in wanted]
    assert outcomes[0] == outcomes[1]


def _shuffled(one: JobView, dice: random.Random) -> JobView:
    tasks = dice.sample(one.tasks, len(one.tasks))
    return job(
        one.uid,
        tasks,
        **{
            name: getattr(one, name)
            for name in one.__struct_fields__
            if name not in ("uid", "tasks", "name")
        },
    )


@given(jobs(), st.sampled_from(TIERS))
def test_everything_is_placed_when_there_is_room(wanted: list[JobView], tiers: Any) -> None:
    plenty = Resources(dict.fromkeys(MODELS, 99000))
    of = [queue("q", card_quota=plenty), queue("r", card_quota=plenty)]
    wanted = [_moved(one) for one in wanted]
    found = session(*wanted, queues=of, tiers=tiers, total=amounts(99), cards=CARDS)
    valid = {uid for uid, one in found.jobs.items() if found.job_valid(one) is None}
    list(allocate(found, Toy({"n1": 60, "n2": 39}, model=MODEL_OF)))
    for uid, one in found.jobs.items():
        expected = Status.ALLOCATED if uid in valid else Status.PENDING
        assert set(one.status.values()) == {expected}


def _moved(one: JobView) -> JobView:
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    fields["queue"] = "r" if one.queue == "below" else one.queue
    return JobView(**fields)


@given(worlds)
def test_a_discarded_session_is_as_new(world: Any) -> None:
    of, wanted, tiers, soon = world
    found = opened(of, wanted, tiers)
    before = {name: found.queue_key(name) for name in QUEUES}
    list(allocate(found, toy(soon)))
    found.statement.rollback()
    assert {name: found.queue_key(name) for name in QUEUES} == before
    for one in found.jobs.values():
        fresh = Job(one.view)
        assert (one.status, one.role_counts) == (fresh.status, _same_keys(fresh, one))


def _same_keys(fresh: Job, one: Job) -> Any:
    return {
        role: {status: fresh.role_counts[role][status] for status in counts}
        for role, counts in one.role_counts.items()
    }


@given(worlds)
def test_enqueue_answers_for_every_group_once(world: Any) -> None:
    of, wanted, tiers, _ = world
    asked = [job(one.uid, (), queue=one.queue, min_resources=one.min_resources) for one in wanted]
    fields = [{n: getattr(one, n) for n in one.__struct_fields__} for one in asked]
    pending = [JobView(**{**values, "phase": Phase.PENDING}) for values in fields]
    found = opened(of, pending, tiers)
    done = enqueue(found)
    answered = [*done.let_in, *(uid for uid, _ in done.refused)]
    assert sorted(answered) == sorted(one.uid for one in wanted)
    assert all((found.jobs[uid].phase is Phase.INQUEUE) == (uid in done.let_in) for uid in answered)
    again = opened(of, pending[::-1], tiers)
    assert enqueue(again) == done


@given(worlds, st.sampled_from(sorted(NODES)))
def test_held_nodes_stay_free_of_others(world: Any, held: str) -> None:
    of, wanted, tiers, _ = world
    holder = wanted[0]
    found, cluster = opened(of, wanted, tiers), toy()
    turns = list(allocate(found, cluster, holds=[Hold(holder.uid, 1, (held,))]))
    rank = (found.queue(holder.queue).priority, holder.priority)
    for turn in turns:
        if turn.ending == COMMITTED and any(place.node == held for _, place in turn.placed):
            other = found.jobs[turn.job]
            others = (found.queue(turn.queue).priority, other.view.priority)
            # an overused queue gets nothing, and holds nothing
            no_hold = opened(of, wanted, tiers).overused(holder.queue) is not None
            assert turn.job == holder.uid or others > rank or no_hold


claims = st.builds(Claim, st.integers(1, 5), st.integers(0, 40), st.integers(0, 6))


@given(st.integers(0, 60), st.lists(claims, min_size=1, max_size=5))
def test_filling_wastes_nothing_and_gives_nobody_too_much(total: int, asked: list[Claim]) -> None:
    given_ = fill(total, asked)
    for amount, claim in zip(given_, asked, strict=True):
        assert claim.least <= amount <= max(claim.most, claim.least)
    hungry = any(a < c.most for a, c in zip(given_, asked, strict=True))
    if hungry:
        assert sum(given_) >= total, "something was left while somebody wanted more"
    guaranteed = sum(claim.least for claim in asked)
    assert sum(given_) <= total + guaranteed


def rounds(total: int, asked: Sequence[Claim]) -> list[Fraction]:
    """The filling as the specification tells it, for one resource: a round of all at a time."""
    given_ = [Fraction(0)] * len(asked)
    left, unmet = Fraction(total), set(range(len(asked)))
    while left > 0 and unmet:
        weights = sum(asked[at].weight for at in unmet)
        before = list(given_)
        for at in sorted(unmet):
            part = left * asked[at].weight / weights
            given_[at] = max(
                min(given_[at] + part, Fraction(asked[at].most)), Fraction(asked[at].least)
            )
            if asked[at].most <= given_[at] or given_[at] == before[at]:
                unmet.remove(at)
        left -= sum(given_) - sum(before)
    return given_


@given(st.integers(0, 60), st.lists(claims, min_size=1, max_size=5))
def test_filling_agrees_with_the_rounds_of_the_specification(
    total: int, asked: list[Claim]
) -> None:
    assert fill(total, asked) == rounds(total, asked)
