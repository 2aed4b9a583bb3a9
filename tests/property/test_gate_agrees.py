"""Letting all in at once (`all_enqueueable`) says what asking one by one says, in any order.

Of groups it may say no where one by one finds a yes: nothing is kept for a hollow one, and behind a
tier that permits nobody is asked. Of lone pods, of which there are thousands, it says just that.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.queues.model import CHARGED_SET, JobView, Phase, QueueView, Status
from allotment.core.queues.resources import PODS, Resources
from allotment.core.queues.session import Session
from tests.unit.queues_parts import GPU, amounts, job, plugin, queue, session, task

QUEUES = ("q", "r", "below")
ONE_VOTER: tuple[Any, ...] = (
    (("gang",), ("proportion",)),
    (("gang",), ("capacity",)),
    (("gang",), (plugin("capacity", {"enableHierarchy": True}),)),
    (("gang", "overcommit"),),
    (("sla", "gang"), ("capacity",)),
    (("priority", "gang"),),
)
SEVERAL: tuple[Any, ...] = (
    *ONE_VOTER,
    (("overcommit",), ("capacity",)),
    (("overcommit", "proportion"),),
    (("gang",), ("capacity-card",)),
)
FEW = st.integers(0, 3)


NAMES = (GPU, "cpu", PODS)


def some(*, least: int = 0, most: int = 3) -> st.SearchStrategy[Resources]:
    """Amounts of some names; one that is named may be 0."""
    return st.dictionaries(st.sampled_from(NAMES), st.integers(least, most)).map(Resources)


def plenty() -> st.SearchStrategy[Resources]:
    """Amounts for a few, so that it is often just enough, or nearly."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, st.integers(2, 9))).map(
        Resources
    )


@st.composite
def queues(draw: st.DrawFn) -> list[QueueView]:
    return [
        queue(
            name,
            capability=draw(plenty()),
            guarantee=draw(st.just(Resources()) | some()),
            parent=draw(st.sampled_from(("r", "root"))) if name == "below" else "root",
            state=draw(st.sampled_from(("Open", "Open", "Open", "Closed"))),
        )
        for name in QUEUES
    ]


def lone(uid: str, name: str, asked: Resources) -> JobView:
    """A pod without a PodGroup, which asks for what it is."""
    return job(
        uid,
        (task(uid, request=asked),),
        queue=name,
        phase=Phase.PENDING,
        min_resources=asked,
        is_single=True,
    )


@st.composite
def groups(draw: st.DrawFn, uid: str) -> JobView:
    status = draw(st.sampled_from((Status.PENDING, Status.RUNNING)))
    members = [task(f"{uid}-{n}", request=draw(some()), status=status) for n in range(draw(FEW))]
    at_gate = [Phase.PENDING, Phase.NEW]
    others = [Phase.INQUEUE, Phase.RUNNING]
    return job(
        uid,
        members,
        queue=draw(st.sampled_from(QUEUES)),
        phase=draw(st.sampled_from(at_gate if draw(st.booleans()) else others)),
        min_resources=draw(st.none() | some(least=-1)),
        is_hollow=not members and draw(st.booleans()),
    )


def opened(jobs: list[JobView], within: list[QueueView], tiers: Any, total: Resources) -> Session:
    held = [t.request for each in jobs for t in each.tasks if t.status in CHARGED_SET]
    used = Resources()
    for request in held:
        used = used.plus(request)
    return session(*jobs, queues=within, tiers=tiers, total=total, used=used)


def one_by_one(asked: Session, uids: list[str]) -> bool:
    for uid in uids:
        found = asked.jobs[uid]
        if found.view.min_resources is not None and asked.job_enqueueable(found) is not None:
            return False
        asked.let_in(found)
    return True


@settings(max_examples=300)
@given(st.data(), queues(), st.sampled_from(ONE_VOTER), plenty())
def test_of_lone_pods_it_says_yes_only_where_none_is_refused(
    data: st.DataObject, within: list[QueueView], tiers: Any, total: Resources
) -> None:
    shapes = data.draw(
        st.lists(some().map(lambda made: made.plus(Resources({PODS: 1}))), max_size=3)
    )
    pods = [
        lone(f"p{number}", data.draw(st.sampled_from(QUEUES)), shape)
        for number, shape in enumerate(shapes * 2)
    ]
    running = task("running", request=data.draw(some()), status=Status.RUNNING)
    others = [
        job("running", (running,), phase=Phase.RUNNING),
        job("promised", (), min_resources=data.draw(some())),
    ]
    order = data.draw(st.permutations([pod.uid for pod in pods]))
    gate = opened([*pods, *others], within, tiers, total)
    if gate.all_enqueueable(gate.jobs[uid] for uid in order):
        assert one_by_one(opened([*pods, *others], within, tiers, total), order)


@settings(max_examples=300)
@given(st.data(), queues(), st.sampled_from(SEVERAL), plenty())
def test_of_groups_it_says_yes_only_where_nobody_is_refused(
    data: st.DataObject, within: list[QueueView], tiers: Any, total: Resources
) -> None:
    jobs = [data.draw(groups(f"g{number}")) for number in range(data.draw(st.integers(1, 4)))]
    waiting = [each.uid for each in jobs if each.is_at_gate]
    order = data.draw(st.permutations(waiting))
    gate = opened(jobs, within, tiers, total)
    if gate.all_enqueueable(gate.jobs[uid] for uid in order):
        assert one_by_one(opened(jobs, within, tiers, total), order)


def test_both_answers_come() -> None:
    """So that neither property holds because nobody is ever let in, or everybody is."""
    for room, is_enough in ((3, True), (2, False)):
        within = [queue("q", capability=amounts(room))]
        pods = [lone(f"p{number}", "q", amounts(1)) for number in range(3)]
        gate = opened(pods, within, ONE_VOTER[1], amounts(9))
        assert gate.all_enqueueable(gate.jobs.values()) == is_enough


def test_nobody_who_asks_for_less_than_nothing_makes_room() -> None:
    """Whoever is asked about before him is refused."""
    least = {"greedy": amounts(3), "giving": Resources({GPU: -1_000})}
    jobs = [job(uid, (), phase=Phase.PENDING, min_resources=m) for uid, m in least.items()]
    within = [queue("q", capability=amounts(2))]
    gate = opened(jobs, within, ONE_VOTER[1], amounts(9))
    assert not gate.all_enqueueable(gate.jobs.values())
    assert not one_by_one(gate, ["greedy", "giving"])
