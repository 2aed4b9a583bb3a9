"""Which cards a request gets on a node, card by card, and the reason when there are none."""

from collections.abc import Sequence

import pytest

from allotment.core import reasons
from allotment.core.ledger.ledger import Ledger
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import Given, Rules, choose_cards
from allotment.core.placement.devices.free import CardOrder, Free, in_order
from allotment.core.placement.policies import POLICIES
from allotment_proto.facts import CardFact, DeviceRequest, Holding, Inventory, Selection
from tests import build


def chosen(
    cards: list[CardFact],
    *wanted: DeviceRequest,
    held: tuple[tuple[str, Holding], ...] = (),
    policy: str = "binpack",
    selection: Selection = Selection(),  # noqa: B008 - frozen
    only: Given | None = None,
) -> list[str] | str:
    ledger = Ledger(Inventory("vgpu", "hami-core", tuple(cards)))
    for uid, holding in held:
        ledger.charge(uid, holding)
    found = choose_cards(ledger, wanted, Rules(selection), FAMILIES["vgpu"], by(policy), only)
    return found if isinstance(found, str) else [h.card for h in found.holdings]


def by(policy: str) -> CardOrder:
    return lambda cards, wanted: in_order(cards, POLICIES[policy].order)


THREE = [build.card(0), build.card(1), build.card(2)]
ONE_USED = (("x", build.holding("GPU-1", 8_000, 50)),)


@pytest.mark.parametrize(
    ("policy", "cards"),
    [("binpack", ["GPU-1", "GPU-0"]), ("spread", ["GPU-0", "GPU-2"]), ("none", ["GPU-2", "GPU-1"])],
)
def test_order_of_cards(policy: str, cards: list[str]) -> None:
    assert chosen(THREE, build.wants(count=2), held=ONE_USED, policy=policy) == cards


def test_given_cards_are_not_ranked() -> None:
    """Where nothing is left to choose nobody asks the policy, which may be dear."""
    ledger = Ledger(Inventory("vgpu", "hami-core", tuple(THREE)))
    wanted, asked = build.wants(count=2), 0

    def order(cards: Sequence[Free], wanted: DeviceRequest) -> Sequence[Free]:
        nonlocal asked
        asked += 1
        return cards

    def choose(*cards: str) -> list[str] | str:
        only = {("vgpu", 0): set(cards)}
        found = choose_cards(ledger, [wanted], Rules(), FAMILIES["vgpu"], order, only)
        return found if isinstance(found, str) else sorted(h.card for h in found.holdings)

    assert choose("GPU-0", "GPU-2") == ["GPU-0", "GPU-2"]
    assert choose("GPU-0", "GPU-9") == reasons.NOT_ENOUGH_GPUS_ON_NODE
    assert asked == 0
    assert choose("GPU-0", "GPU-1", "GPU-2") == ["GPU-0", "GPU-1"]
    assert asked == 1


def test_a_later_container_sees_what_an_earlier_one_took() -> None:
    two = (build.wants(container=0), build.wants(container=1))
    assert chosen(THREE, *two, policy="binpack") == ["GPU-0", "GPU-0"]
    assert chosen(THREE, *two, policy="spread") == ["GPU-0", "GPU-1"]


def test_percentages_are_of_each_card() -> None:
    cards = [build.card(0, memory_mib=16_001), build.card(1, memory_mib=8_001)]
    ledger = Ledger(Inventory("vgpu", "hami-core", tuple(cards)))
    wanted = build.wants(0, 0, 2, memory_pct=50)
    found = choose_cards(ledger, [wanted], Rules(), FAMILIES["vgpu"], by("binpack"))
    assert not isinstance(found, str)
    assert [h.memory_mib for h in found.holdings] == [8_000, 4_000]


FULL = (("x", build.holding("GPU-0", 16_000, 0)),)
BUSY = (("x", build.holding("GPU-0", 0, 100)),)


