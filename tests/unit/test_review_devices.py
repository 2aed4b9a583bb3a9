"""What a review of the device families found: each of these went wrong before."""

import json
from typing import Any

import msgspec
import pytest

from allotment.core.board import Board
from allotment.core.bulk import picture_of, rebuild
from allotment.core.check import check
from allotment.core.cuts import mindcluster
from allotment.core.cuts.mig import MIG, MUDDLED
from allotment.core.cycle import Evaluator, careful, run_cycle
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import NodeSource
from allotment.core.reasons import CARDS_QUARANTINED, GPU_MODE_MISMATCH
from allotment.core.state import ClusterState, apply
from allotment_binder.bindings import obstacle_to
from allotment_proto.codec import encode
from allotment_proto.events import Envelope, Event, NodeObserved, PodGone, PodObserved
from allotment_proto.facts import Geometry, Holding, Inventory, Problem, Profile
from allotment_proto.volcano import device_config, keys
from allotment_proto.volcano.mindcluster import TEMPLATES
from tests import build, chips

TABLE = (
    Geometry("g1", (Profile("1g", 2_000, 7),)),
    Geometry("g2", (Profile("2g", 4_000, 3), Profile("1g", 2_000, 1))),
    Geometry("g3", (Profile("3g", 8_000, 2),)),
    Geometry("g4", (Profile("7g", 16_000, 1),)),
)
BROKEN = Problem("BrokenAssignment", "annotation", "cannot be read")


def mig_node(table: tuple[Geometry, ...] = TABLE, *, rv: int = 1, **card: Any) -> NodeObserved:
    facts = (build.card(0, mode="mig", table=0, **card),)
    return build.node(rv=rv, inventories=(Inventory("vgpu", "mig", facts, (table,)),))


def share_node(rv: int = 1) -> NodeObserved:
    return build.node(rv=rv, cards=1)


def instance(name: str, memory_mib: int = 1_000) -> Holding:
    return Holding("vgpu", 0, "GPU-0", memory_mib, 0, name)


def adopted(uid: str, *held: Holding, rv: int = 1, **changes: Any) -> PodObserved:
    wanted = build.request(build.wants(1_000, 0))
    return build.pod(uid, wanted, rv=rv, node="n1", phase="Running", holdings=held, **changes)


def wanting(uid: str, memory_mib: int = 0, memory_pct: int = 0, cores_pct: int = 0) -> PodObserved:
    return build.pod(uid, build.request(build.wants(memory_mib, cores_pct, memory_pct=memory_pct)))


class World:
    """A state, and everything that was told to it."""

    def __init__(self, *events: Event) -> None:
        self.state = ClusterState()
        self.payloads: list[bytes] = []
        self.board = Board(self.state)
        self.tell(*events)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.payloads.append(encode(Envelope(v=1, at_ms=0, by="test", events=(event,))))
            apply(self.state, event, len(self.payloads))

    def place(self, *uids: str) -> list[str]:
        """Decides on these pods; gives the instances they got. Nothing of it may be void."""
        wanted = run_cycle(self.state, uids, Evaluator(self.state))
        assert run_cycle(self.state, uids, self.board) == wanted
        self.tell(build.decided(*wanted.placements))
        assert self.state.voided == {}, "what was offered is not covered by the books"
        self.audit()
        return [h.instance for p in wanted.placements for h in p.holdings]

    def audit(self) -> None:
        assert check(self.state) == []
        books = rebuild(enumerate(self.payloads, start=1))
        assert books.picture() == picture_of(self.state)

    def blocked(self) -> str | None:
        node = self.state.nodes["n1"]
        assert all(ledger.blocked == node.blocked for ledger in node.ledgers.values())
        return node.blocked


# ---- MIG: what is offered is covered


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


def test_positions_are_written_in_one_way_only() -> None:
    assert MIG.state(build.card(0), TABLE, ("g1-00",)) == MUDDLED
    assert not MIG.admits(build.card(0), TABLE, ("g1-0",), ("g1-00",))


