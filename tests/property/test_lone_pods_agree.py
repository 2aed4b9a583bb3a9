"""Rounds of lone pods that are kept up to date say what rounds say that are opened afresh.

Random histories of queues, nodes and pods without PodGroups, now and then a group among them. Each
round is run both ways, and both must say the same to the last byte; so must the binder's check, of
the round's own placements and of others.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_proto.events import PolicyLoaded, PriorityClassObserved, QueueObserved
from allotment_proto.facts import Policy
from tests import build
from tests.property.batch_cluster import CLASSES, QUEUES, REQUESTS
from tests.property.batch_world import World
from tests.property.lone_world import EVICTING, UNGATED, USUAL, Lones

OPS = (
    World.cycle,
    Lones.lone,
    World.cycle,
    Lones.done,
    World.cycle,
    Lones.lone,
    Lones.some_node,
    Lones.some_policy,
    Lones.open_queue,
    World.victims,
    World.stranger,
    World.priority_class,
    World.pods,
    World.group,
)
NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS), min_size=15, max_size=40
)


@settings(max_examples=80)
@given(STEPS)
def test_kept_rounds_are_fresh_ones(steps: list[tuple[int, int, int, int]]) -> None:
    world = Lones()
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)


FEW = st.integers(1, 6)


@settings(max_examples=250)
@given(
    st.data(),
    st.sampled_from((*USUAL, *UNGATED, EVICTING, EVICTING)),
    st.lists(FEW, min_size=4, max_size=4),
)
def test_where_quota_and_room_are_nearly_enough(
    data: st.DataObject, policy: Policy, sizes: list[int]
) -> None:
    """One batch for a queue, and what it and another one have."""
    cpus, limit, others, pods = sizes
    world = Lones()
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    for number in range(2):
        world.tell(build.node(f"n{number}", 0, rv=9, cpu_milli=1_000 * cpus, pods=pods + 2))
    for name in QUEUES[:2]:
        capability = (("cpu", 1_000 * limit), ("memory", 1 << 50), ("pods", pods + 1))
        limits = capability if data.draw(st.booleans()) else ()
        guarantee = (("cpu", 1_000),) if data.draw(st.booleans()) else ()
        world.tell(QueueObserved(uid=name, name=name, rv=9, capability=limits, guarantee=guarantee))
    for value, name in enumerate(CLASSES[1:]):
        world.tell(PriorityClassObserved(uid=name, name=name, rv=9, value=value))

    def lone(name: str, **more: Any) -> None:
        request = data.draw(st.sampled_from(REQUESTS[1:3]))
        classes = data.draw(st.sampled_from(CLASSES))
        world.tell(build.pod(name, request, name=name, rv=9, priority_class=classes, **more))

    for number in range(others):
        placed = {"node": f"n{number % 2}", "phase": "Running"} if number % 3 else {}
        lone(f"other-{number}", queue=QUEUES[data.draw(st.integers(0, 1))], **placed)
    for number in range(pods):
        lone(f"p-{number}", queue=QUEUES[0], namespace=f"ns{number % 2}")
    waiting = [uid for uid in world.state.pending if world.state.pods[uid].fact.queue == QUEUES[0]]
    world.round(waiting[: data.draw(FEW)])
    world.round(waiting)


def test_where_quota_is_short_some_are_refused() -> None:
    world = Lones()
    world.open_queue(0, 0, 4)  # two CPUs
    for number in range(3):
        name = f"l-{number}"
        world.tell(build.pod(name, REQUESTS[1], name=name, rv=1, queue=QUEUES[0]))
    found = world.round(list(world.state.pending))
    assert (len(found.placements), len(found.refusals)) == (2, 1)
