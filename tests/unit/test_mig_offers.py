"""MIG: what is offered is covered by the books, whatever others hold and the tables say."""

import msgspec
import pytest

from allotment.core.ledger.partitions.mig import CONTRADICTORY, MIG
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NodeSource
from allotment_proto.events import PodGone
from allotment_proto.facts import Geometry, Profile
from allotment_proto.volcano import device_config, keys
from tests import build
from tests.unit.device_books import TABLE, World, adopted, instance, mig_node, wanting


def test_others_gave_one_instance_twice_and_the_card_still_takes_pods() -> None:
    """Volcano does that (Q3): the instance is in use, the others are not."""
    world = World(mig_node(), adopted("x", instance("g1-0")), adopted("y", instance("g1-0")))
    world.tell(wanting("a", 1_500), wanting("b", 1_500))
    assert world.place("a", "b") == ["g1-1", "g1-2"]
    world.tell(PodGone(uid="x", namespace="", name="", rv=9))
    world.tell(wanting("c", 1_500))
    assert world.place("c") == ["g1-3"], "y still has the first"


def test_every_instance_that_a_container_got_of_one_card_is_charged() -> None:
    """Ours gives one a card; others may give more, and all of them are in use."""
    two = msgspec.structs.replace(
        adopted("x", instance("g1-0")), holdings=(instance("g1-0"), instance("g1-1"))
    )
    world = World(mig_node(), two)
    card = world.state.nodes["n1"].ledgers["vgpu"].cards[0]
    assert (card.used_slots, sorted(card.held)) == (2, ["g1-0", "g1-1"])
    assert card.used_memory_mib == 2 * card.charged_mib(instance("g1-0"))
    world.tell(wanting("a", 1_500))
    assert world.place("a") == ["g1-2"]
    world.tell(PodGone(uid="x", namespace="", name="", rv=9))
    world.tell(wanting("b", 1_500), wanting("c", 1_500))
    assert world.place("b", "c") == ["g1-0", "g1-1"]


def test_a_table_with_more_memory_than_the_card_registers() -> None:
    """An A100 40GB registers 40,536 MiB, and the shipped table says 7g.40gb has 40,960."""
    source = NodeSource(
        {keys.NODE_VGPU_REGISTER: "GPU-0,10,40536,NVIDIA-NVIDIA A100-SXM4-40GB,true,mig:"},
        {},
        {keys.VGPU_NUMBER: "10", keys.VGPU_MEMORY: "40536", keys.VGPU_CORES: "100"},
        config=device_config.default(),
    )
    inventory, problems = FAMILIES["vgpu"].inventory(source)
    assert inventory is not None
    assert problems == ()
    node = build.node(inventories=(inventory,))
    assert World(node, wanting("a", memory_pct=100)).place("a") == ["group4-0"]
    world = World(node, wanting("a", 20_480), wanting("b", 20_480))
    assert world.place("a", "b") == ["group3-0", "group3-1"]


@pytest.mark.parametrize("memory_mib", [15_000, 9_000, 16_000])
def test_a_piece_that_the_cards_memory_does_not_cover_is_not_offered(memory_mib: int) -> None:
    world = World(mig_node(memory_mib=memory_mib), *(wanting(uid, 7_500) for uid in "abc"))
    world.tell(adopted("x", instance("g3-0")))
    world.place("a", "b", "c")
    for uid in "abc":
        pod = world.state.pods[uid]
        assert pod.allocation is not None or uid in world.state.pending
    assert World(mig_node(memory_mib=memory_mib), wanting("a", 9_000)).place("a") == (
        ["g4-0"] if memory_mib == 16_000 else []
    )


def test_two_on_one_instance_leave_no_memory_for_another_that_seems_free() -> None:
    table = (Geometry("g1", (Profile("3g", 7_900, 2),)),)
    world = World(mig_node(table), adopted("x", instance("g1-0")), adopted("y", instance("g1-0")))
    world.tell(wanting("a", 100))
    assert world.place("a") == []


def test_whole_compute_needs_a_card_without_holders_in_mig_too() -> None:
    world = World(mig_node(), wanting("a", 1_000), wanting("b", 1_000, cores_pct=100))
    world.place("a", "b")
    assert world.state.pods["b"].allocation is None
    world.tell(PodGone(uid="a", namespace="", name="", rv=9))
    assert world.place("b") == ["g1-0"]
    world.tell(wanting("c", 1_000))
    assert world.place("c") == []


def test_a_stranger_put_our_pod_on_the_same_card_but_on_another_instance() -> None:
    world = World(mig_node(), wanting("a", 1_000), wanting("b", 1_000))
    assert world.place("a") == ["g1-0"]
    fact = world.state.pods["a"].fact
    world.tell(msgspec.structs.replace(fact, rv=2, node="n1", holdings=(instance("g1-1"),)))
    world.audit()
    world.tell(build.bind_failed("a", world.state.decision_seq))
    world.audit()
    assert world.place("b") == ["g1-0"], "the second instance is in use, the first is not"


def test_positions_are_written_in_one_way_only() -> None:
    assert MIG.state(build.card(0), TABLE, ("g1-00",)) == CONTRADICTORY
    assert not MIG.admits(build.card(0), TABLE, ("g1-0",), ("g1-00",))