# ---- nodes that change under running pods


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


# ---- quarantine


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
    assert world.blocked() == CARDS_QUARANTINED, "what can be read is not all of it"
    world.tell(adopted("x", instance("", 4_000), rv=6))
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


def test_a_stranger_put_our_pod_on_the_same_card_but_on_another_instance() -> None:
    world = World(mig_node(), wanting("a", 1_000), wanting("b", 1_000))
    assert world.place("a") == ["g1-0"]
    fact = world.state.pods["a"].fact
    world.tell(msgspec.structs.replace(fact, rv=2, node="n1", holdings=(instance("g1-1"),)))
    world.audit()
    assert world.place("b") == ["g1-0"], "the second instance is in use, the first is not"


# ---- cards on which a pod could not start


def started(uid: str, rv: int, phase: str = "success") -> PodObserved:
    return msgspec.structs.replace(adopted(uid, instance("", 1_000), rv=rv), bind_phase=phase)


def test_a_pod_that_runs_for_long_says_nothing_of_its_card() -> None:
    world = World(share_node(), started("old", 1, ""), started("old", 2))
    failing = msgspec.structs.replace(started("x", 3, ""), owner="rs", phase="Pending")
    world.tell(failing, msgspec.structs.replace(failing, rv=4, bind_phase="failed"))
    shunned = {"rs": {("n1", "vgpu", "GPU-0"): 5}}
    assert world.state.shunned == shunned
    world.tell(started("old", 5))
    assert world.state.shunned == shunned, "it started before"
    world.tell(started("new", 6, ""), started("new", 7))
    assert world.state.shunned == {}
    world.tell(msgspec.structs.replace(failing, rv=8, bind_phase="failed"))
    assert world.state.shunned == {}, "it failed before"
    pod = build.pod("b", owner="rs")
    assert careful(pod, world.state).selection.shunned == ()


def test_a_pod_that_kubelet_refuses_did_not_start_whatever_the_plugin_says() -> None:
    served = msgspec.structs.replace(started("x", 2), owner="rs", phase="Pending")
    world = World(share_node(), started("x", 1, ""), served)
    refused = {"reason": "UnexpectedAdmissionError", "phase": "Failed"}
    world.tell(msgspec.structs.replace(served, rv=3, **refused))
    assert world.state.shunned == {"rs": {("n1", "vgpu", "GPU-0"): 4}}


# ---- kinds


def npu_node() -> NodeObserved:
    return chips.node("n1", chips.inventory("mindcluster", chips.npu_source(4)))


def odd(uid: str, chip: int, *templates: str) -> list[PodObserved]:
    """Pods with pieces that never fit together on one chip."""
    return [
        build.pod(
            f"{uid}{number}",
            build.request(),
            node="n1",
            phase="Running",
            holdings=(Holding("mindcluster", 0, str(chip), 0, 1, template),),
        )
        for number, template in enumerate(templates)
    ]


def test_states_that_only_others_bring_about_do_not_make_all_kinds_anew() -> None:
    world = World(npu_node())
    columns = world.board._columns
    world.board.begin()
    world.board.end()
    before = len(columns.kinds)
    for number, templates in enumerate(
        (
            ("vir01", "vir04_4c_dvpp"),
            ("vir02_1c", "vir04_4c_dvpp"),
            ("vir02", "vir04_4c_dvpp"),
            ("vir01", "vir01", "vir04_4c_dvpp"),
        )
    ):
        world.tell(*odd(f"x{number}", number, *templates))
        world.board.begin()
        world.board.end()
    assert len(columns.kinds) <= before + 20
    assert len(columns.kinds) <= columns.layout.kinds_most
    source = chips.pod_source(chips.npu(1))
    for uid in "abcdefgh":
        world.tell(chips.pod(uid, "mindcluster", source))
    world.place(*"abcdefgh")


