"""MIG nodes whose tables and modes change under pods, with strangers who give instances twice.

Whatever comes: what is offered is covered by the books, the board answers as the evaluator, the
dumb list of shares ends in the same books, and so does a restart from a snapshot.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.events import BindFailed, Event, NodeObserved, PodGone, PolicyLoaded
from allotment_proto.facts import NO_TABLE, Geometry, Holding, Inventory, Policy, Problem, Profile
from tests import build
from tests.metering import Metered
from tests.model import Model
from tests.picture import picture_of
from tests.strategies import MIG_TABLE, SMALL_TABLE

NODES = ("n1", "n2")
UIDS = tuple("abcdefgh")
STRANGERS = tuple("stuv")
LARGE = (
    Geometry("g1", (Profile("1g", 2_500, 7),)),
    Geometry("g3", (Profile("3g", 8_200, 2),)),
    Geometry("g4", (Profile("7g", 17_000, 1),)),
)
"""With more memory than its card has."""
ONE_BY_ONE = (Geometry("g2", tuple(Profile(f"{n}g", n * 1_000, 1) for n in range(1, 6))),)
TABLES = (MIG_TABLE, SMALL_TABLE, LARGE, ONE_BY_ONE)
BROKEN = Problem("BrokenAssignment", "annotation", "cannot be read")


@st.composite
def nodes(draw: st.DrawFn, rv: int) -> NodeObserved:
    name = draw(st.sampled_from(NODES))
    mode = draw(st.sampled_from(("mig", "mig", "mig", "mig", "hami-core", "mps")))
    tables = tuple(draw(st.permutations(TABLES))[: draw(st.integers(1, 3))])
    closed = st.sampled_from((0,) * 6 + (-1, NO_TABLE))
    cards = tuple(
        build.card(
            index,
            id=f"{name}-{index}",
            memory_mib=draw(st.sampled_from((4_000, 16_000, 16_000))),
            slots=draw(st.sampled_from((1, 10, 10))),
            healthy=draw(st.integers(0, 7)) > 0,
            table=-1
            if mode != "mig"
            else chosen
            if (chosen := draw(closed))
            else draw(st.integers(0, len(tables) - 1)),
        )
        for index in range(draw(st.integers(1, 3)))
    )
    inventory = Inventory("vgpu", mode, cards, tables if mode == "mig" else ())
    return build.node(name, 0, rv=rv, inventories=(inventory,))


held = st.lists(
    st.builds(
        Holding,
        st.just("vgpu"),
        st.integers(0, 1),
        st.sampled_from(("n1-0", "n1-0", "n1-1", "n2-0", "unheard")),
        st.sampled_from((0, 500, 2_000, 4_000)),
        st.sampled_from((0, 0, 25, 100)),
        st.sampled_from(("", "g1-0", "g1-0", "g1-1", "g2-1", "g2-3", "g3-1", "g3-9", "g9-0")),
    ),
    max_size=3,
).map(tuple)
asks = st.builds(
    lambda memory, percent, cores, count: build.wants(
        0 if percent else memory, cores, count, memory_pct=percent
    ),
    st.sampled_from((500, 1_900, 2_500, 3_950, 8_000, 15_000)),
    st.sampled_from((0, 0, 0, 30, 99, 100)),
    st.sampled_from((0, 0, 0, 10, 100)),
    st.sampled_from((1, 1, 1, 2)),
)
policies = st.builds(
    Policy,
    device_policy=st.sampled_from(tuple(POLICY_NUMBERS)),
    mig_order=st.sampled_from(("best-fit", "least-stranded", "listed")),
)


class World:
    """A state and everything that follows it."""

    def __init__(self) -> None:
        self.state, self.model, self.seq = ClusterState(), Model(), 0
        self.board = Board(self.state)
        self.metered = Metered(self.state)

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)
        self.metered.took(self.seq)
        self.model.observe(event, self.seq)

    def place(self, batch: list[str]) -> None:
        wanted = run_cycle(self.state, batch, Evaluator(self.state))
        assert run_cycle(self.state, batch, self.board) == wanted
        for refusal in wanted.refusals:
            assert sum(count for _, count in refusal.reasons) == refusal.nodes
        for uid in batch:
            if uid in self.state.pods:
                self.compare_bounds(uid)
        if wanted.placements:
            self.tell(build.decided(*wanted.placements))
            voided = [p for p in wanted.placements if p.uid in self.state.voided]
            assert not voided, "what was offered is not covered"

    def compare_bounds(self, uid: str) -> None:
        request, fresh = self.state.pods[uid].fact.request, Evaluator(self.state)
        self.board.begin()
        fresh.begin()
        assert fresh.holds_at_most(request, 99) == self.board.holds_at_most(request, 99)
        self.board.end()
        fresh.end()

    def see(self, uid: str, **changes: Any) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None:
            self.tell(msgspec.structs.replace(pod.fact, rv=self.seq + 2, **changes))

    def audit(self) -> None:
        assert check(self.state) == []
        assert self.model.picture() == picture_of(self.state)
        image = snapshot.encode(self.state)
        again = snapshot.decode(image)
        assert snapshot.encode(again) == image
        assert picture_of(again) == picture_of(self.state)
        for name, node in self.state.nodes.items():
            twin = again.nodes[name]
            assert twin.blocked == node.blocked
            for family, ledger in node.ledgers.items():
                other = twin.ledgers[family]
                assert other.blocked == ledger.blocked == node.blocked
                for card in ledger.cards:
                    restored = other.by_id[card.fact.id]
                    assert (restored.state, restored.tags) == (card.state, card.tags)
                    assert restored.holders == card.holders
            broken = {
                uid
                for uid, pod in self.state.pods.items()
                if pod.allocation is not None
                and pod.allocation.node == name
                and pod.fact.broken is not None
                and not pod.fact.unplaced
                and not pod.allocation.seq
            }
            assert node.broken == broken, "a node is quarantined as long as a pod is broken"


@settings(max_examples=max(60, settings().max_examples))
@given(policies, st.data())
def test_changing_tables(policy: Policy, data: st.DataObject) -> None:
    world = World()
    world.tell(PolicyLoaded(policy=policy, source="test", text_sha256=""))
    world.tell(data.draw(nodes(1)))
    world.tell(data.draw(nodes(1)))
    steps = ("node", "pod", "pod", "place", "place", "stranger", "gone", "seen", "failed", "broken")
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=25)):
        uid = data.draw(st.sampled_from(UIDS))
        match step:
            case "node":
                world.tell(data.draw(nodes(world.seq + 2)))
            case "pod":
                if uid not in world.state.pods:
                    world.tell(build.pod(uid, build.request(data.draw(asks))))
            case "place":
                world.place(list(data.draw(st.permutations(UIDS))))
            case "stranger":
                name = data.draw(st.sampled_from(STRANGERS))
                fact = build.pod(name, rv=world.seq + 2, node="n1", holdings=data.draw(held))
                world.tell(fact)
            case "broken":
                name = data.draw(st.sampled_from(UIDS + STRANGERS))
                pod = world.state.pods.get(name)
                if pod is not None and pod.fact.node:
                    broken = data.draw(st.sampled_from((BROKEN, BROKEN, None)))
                    unplaced = data.draw(st.lists(asks, max_size=2).map(tuple)) if broken else ()
                    changes = {"broken": broken, "unplaced": unplaced}
                    world.see(name, holdings=data.draw(held), **changes)
            case "gone":
                name = data.draw(st.sampled_from(UIDS + STRANGERS))
                world.tell(PodGone(uid=name, namespace="", name="", rv=world.seq))
            case "seen":
                pod = world.state.pods.get(uid)
                if pod is not None and pod.allocation is not None:
                    mine = pod.allocation
                    world.see(uid, node=mine.node, holdings=mine.holdings, phase="Running")
            case "failed":
                pod = world.state.pods.get(uid)
                if pod is not None and pod.allocation is not None:
                    of: Any = {"uid": uid, "namespace": "", "name": "", "node": "", "code": ""}
                    world.tell(BindFailed(**of, decision=pod.allocation.seq, message=""))
            case _:
                raise AssertionError(step)
        world.audit()
    world.metered.check()
