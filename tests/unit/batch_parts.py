"""What tests of groups, queues and rounds have in common."""

from typing import Any

import msgspec

from allotment_proto.events import Event, PodGone, PodObserved
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.model import Model
from tests.unit.rounds_world import World

CAPACITY = Policy(tiers=((PluginUse("priority"), PluginUse("gang")), (PluginUse("capacity"),)))
STARVING = PluginUse("gang", off=("enableReclaimable",))
NOTHING_ASKED = build.request(cpu_milli=0, memory_bytes=0)
LIMITED = (("pods", 2), ("cpu", 100_000), ("memory", 1 << 50))
"""A queue for two pods."""


def gone(uid: str) -> PodGone:
    return PodGone(uid=uid, namespace="default", name=uid, rv=99)


def seen(world: World, uid: str, **changes: Any) -> PodObserved:
    """The pod once more, as its API object looks after a change."""
    fact = world.state.pods[uid].fact
    changed = msgspec.structs.replace(fact, rv=fact.rv + 1, **changes)
    world.tell(changed)
    return changed


def bound(world: World, *uids: str) -> None:
    """The pods are seen running where they were put."""
    for uid in uids:
        held = world.state.pods[uid].allocation
        assert held is not None
        seen(world, uid, node=held.node, holdings=held.holdings, phase="Running")


def model_of(world: World, *events: Event) -> Model:
    """The model of the nodes and pods as they are, and then of these events."""
    model = Model()
    nodes = [node.fact for node in world.state.nodes.values() if node.fact is not None]
    pods = [pod.fact for pod in world.state.pods.values()]
    for seq, event in enumerate((*nodes, *pods, *events), start=1):
        model.observe(event, seq)
    return model
