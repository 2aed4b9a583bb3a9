"""That quota covers lone pods is known from an older answer, until that may have changed."""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import SINGLE
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.session import Session
from allotment_board.board import Board
from allotment_proto.events import Event, NodeGone, PodObserved, PriorityClassObserved
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.batch_parts import gone, seen
from tests.unit.lone_pods import lone, queue
from tests.unit.rounds_world import World, group

FIRST = (PluginUse("priority"), PluginUse("gang"))
CAPACITY, PROPORTION, OVERCOMMIT = (
    Policy(tiers=(FIRST, (PluginUse(name),)), actions=("enqueue", "allocate"))
    for name in ("capacity", "proportion", "overcommit")
)
EVICTING, RECLAIMING = (
    Policy(
        tiers=((PluginUse("priority"),), (PluginUse("capacity"),)),
        actions=("enqueue", "allocate", action),
    )
    for action in ("preempt", "reclaim")
)
EVERY = (CAPACITY, PROPORTION, OVERCOMMIT)
CPUS = 20
"""Of the one node; a lone pod asks for two."""


def world_of(policy: Policy, *events: Event) -> World:
    """A pod has its place, and an answer was given that its queue's quota covers it."""
    node = build.node("n1", 0, cpu_milli=CPUS * 1_000, pods=100)
    world = World(node, *events, lone("first"), policy=policy)
    world.decide(["first"])
    assert (world.rounds.at_once, world.rounds.unasked) == (1, 0)
    return world


def arrive(world: World, count: int, queue_name: str = "default") -> list[str]:
    uids = [f"{queue_name}-{world.seq}-{number}" for number in range(count)]
    for uid in uids:
        world.tell(lone(uid, queue=queue_name))
    return uids


def run(world: World, batch: list[str]) -> tuple[Outcome, bool]:
    """What a round says, which is what it says that asks job by job, and whether it was told from
    an older answer.
    """
    before = world.rounds.unasked
    found = world.rounds.run(batch, world.board)
    state = world.state
    plain = Rounds(state, one_by_one=True).run(batch, Board(state))
    assert msgspec.json.encode(found) == msgspec.json.encode(plain)
    return found, world.rounds.unasked > before


@pytest.mark.parametrize("policy", [*EVERY, EVICTING])
def test_the_next_pods_are_told_from_it(policy: Policy) -> None:
    world = world_of(policy)
    for _ in range(2):
        found, known = run(world, arrive(world, 2))
        assert known
        assert len(found.placements) == 2
        world.decide()
    assert world.rounds.unasked >= 2


def test_pods_that_come_and_go_do_not_end_it() -> None:
    world = world_of(CAPACITY, queue("default", capability=(("cpu", 10_000),)))
    for _ in range(20):
        (uid,) = arrive(world, 1)
        found, known = run(world, [uid])
        assert known
        assert found.placements
        world.decide()
        world.bind()
        world.tell(gone(uid))


