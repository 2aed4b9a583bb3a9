"""Views that are kept from round to round are those that would be made afresh."""

import msgspec

from allotment.core.queues.round.views import Views
from allotment_proto.events import (
    Bound,
    DevicesConfigured,
    NodeGone,
    PolicyLoaded,
)
from allotment_proto.facts import Policy
from tests import build
from tests.unit.batch_parts import CAPACITY, bound, gone, seen
from tests.unit.queues_parts import in_values
from tests.unit.rounds_world import TIERS, World


class TestKeptViews:
    """What is kept from round to round is what would be made afresh."""

    def agrees(self, world: World) -> None:
        kept = self.views.view()
        assert in_values(kept) == in_values(Views(world.state).view())

    def test_after_all_that_a_view_depends_on(self) -> None:
        world = World(build.node("n1", 4), policy=CAPACITY)
        self.views = Views(world.state)
        uids = world.gang("a", 2)
        world.decide()
        self.agrees(world)
        labels = (("nvidia.com/gpu.memory", "16000"), ("nvidia.com/gpu.product", "T4"))
        world.tell(build.node("n1", 4, rv=2, labels=labels, extended=(("nvidia.com/gpu", 4),)))
        self.agrees(world)
        world.tell(gone(uids[0]))
        self.agrees(world)
        world.gang("b", 2)
        self.agrees(world)
        world.tell(
            PolicyLoaded(
                policy=Policy(tiers=TIERS, scheduler_names=("else",)), source="", text_sha256=""
            )
        )
        self.agrees(world)
        seen(world, "b-w-0", group="default/a")
        self.agrees(world)
        seen(world, "b-w-1", group="")
        self.agrees(world)
        nvidia = msgspec.structs.replace(world.state.devices.nvidia, memory_name="x/memory")
        devices = msgspec.structs.replace(world.state.devices, nvidia=nvidia)
        world.tell(DevicesConfigured(config=devices, source="", text_sha256=""))
        self.agrees(world)
        world.tell(NodeGone(uid="uid-n1", name="n1", rv=9))
        self.agrees(world)

    def test_of_pods_without_a_group(self) -> None:
        world = World(build.node("n1", 4))
        self.views = Views(world.state)
        world.tell(build.pod("solo"))
        self.agrees(world)
        decided = world.decide()
        self.agrees(world)
        world.tell(
            Bound(uid="solo", namespace="default", name="pod-solo", node="n1", decision=world.seq)
        )
        assert decided.placements
        self.agrees(world)
        bound(world, "solo")
        self.agrees(world)
        seen(world, "solo", deleting=True)
        self.agrees(world)
        world.tell(gone("solo"))
        self.agrees(world)


def test_a_node_that_changes_is_the_only_one_that_is_read_again() -> None:
    nodes = [build.node(f"n{number}", 4) for number in range(20)]
    totals = Views((world := World(*nodes)).state).totals
    totals.follow()
    assert totals.read == len(nodes)
    world.tell(build.node("n7", 4, rv=2, extended=(("nvidia.com/gpu", 4),)))
    world.tell(NodeGone(uid="uid-n3", name="n3", rv=9))
    totals.follow()
    assert totals.read == len(nodes) + 1
    anew = Views(world.state).totals
    anew.follow()
    assert (totals.offered, totals.cards) == (anew.offered, anew.cards)
    assert totals.offered["nvidia.com/gpu"] == 4_000
