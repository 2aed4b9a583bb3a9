"""What a pod whose claim nobody can read costs the others on its node, until somebody can.

Its share counts on every card that it can be on. Where its share is unknown, too, as of a pod that
cannot be read at all, the node's cards are closed.
"""

from typing import Any

import msgspec

from allotment.core.ledger.check import oversold
from allotment.core.ledger.claims import unreadable
from allotment.core.reasons import CARDS_QUARANTINED, CLAIM_UNREADABLE
from allotment_proto.events import PodObserved
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory, Problem
from tests import build
from tests.pacing import bindable
from tests.unit.device_books import World, adopted, instance, mig_node, share_node, wanting

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


def unread(uid: str, *unplaced: DeviceRequest, rv: int = 1, **changes: Any) -> PodObserved:
    """A pod that others bound and whose claim nobody can read."""
    return adopted(uid, rv=rv, broken=BROKEN, unplaced=unplaced, **changes)


def free(world: World, family: str = "vgpu") -> list[tuple[int, int, int]]:
    """Of each card the free slots, MiB and compute."""
    books = world.state.nodes["n1"].ledgers[family]
    return [(c.free_slots, c.free_memory_mib, c.free_cores_pct) for c in books.cards]


def test_a_small_share_that_may_be_anywhere_costs_a_small_share_of_each_card() -> None:
    world = World(build.node(cards=3), unread("x", build.wants(1_000, 5)))
    assert world.blocked() is None
    assert free(world) == [(9, 15_000, 95)] * 3
    world.tell(*(wanting(uid, 15_000) for uid in "abcd"))
    assert len(world.place("a", "b", "c", "d")) == 3
    assert oversold(world.state) == []


def test_each_container_may_have_a_share_of_the_same_card() -> None:
    second = build.wants(2_000, 10, container=1)
    world = World(build.node(cards=2), unread("x", build.wants(1_000, 5), second))
    assert free(world) == [(8, 13_000, 85)] * 2
    world.audit()


def test_whole_cards_that_may_be_any_close_them_all() -> None:
    """Nothing less is safe: nobody can tell which two are taken."""
    world = World(build.node(cards=3), unread("x", build.wants(0, 100, 2, memory_pct=100)))
    assert free(world) == [(9, 0, 0)] * 3
    world.tell(wanting("a", 1_000))
    assert world.place("a") == []
    world.tell(adopted("x", instance("", 16_000), rv=2))
    assert world.place("a") == [""]