@pytest.mark.parametrize(
    ("cards", "wanted", "held", "selection", "reason"),
    [
        ([build.card(0)], build.wants(count=2), (), Selection(), reasons.NOT_ENOUGH_GPUS_ON_NODE),
        ([build.card(0)], build.wants(), (), Selection(mode="mig"), reasons.GPU_MODE_MISMATCH),
        ([build.card(0)], build.wants(), (), Selection(indexes=(1,)), reasons.GPU_NOT_SELECTED),
        ([build.card(0)], build.wants(), (), Selection(use_ids=("x",)), reasons.GPU_NOT_SELECTED),
        (
            [build.card(0)],
            build.wants(),
            (),
            Selection(use_ids=("GPU-0",), nouse_ids=("GPU-0",)),
            reasons.GPU_NOT_SELECTED,
        ),
        (
            [build.card(0)],
            build.wants(),
            (),
            Selection(use_types=("a100",)),
            reasons.GPU_MODEL_MISMATCH,
        ),
        (
            [build.card(0)],
            build.wants(),
            (),
            Selection(nouse_types=("t4",)),
            reasons.GPU_MODEL_MISMATCH,
        ),
        (
            [build.card(0, model="AMD")],
            build.wants(),
            (),
            Selection(),
            reasons.GPU_MODEL_MISMATCH,
        ),
        ([build.card(0, healthy=False)], build.wants(), (), Selection(), reasons.GPU_UNHEALTHY),
        ([build.card(0, slots=1)], build.wants(1), FULL, Selection(), reasons.SHARE_LIMIT_REACHED),
        ([build.card(0)], build.wants(1, 100), FULL, Selection(), reasons.EXCLUSIVE_CONFLICT),
        ([build.card(0)], build.wants(1, 0), FULL, Selection(), reasons.INSUFFICIENT_GPU_MEMORY),
        ([build.card(0)], build.wants(1, 1), BUSY, Selection(), reasons.INSUFFICIENT_GPU_COMPUTE),
        ([build.card(0)], build.wants(1, 0), BUSY, Selection(), reasons.INSUFFICIENT_GPU_COMPUTE),
    ],
)
def test_reasons(
    cards: list[CardFact],
    wanted: DeviceRequest,
    held: tuple[tuple[str, Holding], ...],
    selection: Selection,
    reason: str,
) -> None:
    assert chosen(cards, wanted, held=held, selection=selection) == reason


def test_a_node_is_charged_to_the_card_that_got_furthest() -> None:
    cards = [build.card(0), build.card(1, healthy=False)]
    assert chosen(cards, build.wants(1, 0), held=FULL) == reasons.INSUFFICIENT_GPU_MEMORY


def test_an_oversold_card_takes_nothing() -> None:
    held = (("x", build.holding("GPU-0", 20_000, 0)),)
    assert chosen([build.card(0)], build.wants(0, 0), held=held) == reasons.INSUFFICIENT_GPU_MEMORY


def test_amounts_that_fit_exactly() -> None:
    held = (("x", build.holding("GPU-0", 12_000, 75)),)
    assert chosen([build.card(0, slots=2)], build.wants(4_000, 25), held=held) == ["GPU-0"]


def test_only_asks_about_the_given_cards() -> None:
    assert chosen(THREE, build.wants(), only={("vgpu", 0): {"GPU-2"}}) == ["GPU-2"]
    assert chosen(THREE, build.wants(), only={}) == reasons.NOT_ENOUGH_GPUS_ON_NODE
    gone = {("vgpu", 0): {"GPU-9"}}
    assert chosen(THREE, build.wants(), only=gone) == reasons.NOT_ENOUGH_GPUS_ON_NODE


def test_each_container_is_asked_about_its_own_cards() -> None:
    wanted = build.wants(), build.wants(container=1)
    only = {("vgpu", 0): {"GPU-2"}, ("vgpu", 1): {"GPU-0"}}
    assert chosen(THREE, *wanted, only=only) == ["GPU-2", "GPU-0"]
