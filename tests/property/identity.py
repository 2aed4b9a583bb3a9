"""What else may happen to a `World`: other policies, and changes of what a pod or a group is."""

from collections.abc import Callable

import msgspec

from allotment_proto.events import GroupGone, GroupObserved, PolicyLoaded
from allotment_proto.facts import PluginUse, Policy
from tests.property.batch_cluster import ACTIONS, FIRST, QUEUES
from tests.property.batch_world import World

OTHER_POLICIES = (
    Policy(
        tiers=(FIRST, (PluginUse("overcommit"), PluginUse("capacity-card"))),
        actions=ACTIONS,
    ),
    Policy(
        tiers=(
            (PluginUse("sla", arguments=(("sla-waiting-time", 3),)), PluginUse("gang")),
            (PluginUse("proportion"),),
        ),
        actions=ACTIONS,
    ),
    Policy(tiers=(FIRST, (PluginUse("proportion"),)), actions=ACTIONS, namespace_turns=True),
)


def other_policy(world: World, a: int, b: int, c: int) -> None:
    policy = OTHER_POLICIES[a % len(OTHER_POLICIES)]
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))


def cycle(world: World, a: int, b: int, c: int) -> None:
    world.cycle(a, b, c)


def _some_pod(world: World, a: int, b: int) -> str:
    uids = list(world.state.pods)
    return uids[(7 * a + b) % len(uids)]


def joins(world: World, a: int, b: int, c: int) -> None:
    """A pod is said to be of another group than before, which may not be there."""
    world.see(_some_pod(world, a, b), group=f"default/g{c}")


def leaves(world: World, a: int, b: int, c: int) -> None:
    """A pod is said to be of no group, with the queue that it names, or as of old."""
    world.see(_some_pod(world, a, b), group="", queue=(*QUEUES, "")[c % 4])


def seen_again(world: World, a: int, b: int, c: int) -> None:
    world.see(_some_pod(world, a, b), labels=(("step", str(world.seq)),))


def made_again(world: World, a: int, b: int, c: int) -> None:
    """A PodGroup of the same name, in some queue; the log may or may not have the old one's end."""
    name = f"g{a}"
    known = world.state.groups.get(f"default/{name}")
    if known is not None and known.fact is not None and b % 2:
        gone = known.fact
        world.tell(GroupGone(uid=gone.uid, namespace="default", name=name, rv=world.seq))
        if b == 5:
            return
    world.tell(
        GroupObserved(
            uid=f"uid-{name}-{world.seq}",
            namespace="default",
            name=name,
            rv=world.seq,
            created_ms=world.seq,
            queue=QUEUES[c % 3],
            phase=("Pending", "Inqueue")[b % 2],
        )
    )


def moved(world: World, a: int, b: int, c: int) -> None:
    """A PodGroup is in another queue, of which there may be none."""
    known = world.state.groups.get(f"default/g{a}")
    if known is not None and known.fact is not None:
        queue = (*QUEUES, "nowhere")[c % 4]
        world.tell(msgspec.structs.replace(known.fact, queue=queue, rv=world.seq))


def runs(world: World, a: int, b: int, c: int) -> None:
    """A pod is seen on a node: if others go now, it may be one of them."""
    world.see(_some_pod(world, a, b), node="n0", phase="Running")


def comes(world: World, a: int, b: int, c: int) -> None:
    world.pods(a, 0, c)


def ends(world: World, a: int, b: int, c: int) -> None:
    if len(world.state.pods) > 1:
        world.pod(a, b, 0)


IDENTITY: tuple[Callable[[World, int, int, int], None], ...] = (
    *(joins, leaves, seen_again, made_again, moved, runs, comes, ends),
    *(joins, leaves, World.queue, cycle),
)
