"""MIG under random arrivals and departures: nothing twice, nothing lost, the same on both roads."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.partitions.mig import CONTRADICTORY
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.events import Event, PodGone, PolicyLoaded
from allotment_proto.facts import DeviceRequest, Inventory, Policy
from tests import build
from tests.metering import Metered
from tests.model import Model
from tests.picture import picture_of
from tests.strategies import MIG_TABLE, SMALL_TABLE

pytestmark = pytest.mark.usefixtures("scoring")

UIDS = tuple("abcdefghijkl")
TABLES = (MIG_TABLE, SMALL_TABLE)


def mig_node(name: str, cards: int, rv: int = 1) -> Event:
    facts = tuple(
        build.card(
            index,
            id=f"{name}-{index}",
            memory_mib=4_000 if index % 3 == 2 else 16_000,
            mode="mig",
            table=1 if index % 3 == 2 else 0,
        )
        for index in range(cards)
    )
    return build.node(name, 0, rv=rv, inventories=(Inventory("vgpu", "mig", facts, TABLES),))


asks = st.builds(
    lambda memory, percent, count, container: build.wants(
        0 if percent else memory, 0, count, memory_pct=percent, container=container
    ),
    st.sampled_from((500, 1_900, 2_000, 3_950, 5_000, 8_000, 15_000)),
    st.sampled_from((0, 0, 0, 30, 100)),
    st.sampled_from((1, 1, 1, 2)),
    st.just(0),
)
several = st.one_of(
    st.tuples(asks),
    st.tuples(asks, asks.map(lambda ask: build.wants(ask.memory_mib or 1, 0, container=1))),
)


class World:
    """A state, everything that was told to it, and the board that follows it."""

    def __init__(self, policy: Policy) -> None:
        self.state, self.model, self.seq = ClusterState(), Model(), 0
        self.board = Board(self.state)
        self.metered = Metered(self.state)
        self.tell(PolicyLoaded(policy=policy, source="test", text_sha256=""))

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)
        self.model.observe(event, self.seq)
        self.metered.took(self.seq)

    def place(self, batch: list[str]) -> None:
        wanted = run_cycle(self.state, batch, Evaluator(self.state))
        assert run_cycle(self.state, batch, self.board) == wanted
        if wanted.placements:
            self.tell(build.decided(*wanted.placements))
            assert not self.state.voided, "what was decided is covered by the books"

    def audit(self) -> None:
        assert check(self.state) == []
        assert self.model.picture() == picture_of(self.state)
        for node in self.state.nodes.values():
            for card in node.ledgers["vgpu"].cards:
                held = Counter(card.held)
                assert set(held.values()) <= {1}, f"given twice: {held}"
                assert card.state != CONTRADICTORY
                assert card.free_memory_mib >= 0
                assert (card.state == ()) == (not held)


@given(
    st.sampled_from(tuple(POLICY_NUMBERS)),
    st.sampled_from(("best-fit", "least-stranded", "listed")),
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(UIDS), several),
            st.sampled_from(UIDS),
            st.lists(st.sampled_from(UIDS), min_size=1, max_size=6, unique=True),
        ),
        max_size=40,
    ),
)
def test_random_life(
    policy: str,
    order: str,
    steps: list[tuple[str, tuple[DeviceRequest, ...]] | str | list[str]],
) -> None:
    world = World(Policy(device_policy=policy, mig_order=order))
    world.tell(mig_node("n1", 3))
    world.tell(mig_node("n2", 2))
    for step in steps:
        if isinstance(step, str):
            world.tell(PodGone(uid=step, namespace="default", name=step, rv=99))
        elif isinstance(step, list):
            world.place(step)
        elif step[0] not in world.state.pods:
            world.tell(build.pod(step[0], build.request(*step[1])))
        world.audit()
    for uid in list(world.state.pods):
        world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=99))
    world.audit()
    world.metered.check()
    cards = [card for node in world.state.nodes.values() for card in node.ledgers["vgpu"].cards]
    assert all(card.state == () and card.free_memory_mib == card.fact.memory_mib for card in cards)
