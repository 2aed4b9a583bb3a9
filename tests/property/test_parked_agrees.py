"""Passing pods over costs nobody a place.

Random histories of pods, groups, nodes, queues and policies; after each step a filter that parks
lets decide until nothing is due. None of those who are parked would get a place in a round of their
own. Without a gate and without turns of the namespaces, where those who find no place take nothing
from others, the same pods have the same places as with a filter that tries everybody.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings

from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.plugins.nodegroup import LABEL
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_filter.groups import Groups
from allotment_proto.events import Decided, GroupObserved, PodGone, PolicyLoaded, TimePassed
from allotment_proto.facts import Company, Expression, PluginUse, PodTerm, Policy
from tests import build
from tests.hunting import every_pod_asked
from tests.property.batch_cluster import FIRST, QUEUES, REQUESTS
from tests.property.batch_world import STEPS, Op
from tests.property.lone_world import Lones

CYCLES_MAX = 60


class Cluster(Lones):
    """A log, and a filter on it that parks, or does not."""

    def __init__(self, *, parks: bool) -> None:
        super().__init__()
        self.gangs_made = 0
        self.board = Board(self.state)
        self.filter = Groups(self.state, (lambda: self.board) if parks else None)

    def settle(self) -> None:
        """Decide until nothing is due."""
        decide(self.state, self.filter, self.rounds, self.board)
        self.seq = self.state.seq

    def many(self, a: int, b: int, c: int) -> None:
        """Pods that ask the same, more than there is room for."""
        for number in range(6):
            self.lone(a + number % 2, 0, 3 + c % 2)

    def gangs(self, a: int, b: int, c: int) -> None:
        """Groups that ask the same and were let in; of some not all pods have to start together."""
        for _ in range(1 + a % 3):
            self.gangs_made += 1
            name = f"gang-{self.gangs_made}"
            fact = GroupObserved(
                uid=f"uid-{name}",
                namespace="default",
                name=name,
                rv=self.seq,
                created_ms=self.seq,
                min_member=min(b, 3),
                queue=QUEUES[c % 2],
                phase="Inqueue",
                owner="somebody",
            )
            self.tell(fact)
            for number in range(1 + b % 3):
                uid = f"{name}-{number}"
                request = REQUESTS[3 + (c + number * (a == 5)) % 2]
                changes = {"name": uid, "group": f"default/{name}", "created_ms": self.seq}
                self.tell(build.pod(uid, request, rv=self.seq, **changes))

    def apart(self, a: int, b: int, c: int) -> None:
        """Pods that others keep away from, in a node's group; some of these others."""
        for number in range(1 + a % 3):
            self.gangs_made += 1
            uid = f"apart-{self.gangs_made}"
            request = REQUESTS[3 + c % 2]
            if (b + number) % 3 == 0:
                about = PodTerm(LABEL, ("default",), (Expression("app", "In", ("x",)),))
                request = msgspec.structs.replace(request, company=Company(away=(about,)))
            labels = (("app", "x"),) if b % 2 else ()
            changes = {"name": uid, "created_ms": self.seq, "queue": QUEUES[0], "labels": labels}
            self.tell(build.pod(uid, request, rv=self.seq, **changes))

    def ends(self, a: int, b: int, c: int) -> None:
        """A pod that has a place ends."""
        placed = sorted(uid for uid, pod in self.state.pods.items() if pod.allocation is not None)
        if placed:
            fact = self.state.pods[placed[(7 * a + b) % len(placed)]].fact
            namespace, name = fact.namespace, fact.name
            self.seq += 1
            gone = PodGone(uid=fact.uid, namespace=namespace, name=name, rv=self.seq)
            apply(self.state, gone, self.seq)


def decide(state: ClusterState, groups: Groups, rounds: Rounds, board: Board) -> None:
    for _ in range(CYCLES_MAX):
        found = groups.next_batch(())
        if found is None:
            return
        basis, batch = state.seq, found.batch.uids
        outcome = rounds.run(batch, board)
        if outcome.says_anything:
            decided = Decided(
                cycle="c",
                basis=basis,
                checked=basis,
                policy=state.policy_seq,
                batch=batch,
                placements=outcome.placements,
                refusals=outcome.refusals,
                wholes=outcome.wholes,
                shorts=outcome.shorts,
                admissions=outcome.admissions,
                holds=outcome.holds,
                evictions=outcome.evictions,
                nominations=outcome.nominations,
            )
            apply(state, decided, basis + 1)
        groups.tried(found)
    raise AssertionError("it comes to no rest")


def places(state: ClusterState) -> dict[str, Any]:
    return {
        uid: (pod.allocation.node, pod.allocation.holdings)
        for uid, pod in state.pods.items()
        if pod.allocation is not None
    }


PLUGINS = ("capacity", "proportion", "drf", "nodegroup", "capacity-card")
UNGATED = tuple(
    Policy(tiers=(FIRST, (PluginUse(name),)), actions=("allocate", "backfill", *more))
    for name in PLUGINS
    for more in ((), ("preempt", "reclaim"))
)
OPS: tuple[Any, ...] = (
    Cluster.many,
    Cluster.gangs,
    Cluster.apart,
    Cluster.ends,
    Cluster.lone,
    Cluster.ends,
    Cluster.some_node,
    Cluster.ends,
    Cluster.open_queue,
    Cluster.done,
    Cluster.stranger,
    Cluster.group,
    Cluster.pods,
    Cluster.priority_class,
)


def ungated(world: Cluster, a: int, b: int, c: int) -> None:
    policy = UNGATED[(a + 3 * b) % len(UNGATED)]
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))


def taken(steps: list[Op], ops: tuple[Any, ...], worlds: tuple[Cluster, ...]) -> Iterator[None]:
    """The steps, after each of which all are at rest."""
    for world in worlds:
        ungated(world, 0, 0, 0)
        world.many(0, 0, 0)
    for number, (op, a, b, c) in enumerate([(0, 0, 0, 0), *steps]):
        for world in worlds:
            ops[(op + number) % len(ops)](world, a, b, c)
            world.settle()
        yield


@settings(max_examples=60)
@given(STEPS)
def test_the_same_pods_have_the_same_places(steps: list[Op]) -> None:
    parking, trying = Cluster(parks=True), Cluster(parks=False)
    for _ in taken(steps, (*OPS, ungated), (parking, trying)):
        assert places(parking.state) == places(trying.state)


@settings(max_examples=60)
@given(STEPS)
def test_nobody_is_parked_who_would_get_a_place(steps: list[Op]) -> None:
    world = Cluster(parks=True)
    for _ in taken(steps, (*OPS, Cluster.some_policy), (world,)):
        world.tell(TimePassed(at_ms=world.seq))  # all are asked about, as things are now
        world.settle()
        rounds, ranker = Rounds(world.state), Evaluator(world.state)
        for job in world.filter.lines.parked:
            group = world.state.groups.get(job)
            uids = (job.removeprefix(SINGLE),) if group is None else tuple(group.members)
            with every_pod_asked():
                alone = rounds.run(uids, ranker)
            assert not alone.placements
            assert not alone.evictions
            assert any(world.state.pods[uid].refusal is not None for uid in uids)


def test_pods_are_parked_in_such_histories() -> None:
    world, most = Cluster(parks=True), 0
    steps = [(number % 7, number % 5, number % 3, number % 6) for number in range(80)]
    for _ in taken(steps, (*OPS, ungated), (world,)):
        most = max(most, len(list(world.filter.lines.parked)))
    assert most > 5
