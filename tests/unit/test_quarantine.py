"""A node is closed while nobody knows what a pod on it holds, and opens when it is known again."""

import msgspec

from allotment.core.reasons import CARDS_QUARANTINED
from allotment_proto.facts import Problem
from tests.unit.device_books import World, adopted, instance, share_node, wanting

BROKEN = Problem("BrokenAssignment", "annotation", "cannot be read")


def test_a_pod_that_stays_broken_stays_in_the_way() -> None:
    world = World(share_node(), adopted("x", broken=BROKEN))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(adopted("x", rv=2, broken=BROKEN, labels=(("a", "b"),)))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(adopted("x", rv=3, broken=BROKEN))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(adopted("x", instance("", 4_000), rv=4))
    assert world.blocked() is None
    world.tell(adopted("x", instance("", 4_000), rv=5, broken=BROKEN))
    assert world.blocked() is None, "what it holds was read: its owner cannot close the node"
    world.audit()


def test_a_claim_of_which_only_a_part_can_be_read_closes_the_node() -> None:
    world = World(share_node(), adopted("x", instance("", 4_000), broken=BROKEN))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(adopted("x", instance("", 4_000), rv=2))
    assert world.blocked() is None
    world.audit()


def test_a_pod_that_we_placed_is_known_even_if_its_annotation_breaks() -> None:
    world = World(share_node(), wanting("a", 4_000))
    world.place("a")
    given = world.state.pods["a"].allocation
    assert given is not None
    seen = msgspec.structs.replace(
        world.state.pods["a"].fact, rv=2, node="n1", phase="Running", holdings=given.holdings
    )
    world.tell(seen)
    for rv in (3, 4):
        world.tell(msgspec.structs.replace(seen, rv=rv, holdings=(), broken=BROKEN))
        assert world.blocked() is None
        allocation = world.state.pods["a"].allocation
        assert allocation is not None
        assert allocation.holdings == given.holdings
        world.audit()


def test_a_node_that_is_seen_anew_stays_closed() -> None:
    """A heartbeat, a label, a restart of the device plugin: nobody knows any better for it."""
    world = World(share_node(), adopted("x", broken=BROKEN))
    world.tell(share_node(rv=2))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(wanting("a", 1_000))
    assert world.place("a") == []
    world.audit()
