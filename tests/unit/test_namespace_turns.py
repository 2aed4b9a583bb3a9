"""Namespaces take turns where nothing else orders pods, and nowhere else."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest

from allotment.core.config.policy import built_in, parse
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import NAMESPACES_MAX, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_filter.batches import next_round
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.groups import Groups
from allotment_filter.lines import Entry, Line, Position
from allotment_filter.waiting import Waiting
from allotment_proto.events import (
    Envelope,
    Event,
    PodGone,
    PodObserved,
    PolicyLoaded,
    PriorityClassObserved,
)
from allotment_proto.facts import Policy
from tests import build
from tests.unit.rounds_world import TIERS, World, group

WHOLE = build.request(build.wants(16_000, 0))
TURNS = Policy(tiers=TIERS, namespace_turns=True)
BY_ARRIVAL = Policy(tiers=TIERS)


def pod(namespace: str, number: int, priority: int = 0) -> PodObserved:
    """The pod of a namespace that came as the so-manieth of all; a card is enough for one."""
    uid = f"{namespace}-{number}"
    return build.pod(
        uid, WHOLE, namespace=namespace, name=uid, created_ms=number, priority=priority
    )


class ByQueues(World):
    """One queue, and cycles as filter, scorer and binder turn them."""

    def __init__(self, policy: Policy = TURNS) -> None:
        super().__init__(policy=policy)
        self.groups = Groups(self.state)

    def cycle(self, most: int = 256) -> Sequence[str]:
        found = self.groups.next_batch((), most)
        if found is None:
            return ()
        decided = self.decide(list(found.batch.uids))
        self.groups.tried(found)
        return [placement.uid for placement in decided.placements]

    def batch(self, most: int = 256) -> Sequence[str]:
        found = self.groups.next_batch((), most)
        return () if found is None else found.batch.uids


class OneByOne:
    """No queues: the same for pods by priority and age."""

    def __init__(self, policy: Policy = TURNS) -> None:
        self.state = ClusterState()
        self.feasibility = FeasibilityCache(self.state, Board(self.state))
        self.waiting = Waiting(self.state)
        self.tried: dict[str, int] = {}
        self.tell(PolicyLoaded(policy=policy, source="test", text_sha256=""))

    def tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)
        self.waiting.take(Envelope(v=1, at_ms=1, by="test", events=(event,)))

    def batch(self, most: int = 256) -> Sequence[str]:
        return next_round(self.feasibility, self.tried, {}, most, self.waiting).batch.uids

    def cycle(self, most: int = 256) -> Sequence[str]:
        uids, basis = self.batch(most), self.state.seq
        found = run_cycle(self.state, uids, Evaluator(self.state))
        self.tell(
            build.decided(*found.placements, refusals=found.refusals, batch=uids, basis=basis)
        )
        self.tried.update(dict.fromkeys(uids, basis))
        self.waiting.offered(uids)
        return [placement.uid for placement in found.placements]


Scene = Callable[..., ByQueues | OneByOne]
both = pytest.mark.parametrize("scene", [ByQueues, OneByOne])


def namespaces(uids: Sequence[str]) -> str:
    return "".join(uid.partition("-")[0] for uid in uids)


@both
def test_a_pod_behind_thousands_of_another_namespace_is_in_the_next_batch(scene: Scene) -> None:
    world = scene()
    for number in range(3_000):
        world.tell(pod("a", number))
    world.tell(build.node("n1", 1))
    assert world.cycle() == ["a-0"]
    world.tell(pod("b", 5_000))
    assert "b-5000" in world.batch()[:2]


@both
def test_what_becomes_free_goes_to_the_namespaces_in_turn(scene: Scene) -> None:
    world = scene()
    world.tell(build.node("n1", 1))
    for number, namespace in enumerate("a" * 9 + "b" * 9 + "c" * 9):
        world.tell(pod(namespace, number))
    given = ""
    for _ in range(9):
        (uid,) = world.cycle(8)
        given += namespaces([uid])
        world.tell(PodGone(uid=uid, namespace=given[-1], name=uid, rv=9))
        if not world.state.pending.keys() - {uid}:
            break
    assert given == "abcabcabc"


@both
def test_without_turns_the_older_pod_comes_first(scene: Scene) -> None:
    world = scene(BY_ARRIVAL)
    world.tell(build.node("n1", 1))
    for number, namespace in enumerate("aaab"):
        world.tell(pod(namespace, number))
    assert namespaces(world.batch()) == "aaab"
    assert world.cycle() == ["a-0"]
    assert world.state.served == {}


@both
def test_a_lower_priority_has_no_turn_before_a_higher_one(scene: Scene) -> None:
    world = scene()
    world.tell(PriorityClassObserved(uid="h", name="high", rv=1, value=9))
    for namespace, number, priority in (("a", 0, 9), ("b", 1, 0), ("a", 2, 9), ("c", 3, 9)):
        fact = pod(namespace, number, priority)
        world.tell(msgspec.structs.replace(fact, priority_class="high" if priority else ""))
    assert list(world.batch()) == ["a-0", "c-3", "a-2", "b-1"]


@both
def test_no_namespace_is_passed_over_while_batches_are_small(scene: Scene) -> None:
    """More namespaces wait than a batch has room for, and none of their pods ever fits."""
    world = scene()
    names = [f"n{number:02d}" for number in range(20)]
    for round_ in range(5):
        for number, name in enumerate(names):
            world.tell(pod(name, round_ * 100 + number))
    tried: Counter[str] = Counter()
    for _ in range(20):
        batch = world.batch(5)
        tried.update(uid.partition("-")[0] for uid in batch)
        assert max(tried.values()) - min(tried[name] for name in names) <= 1
        world.cycle(5)
    assert set(tried.values()) == {5}


def test_a_refused_pod_is_not_tried_more_often() -> None:
    world = ByQueues()
    world.tell(build.node("n1", 1))
    for number in range(40):
        world.tell(pod("ab"[number % 2], number))
    tried: Counter[str] = Counter()
    while batch := world.batch(8):
        tried.update(batch)
        world.cycle(8)
    assert set(tried.values()) == {1}


def test_groups_are_let_in_by_turns_and_stay_whole() -> None:
    world = ByQueues(Policy(tiers=TIERS, namespace_turns=True, actions=("enqueue", "allocate")))
    for number in range(6):
        namespace = "b" if number == 5 else "a"
        fact = group(f"g{number}", 2, namespace=namespace, phase="Pending", created_ms=number)
        world.tell(fact)
        for member in range(2):
            uid = f"{namespace}-{number}-{member}"
            world.tell(
                build.pod(uid, WHOLE, namespace=namespace, name=uid, group=f"{namespace}/g{number}")
            )
    session = Rounds(world.state).session()
    assert [uid[0] for uid in enqueue(session).let_in] == list("abaaaa")
    world.tell(build.node("n1", 5))
    assert sorted(world.cycle()) == ["a-0-0", "a-0-1", "b-5-0", "b-5-1"]
    assert list(world.state.served) == ["a", "b"]


def test_whose_turn_it_is_survives_a_snapshot_and_is_bounded() -> None:
    world = OneByOne()
    world.tell(build.node("n1", 1, pods=3 * NAMESPACES_MAX, cpu_milli=10**9, memory_bytes=10**15))
    light = build.request()
    for number in range(NAMESPACES_MAX + 3):
        world.tell(build.pod(f"p{number}", light, namespace=f"ns{number}", created_ms=number))
    while world.cycle():
        pass
    assert list(world.state.served) == [f"ns{n}" for n in range(3, NAMESPACES_MAX + 3)]
    restored = snapshot.decode(snapshot.encode(world.state))
    assert list(restored.served) == list(world.state.served)
    assert snapshot.encode(restored) == snapshot.encode(world.state)


def test_turns_are_the_default_and_can_be_turned_off() -> None:
    assert built_in(("allotment",)).namespace_turns is True
    assert ClusterState().turns is None
    text = """