def test_every_state_that_pieces_can_bring_about_is_known_beforehand() -> None:
    for cores in (8, 10):
        card = chips.inventory("mindcluster", chips.npu_source(2, cores)).cards[0]
        known = set(mindcluster.MINDCLUSTER.states(card, ()))
        for state in list(known):
            for template in TEMPLATES.values():
                assert mindcluster._after(card, state, template) in known


@pytest.mark.parametrize(
    ("template", "fits"),
    [("vir01", False), ("vir04_3c_ndvpp", True), ("vir04_4c_dvpp", False), ("", False)],
)
def test_the_bulk_road_knows_which_pieces_a_chip_gives(template: str, fits: bool) -> None:
    world = World(npu_node(), *odd("x", 0, "vir04_4c_dvpp"), build.pod("a", build.request()))
    piece = Holding("mindcluster", 0, "0", 0, 1, template)
    world.tell(build.decided(build.placement("a", "n1", piece)))
    assert (world.state.pods["a"].allocation is not None) == fits
    world.audit()
    world.tell(*(PodGone(uid=uid, namespace="", name="", rv=9) for uid in ("x0", "a")))
    world.audit()


def many_profiles(number: int, each: int) -> str:
    geometries = [{"name": f"{n}g", "memory": 100 + n, "count": each} for n in range(number)]
    entry = {"models": ["X"], "allowedGeometries": [{"group": "g", "geometries": geometries}]}
    return json.dumps({"nvidia": {"knownMigGeometries": [entry]}})


@pytest.mark.parametrize(("number", "each"), [(64, 1), (16, 4), (7, 9)])
def test_a_table_that_could_be_cut_in_millions_of_ways_is_refused(number: int, each: int) -> None:
    parsed = device_config.parse(many_profiles(number, each), "cm")
    assert parsed.config is None
    assert "InvalidDeviceConfig" not in {p.code for p in parsed.problems}
    assert any("states" in p.message for p in parsed.problems)


def test_a_table_like_that_of_any_real_card_is_taken() -> None:
    assert device_config.parse(many_profiles(7, 1), "cm").config is not None
    assert device_config.parse(many_profiles(1, 64), "cm").config is not None


# ---- text that cannot be written to the log


@pytest.mark.parametrize("text", ["\\ud800", "a\\udfffb"])
def test_half_characters_never_reach_the_log(text: str) -> None:
    register = json.dumps([chips.entry("C-0")]).replace("C-0", text)
    source = chips.ascend_source(chips.entry("C-0"))
    annotations = {**source.annotations, keys.hami_register("Ascend310P"): register}
    inventory, problems = FAMILIES["ascend"].inventory(source._replace(annotations=annotations))
    assert inventory is None
    assert problems
    event = build.node(problems=problems)
    encode(Envelope(v=1, at_ms=0, by="test", events=(event,)))


@pytest.mark.parametrize(
    "document",
    [
        '{"nvidia": {"knownMigGeometries": [{"models": ["\\ud800"], "allowedGeometries": '
        '[{"group": "g", "geometries": [{"name": "1g", "memory": 1, "count": 1}]}]}]}}',
        '{"nvidia": {"\\ud800": 1}}',
        '{"vnpus": [{"commonWord": "A", "chipName": "\\ud800", "memoryAllocatable": 1}]}',
    ],
)
def test_half_characters_in_the_configuration(document: str) -> None:
    parsed = device_config.parse(document, "cm")
    msgspec.json.encode([parsed.config, parsed.problems, parsed.warnings])


def test_half_characters_in_the_nodes_configuration() -> None:
    text = '{"nodeconfig": [{"name": "\\ud800", "filterdevices": {"uuid": ["\\udc00"]}}]}'
    parsed = device_config.parse_nodes(text, "cm")
    msgspec.json.encode([parsed.nodes, parsed.problems, parsed.warnings])
