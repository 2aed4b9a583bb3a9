"""A pod that others bound, and nobody can read on which cards it is: whatever it really holds, no
card is oversold for it, and what it cannot hold is given out."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.partitions import share_mib
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import Event, PodGone
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Problem
from tests import build
from tests.model import Model
from tests.picture import picture_of

UNREAD = Problem("BrokenAssignment", "annotation volcano.sh/vgpu-ids-new", "is cut off")
STRANGER = "stranger"

asks = st.builds(
    lambda memory, percent, cores, count, container: build.wants(
        0 if percent else memory, cores, count, memory_pct=percent, container=container
    ),
    st.sampled_from((500, 3_000, 8_000, 16_000, 40_000)),
    st.sampled_from((0, 0, 0, 10, 50, 100)),
    st.sampled_from((0, 0, 10, 50, 100)),
    st.integers(1, 3),
    st.integers(0, 2),
)
cards = st.lists(
    st.tuples(st.sampled_from((8_000, 16_000, 24_000)), st.sampled_from((1, 2, 10))),
    min_size=1,
    max_size=4,
)


def real(ask: DeviceRequest, card: CardFact) -> Holding:
    """What the device plugin gives of a card."""
    memory_mib = ask.memory_mib or share_mib(card.memory_mib, ask.memory_pct)
    return Holding("vgpu", ask.container, card.id, memory_mib, ask.cores_pct)


@given(
    cards,
    st.lists(asks, min_size=1, max_size=2, unique_by=lambda ask: ask.container),
    st.lists(asks, max_size=5),
    st.lists(asks, max_size=8),
    st.booleans(),
    st.data(),
)
def test_whatever_card_it_is_on_none_is_oversold(
    sizes: list[tuple[int, int]],
    stranger: list[DeviceRequest],
    before: list[DeviceRequest],
    after: list[DeviceRequest],
    is_node_last: bool,
    data: st.DataObject,
) -> None:
    state, model = ClusterState(), Model()
    board = Board(state)

    def tell(*events: Event) -> None:
        for event in events:
            seq = state.seq + 1
            apply(state, event, seq)
            model.observe(event, seq)
            assert check(state) == []
            assert model.picture() == picture_of(state)

    def place(batch: dict[str, DeviceRequest]) -> None:
        tell(*(build.pod(uid, build.request(ask)) for uid, ask in batch.items()))
        found = run_cycle(state, tuple(batch), Evaluator(state))
        assert run_cycle(state, tuple(batch), board) == found
        if found.placements:
            tell(build.decided(*found.placements))
        assert not state.voided

    inventory = build.node(cards=1).inventories[0]
    listed = tuple(
        build.card(number, memory_mib=memory_mib, slots=slots)
        for number, (memory_mib, slots) in enumerate(sizes)
    )
    node = build.node(inventories=(msgspec.structs.replace(inventory, cards=listed),))
    seen = build.pod(
        STRANGER,
        build.request(*stranger),
        node="n1",
        phase="Running",
        broken=UNREAD,
        unplaced=tuple(stranger),
    )
    if is_node_last:
        tell(seen, node)
    else:
        tell(node)
        place({f"b{number}": ask for number, ask in enumerate(before)})
        tell(seen)
    assert state.nodes["n1"].blocked is None
    crowded = oversold_with(state, listed, stranger)
    place({f"a{number}": ask for number, ask in enumerate(after)})
    held = {uid: pod.allocation for uid, pod in state.pods.items()}
    assert oversold_with(state, listed, stranger) == crowded
    image = snapshot.encode(state)
    assert snapshot.encode(snapshot.decode(image)) == image

    # as soon as it can be read it holds that and nothing else
    cards_of = data.draw(st.permutations(listed))
    claim = tuple(real(a, c) for a in stranger for c in cards_of[: a.count])
    mended = msgspec.structs.replace(seen, rv=2, broken=None, unplaced=(), holdings=claim)
    tell(mended)
    booked = state.pods[STRANGER].allocation
    assert booked is not None
    assert booked.holdings == claim
    assert not any(card.perhaps for card in state.nodes["n1"].ledgers["vgpu"].cards)
    again = msgspec.structs.replace(seen, rv=3)
    tell(again)
    booked = state.pods[STRANGER].allocation
    assert booked is not None
    assert booked.holdings == claim, "what it holds was read: its owner cannot take more by garbage"
    tell(PodGone(uid=STRANGER, namespace="default", name=STRANGER, rv=4))
    assert {u: a for u, a in held.items() if u != STRANGER} == {
        uid: pod.allocation for uid, pod in state.pods.items()
    }
    assert oversold(state) == []


def oversold_with(
    state: ClusterState, listed: tuple[CardFact, ...], stranger: list[DeviceRequest]
) -> dict[str, list[str]]:
    """By card, which others are on one that is oversold if the stranger has a share of it of every
    container: whichever it really has, it is one of these or less."""
    ledger = state.nodes["n1"].ledgers["vgpu"]
    found: dict[str, list[str]] = {}
    for card in listed:
        books = ledger.by_id[card.id]
        others = {key[0]: held for key, held in books.holders.items() if key[0] != STRANGER}
        mine = [real(ask, card) for ask in stranger]
        taken = [*others.values(), *mine]
        if (
            len(taken) > card.slots
            or sum(held.memory_mib for held in taken) > card.memory_mib
            or sum(held.cores_pct for held in taken) > card.cores_pct
        ):
            found[card.id] = sorted(others)
    return found