def test_what_can_be_spared_is_worked_out_ever_more_seldom_where_it_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the queue changes after every round. Once an answer was of use, it is worth it again."""
    worked_out: list[str] = []
    plain = Session.spare

    def spare(session: Session, name: str) -> Any:
        worked_out.append(name)
        return plain(session, name)

    monkeypatch.setattr(Session, "spare", spare)
    world = world_of(CAPACITY)
    for number in range(60):
        world.tell(queue("default", rv=9 + number, weight=1 + number % 2))
        uids = arrive(world, 1)
        assert not run(world, uids)[1]
        world.tell(gone(uids[0]))
    assert 1 < len(worked_out) < 8
    while not run(world, uids := arrive(world, 1))[1]:
        world.tell(gone(uids[0]))
    before = len(worked_out)
    for number in range(2):
        world.tell(queue("default", rv=99 + number, weight=1 + number % 2))
        assert not run(world, arrive(world, 1))[1]
    assert len(worked_out) > before


def test_no_more_than_can_be_spared_is_told_from_it() -> None:
    """Quota for five pods, of which one has a place, and is counted waiting and placed."""
    world = world_of(CAPACITY, queue("default", capability=(("cpu", 10_000),)))
    found, known = run(world, arrive(world, 5))
    assert not known
    assert (len(found.placements), len(found.refusals)) == (4, 1)


def test_pods_that_got_places_since_take_of_it() -> None:
    world = world_of(CAPACITY, queue("default", capability=(("cpu", 10_000),)))
    for number in range(3):
        world.tell(lone(f"there-{number}", node="n1", phase="Running"))
    found, known = run(world, arrive(world, 2))
    assert not known
    assert (len(found.placements), len(found.refusals)) == (1, 1)


def test_of_another_queue_it_says_nothing() -> None:
    world = world_of(CAPACITY, queue("one", capability=(("cpu", 2_000),)))
    found, known = run(world, arrive(world, 2, "one"))
    assert not known
    assert (len(found.placements), len(found.refusals)) == (1, 1)


def test_pods_of_another_scheduler_take_of_it() -> None:
    """Nothing is let in beyond 1.2 times the node: 24 CPUs, of which others take 18."""
    world = world_of(OVERCOMMIT)
    for number in range(9):
        world.tell(lone(f"x{number}", node="n1", scheduler="other", queue=""))
    found, known = run(world, arrive(world, 3))
    assert not known
    assert [refusal.uid for refusal in found.refusals]


def test_what_others_hold_cannot_be_spared() -> None:
    others = (lone(f"x{n}", node="n1", scheduler="other", queue="") for n in range(8))
    world = world_of(OVERCOMMIT, *others)
    found, known = run(world, arrive(world, 4))
    assert not known
    assert found.refusals


def test_pods_that_others_place_take_of_it_once() -> None:
    """Not again each time that something is seen of them."""
    world = world_of(OVERCOMMIT)
    for number in range(20):
        world.tell(lone("x", node="n1", scheduler="other", queue="", rv=2 + number))
        assert run(world, arrive(world, 1) if not number else [*world.state.pending])[1]


def replaced(world: World, before: list[str], now: list[PodObserved]) -> None:
    """Pods go, and as many of their kind come."""
    for uid in before:
        world.tell(gone(uid))
    for pod in now:
        world.tell(pod)


def test_pods_of_a_node_that_is_gone_were_not_in_use() -> None:
    """Who comes for them takes room, although the queue has as many pods as before."""
    lost = build.node("x", 0, cpu_milli=CPUS * 1_000, pods=100)
    there = [lone(f"x{n}", node="x", phase="Running") for n in range(8)]
    world = World(
        build.node("n1", 0, cpu_milli=CPUS * 1_000, pods=100), lost, *there, policy=OVERCOMMIT
    )
    world.tell(NodeGone(name="x", uid="uid-x", rv=9))
    world.tell(lone("first"))
    world.decide(["first"])
    news = [lone(f"y{n}", node="n1", phase="Running") for n in range(7)]
    replaced(world, [pod.uid for pod in there], news)
    big = build.request(cpu_milli=7_000, memory_bytes=0)
    world.tell(build.pod("a", big, queue="default", created_ms=1))
    world.tell(lone("b", created_ms=2))
    assert {refusal.uid for refusal in run(world, ["a", "b"])[0].refusals} == {"a"}


def test_a_pod_that_asks_for_less_once_it_is_placed_holds_what_it_was_given() -> None:
    big = build.request(cpu_milli=16_000, memory_bytes=0)
    world = World(
        build.node("n1", 0, cpu_milli=CPUS * 1_000, pods=100),
        build.pod("big", big, queue="default"),
        policy=OVERCOMMIT,
    )
    world.decide(["big"])
    seen(world, "big", request=build.request(cpu_milli=1_000, memory_bytes=0))
    nine = build.request(cpu_milli=9_000, memory_bytes=0)
    world.tell(build.pod("p", nine, queue="default"))
    found, known = run(world, ["p"])
    assert not known
    assert found.refusals


def test_what_a_node_does_not_list_is_not_in_use_there() -> None:
    """Its device plugin is gone; the pods that come instead are on a node that has one."""
    two = build.request(cpu_milli=0, memory_bytes=0, extended=(("foo", 2),))

    def wants_two(uid: str, **changes: Any) -> PodObserved:
        return build.pod(uid, two, queue="default", **changes)

    there = [wants_two(f"x{n}", node="x", phase="Running") for n in range(8)]
    world = World(
        build.node("n1", 0, pods=100, extended=(("foo", 20),)),
        build.node("x", 0, pods=100),
        *there,
        wants_two("first"),
        policy=OVERCOMMIT,
    )
    world.decide(["first"])
    news = [wants_two(f"y{n}", node="n1", phase="Running") for n in range(8)]
    replaced(world, [pod.uid for pod in there], news)
    uids = [f"p{n}" for n in range(4)]
    for uid in uids:
        world.tell(wants_two(uid))
    assert len(run(world, uids)[0].refusals) == 3


@pytest.mark.parametrize("policy", EVERY)
def test_a_group_ends_it(policy: Policy) -> None:
    """All are asked, and none waits for what the PodGroup was let in for."""
    world = world_of(policy)
    asked = (("cpu", 18_000), ("pods", 9))
    world.tell(group("g", 9, min_resources=asked, owner="somebody"))
    found, known = run(world, arrive(world, 3))
    assert not known
    assert len(found.placements) == 3


def test_a_group_at_the_gate_ends_it() -> None:
    world = world_of(CAPACITY)
    world.tell(group("g", 1, phase="Pending", min_resources=(("cpu", 1_000),), owner="somebody"))
    found, known = run(world, arrive(world, 1))
    assert not known
    assert found.admissions, "the group is let in"


def test_while_a_group_waits_for_its_queue_all_are_asked() -> None:
    """Each round refuses it, whoever else is in the batch."""
    waits = group("g", 1, phase="Pending", queue="nowhere", owner="somebody")
    world = world_of(CAPACITY, waits)
    assert not run(world, arrive(world, 1))[1]


def test_what_other_queues_ask_for_cannot_be_spared() -> None:
    """Where there is not enough for all, a queue deserves what its weight says."""
    world = world_of(
        PROPORTION, queue("one", weight=9), *(lone(f"o{n}", queue="one") for n in range(9))
    )
    found, known = run(world, arrive(world, 3))
    assert not known
    assert found.refusals


def test_what_a_queue_is_guaranteed_cannot_be_spared() -> None:
    """Not even while the queue has no pods: once it has one, it deserves that."""
    world = world_of(
        PROPORTION,
        queue("one", guarantee=(("cpu", 10_000),)),
        queue("two", weight=9),
        *(lone(f"t{n}", queue="two") for n in range(4)),
    )
    world.tell(lone("o", queue="one"))
    found, known = run(world, arrive(world, 1))
    assert not known
    assert found.refusals


@pytest.mark.parametrize("policy", EVERY)
def test_a_node_that_goes_ends_it(policy: Policy) -> None:
    other = build.node("n2", 0, cpu_milli=80_000, pods=100)
    world = world_of(policy, other)
    assert run(world, arrive(world, 1))[1]
    world.tell(NodeGone(name="n2", uid="uid-n2", rv=99))
    assert not run(world, arrive(world, 1))[1]


@pytest.mark.parametrize("policy", EVERY)
def test_a_change_of_the_queue_ends_it(policy: Policy) -> None:
    world = world_of(policy)
    world.tell(queue("default", rv=9, state="Closed"))
    found, known = run(world, arrive(world, 1))
    assert not known
    assert bool(found.refusals) == (policy is not OVERCOMMIT)


SMALL = [build.node(f"small{n}", 0, cpu_milli=1_000, pods=9) for n in range(50)]
"""Nodes that make quota ample, and have room for nobody."""


def test_who_must_go_is_told_by_books_of_now() -> None:
    """Quota covers the pod and no node has room. The other queue has borrowed since the answer."""
    due = (("cpu", 10_000),), (("cpu", 2_000),)
    queues = (queue(name, deserved=cpu) for name, cpu in zip(("default", "one"), due, strict=True))
    world = world_of(RECLAIMING, *queues, *SMALL)
    for number in range(CPUS // 2 - 1):
        world.tell(lone(f"o{number}", queue="one", node="n1", phase="Running"))
    found, known = run(world, arrive(world, 1))
    assert known
    assert len(found.evictions) == 1


def test_a_node_that_is_kept_for_somebody_ends_it() -> None:
    high = PriorityClassObserved(uid="h", name="high", rv=1, value=1_000)
    world = world_of(EVICTING, high, *SMALL)
    for _ in range(CPUS // 2 - 1):
        world.decide(arrive(world, 1))
    world.bind()
    world.tell(lone("urgent", priority_class="high"))
    (evicted,) = world.decide(["urgent"]).evictions
    world.tell(gone(evicted.uid))
    found, known = run(world, arrive(world, 1))
    assert not known
    assert found.refusals


def test_who_only_wants_pods_in_their_order_opens_no_plugin() -> None:
    """As the filter does: a pod of each kind is asked about once."""
    world = world_of(PROPORTION)
    uids = arrive(world, 3)
    for _ in range(2):
        session = world.rounds.session()
        assert all(session.place_in_line(SINGLE + uid) is not None for uid in uids)
    opened: list[str] = []
    session.open_all(lambda kind, name: opened.append(name))
    assert opened == ["priority", "gang", "proportion"]


def test_books_are_those_of_before_the_first_is_let_in() -> None:
    """A session that was asked nothing before counts a group that it lets in once."""
    asked = (("cpu", 4_000),)
    waits = group("g", 1, phase="Pending", min_resources=asked, owner="somebody")
    world = world_of(PROPORTION)
    world.tell(waits)
    session = world.rounds.session()
    session.let_in(session.jobs["default/g"])
    proportion = session.plugin("proportion")
    assert isinstance(proportion, Proportion)
    assert proportion.books["default"].inqueue.amount("cpu") == 4_000