tiers:
- plugins:
  - name: allotment
    arguments:
      allotment.NamespaceTurnsEnable: false
"""
    assert parse(text, "conf", ("allotment",)).policy.namespace_turns is False


def position(level: int, namespace: str, number: int) -> Position:
    return Position(((level,),), namespace, Entry((number,), f"{namespace}{number}"))


def order(line: Line) -> list[str]:
    return list(line.in_turns(lambda uid: uid))


def test_a_line() -> None:
    line = Line()
    for place in (
        position(1, "a", 1),
        position(0, "a", 9),
        position(1, "a", 2),
        position(1, "b", 3),
    ):
        line.add(place)
    assert order(line) == ["a9", "a1", "b3", "a2"]
    line.had_its_turn(position(1, "a", 1))
    assert order(line) == ["a9", "b3", "a1", "a2"]
    copy = line.copy()
    line.replace(position(1, "b", 3), position(1, "b", 4))
    assert order(line) == ["a9", "b4", "a1", "a2"], "who is changed keeps the namespace's turn"
    line.replace(position(0, "a", 9), None)
    line.take_out_all([position(1, "b", 4), position(1, "a", 1)])
    assert order(line) == ["a2"]
    line.replace(position(1, "a", 7), None)
    line.replace(position(1, "a", 2), None)
    assert not line
    assert order(copy) == ["a9", "b3", "a1", "a2"]


def test_ten_thousand_pods_of_one_namespace_cost_what_a_batch_takes() -> None:
    world = ByQueues()
    world.tell(build.node("n1", 8))
    for number in range(10_000):
        world.tell(pod("a", number))
    world.cycle()
    lines = world.groups.lines
    visited, sorted_in = lines.visited, lines.sorted_in
    world.tell(pod("b", 20_000))
    assert "b-20000" in world.batch()[:2]
    assert lines.visited - visited <= 2 * 256 + 8
    assert lines.sorted_in - sorted_in <= 256 + 1
