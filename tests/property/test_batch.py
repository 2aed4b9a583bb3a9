"""Random queues, groups, pods and nodes, through filter, rounds, binder's check and fold.

Held at every step: what is kept in memory answers as what is made afresh; a snapshot changes
nothing; no gang gets a part of its minimum; no queue gets more than its quota. And in the end, with
room for all, everything that may be placed is.
"""

from hypothesis import given, settings

from allotment.core.ledger import snapshot
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.views import Views
from allotment_proto.events import PodGone, PolicyLoaded, QueueObserved
from tests import build
from tests.picture import picture_of
from tests.property.batch_cluster import POLICIES, QUEUES
from tests.property.batch_world import OPS, STEPS, Op, World
from tests.unit.queues_parts import in_values


def drain(world: World) -> None:
    """Room and quota for all, nobody leaving: everything is placed, in a few cycles."""
    for name in QUEUES:
        world.tell(QueueObserved(uid=name, name=name, rv=world.seq))
    world.tell(PolicyLoaded(policy=POLICIES[0], source="", text_sha256=""))
    for number in range(4):
        cards = [build.card(index, id=f"big{number}-{index}") for index in range(100)]
        many = {"cpu_milli": 1_000_000, "memory_bytes": 1 << 44, "pods": 500}
        world.tell(build.node(f"big{number}", cards, **many))
    for uid, pod in list(world.state.pods.items()):
        if pod.fact.deleting or uid in world.state.evicting:
            world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=world.seq))
        elif pod.fact.gated:
            world.see(uid, gated=False)
    cycles = 0
    while (found := world.groups.next_batch((), 16)) is not None:
        cycles += 1
        assert cycles < 60 + len(world.state.pods), "it never ends"
        world.decide(world.seq, found.batch.uids, world.round(found.batch.uids))
        world.groups.tried(found)
    session = Rounds(world.state).session()
    for uid in world.state.pending:
        key = world.state.pods[uid].fact.group
        group = world.state.groups.get(key)
        assert group is not None, uid
        if group.fact is not None:
            assert session.job_valid(session.jobs[key]) is not None, uid
        else:
            refusal = world.state.pods[uid].refusal
            assert refusal is not None, uid
            assert refusal.problem is not None, uid
            assert refusal.problem.code == "GroupMissing"


@settings(max_examples=60)
@given(STEPS)
def test_groups_through_a_life(steps: list[Op]) -> None:
    world = World()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 3, 3)
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)
        assert in_values(world.views.view()) == in_values(Views(world.state).view())
        assert world.model.picture() == picture_of(world.state)
    image = snapshot.encode(world.state)
    restored = snapshot.decode(image)
    assert snapshot.encode(restored) == image
    assert picture_of(restored) == picture_of(world.state)
    world.metered.check()
    drain(world)
