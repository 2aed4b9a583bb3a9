"""Cards that are shared otherwise, or cut by another table, while pods are on them."""

import pytest

from allotment.core.reasons import GPU_MODE_MISMATCH
from allotment_binder.bindings import obstacle_to
from allotment_proto.events import NodeObserved, PodGone
from allotment_proto.facts import Geometry, Profile
from tests import build
from tests.unit.device_books import World, adopted, instance, mig_node, share_node, wanting


def test_a_share_on_a_node_that_becomes_mig() -> None:
    world = World(share_node(), adopted("x", instance("", 4_000)), wanting("a", 1_000))
    world.tell(mig_node(rv=2))
    assert world.place("a") == [], "nobody knows which instances the share would take"
    world.tell(adopted("y", instance("g1-0"), rv=5))
    world.audit()
    world.tell(PodGone(uid="x", namespace="", name="", rv=9))
    world.audit()
    assert world.place("a") == ["g1-1"]


def test_a_reservation_of_an_instance_beside_a_share() -> None:
    world = World(share_node(), adopted("x", instance("", 4_000)), wanting("a", 1_000))
    world.tell(mig_node(rv=2))
    late = build.placement("a", "n1", instance("g1-0"))
    world.tell(build.decided(late))
    assert world.state.pods["a"].allocation is None
    world.audit()


def test_a_table_that_changes_under_running_pods() -> None:
    other = (Geometry("g1", (Profile("1g", 3_000, 4),)),)
    world = World(mig_node(), adopted("x", instance("g1-5")), adopted("y", instance("g1-1")))
    world.tell(mig_node(other, rv=2), wanting("a", 2_500))
    world.audit()
    assert world.place("a") == []
    world.tell(PodGone(uid="x", namespace="", name="", rv=9))
    assert world.place("a") == ["g1-0"]
    world.tell(mig_node(rv=3))
    world.audit()
    world.tell(share_node(rv=4))
    world.audit()
    world.tell(mig_node(rv=5))
    world.audit()


@pytest.mark.parametrize(
    ("before", "after", "is_bound"),
    [
        (share_node(), mig_node(rv=2), False),
        (mig_node(), share_node(rv=2), False),
        (mig_node(), mig_node((Geometry("g9", (Profile("1g", 4_000, 2),)),), rv=2), False),
        (mig_node(), mig_node(rv=2, slots=5), True),
        (share_node(), share_node(2), True),
    ],
)
def test_nothing_is_bound_to_a_card_that_is_shared_otherwise_now(
    before: NodeObserved, after: NodeObserved, is_bound: bool
) -> None:
    world = World(before, wanting("a", 1_000))
    world.place("a")
    allocation = world.state.pods["a"].allocation
    assert allocation is not None
    assert obstacle_to(world.state, allocation) is None
    world.tell(after)
    obstacle = obstacle_to(world.state, allocation)
    assert (obstacle is None) == is_bound
    if obstacle is not None:
        assert obstacle[0] == GPU_MODE_MISMATCH