def test_it_counts_on_cards_that_are_seen_later_and_follows_their_sizes() -> None:
    world = World(unread("x", build.wants(0, 5, memory_pct=50)))
    for rv, sizes in ((1, (16_000,)), (2, (16_000, 8_000)), (3, (8_000,))):
        cards = tuple(build.card(n, memory_mib=size) for n, size in enumerate(sizes))
        world.tell(build.node(rv=rv, inventories=(Inventory("vgpu", "hami-core", cards),)))
        assert free(world) == [(9, size // 2, 95) for size in sizes]
        world.audit()


def test_no_card_is_oversold_by_what_may_be_elsewhere() -> None:
    world = World(share_node(), wanting("a", 12_000))
    world.place("a")
    world.tell(unread("x", build.wants(8_000, 0)), unread("y", build.wants(64_000, 100, 2)))
    assert free(world)[0][1] < 0
    assert oversold(world.state) == []
    world.tell(adopted("z", instance("", 8_000)))
    assert oversold(world.state) == ["n1/GPU-0"], "what is certain still counts"


def test_a_mig_card_gives_nothing_while_any_of_its_instances_may_be_taken() -> None:
    """And the cards of the node that are not cut give the rest."""
    cut = mig_node().inventories[0]
    plain = tuple(
        CardFact(str(i), i, "shared GPU", 1_000_000, 8_000, 100, True, "") for i in range(2)
    )
    world = World(build.node(inventories=(cut, Inventory("gpushare", "", plain))))
    world.tell(unread("x", build.wants(1_000, 0)), wanting("a", 1_000))
    assert world.place("a") == []
    shared = build.wants(8_000, 0, family="gpushare")
    world.tell(build.pod("b", build.request(shared)))
    assert world.place("b") == [""]
    world.tell(adopted("x", instance("g1-0"), rv=2))
    assert world.place("a") == ["g1-1"]


def test_a_chip_counts_the_template_that_it_may_have_given() -> None:
    chips = tuple(CardFact(str(i), i, "Ascend310P", 7, 0, 8, True, "") for i in range(2))
    node = build.node(inventories=(Inventory("mindcluster", "", chips),))

    def vnpu(*templates: str, cores: int = 2, count: int = 1) -> DeviceRequest:
        return DeviceRequest("mindcluster", 0, "c0", count, 0, 0, cores, "", templates)

    world = World(node, unread("x", vnpu("vir02")))
    assert free(world, "mindcluster") == [(6, 0, 6)] * 2
    world.tell(build.pod("a", build.request(vnpu("vir04", cores=4))))
    assert world.place("a") == ["vir04"]
    world.tell(unread("x", vnpu("vir04_3c", "vir02", cores=4), rv=2))
    world.tell(build.pod("b", build.request(vnpu("vir01", cores=1))))
    assert world.place("b") == []


def test_what_can_be_read_of_a_claim_counts_where_it_is_and_the_rest_anywhere() -> None:
    known = Holding("vgpu", 0, "GPU-1", 1_000, 0)
    seen = adopted("x", known, broken=BROKEN, unplaced=(build.wants(1_000, 0, 2),))
    world = World(build.node(cards=3), seen)
    assert [mib for _, mib, _ in free(world)] == [15_000] * 3
    books = world.state.nodes["n1"].ledgers["vgpu"]
    assert [bool(card.perhaps) for card in books.cards] == [True, False, True]
    held = world.state.pods["x"].allocation
    assert held is not None
    assert len(held.quota_holdings) == 2, "its queue pays for the two cards that it asks for"
    world.audit()


def test_what_is_said_names_the_annotation_and_the_cards() -> None:
    world = World(build.node(cards=2), unread("x", build.wants(1_000, 5)))
    found = unreadable(world.state.pods["x"])
    assert found == Problem(
        CLAIM_UNREADABLE,
        "annotation",
        "cannot be read: the pod may be on any of these cards of node n1, so its share is reserved "
        "on each of them: GPU-0 (1000 MiB, compute 5), GPU-1 (1000 MiB, compute 5)",
    )
    world.tell(adopted("x", instance("", 1_000), rv=2))
    assert unreadable(world.state.pods["x"]) is None


def test_a_log_from_before_closes_its_node_until_the_pod_is_read_again() -> None:
    world = World(build.node(cards=2), adopted("x", broken=BROKEN))
    assert world.blocked() == CARDS_QUARANTINED
    world.tell(unread("x", build.wants(1_000, 5), rv=2))
    assert world.blocked() is None
    assert free(world) == [(9, 15_000, 95)] * 2
    world.audit()


def test_nobody_waits_for_the_plugin_of_a_pod_whose_claim_nobody_can_read() -> None:
    """Its owner could leave it pending for ever."""
    waits = unread("x", build.wants(1_000, 5))
    world = World(build.node(cards=1), msgspec.structs.replace(waits, phase="Pending"))
    world.tell(wanting("a", 1_000))
    world.place("a")
    assert [held.uid for held in bindable(world.state, ())] == ["a"]


def test_where_it_may_be_says_nothing_about_cards_on_which_pods_could_not_start() -> None:
    failed = adopted("f", instance("", 1_000), owner="owner")
    world = World(build.node(cards=2), failed)
    world.tell(msgspec.structs.replace(failed, rv=2, bind_phase="failed"))
    avoided = world.state.avoided
    assert list(avoided) == ["owner"]
    stranger = unread("x", build.wants(1_000, 5), owner="other")
    world.tell(stranger, msgspec.structs.replace(stranger, rv=2, bind_phase="success"))
    world.tell(msgspec.structs.replace(stranger, rv=3, bind_phase="failed"))
    assert world.state.avoided == avoided
