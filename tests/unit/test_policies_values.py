"""What the policies count, by hand: mixes, room on a node, fragments, and each policy's choice."""

from math import ceil, log

import pytest

from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.devices.free import Free
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.policies import POLICIES
from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.best_fit import BestFit
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.typical import (
    PPM,
    Fragmentation,
    cards_of,
    cluster_fragmentation,
    fill_milli,
    filled_milli,
    is_dead,
    root_mix,
    units,
    usable_milli,
)
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO
from allotment_lab.policies.comparison import DotProduct, GpuClustering, GpuPacking
from allotment_lab.policies.fgd import STEPS_NANO, Fgd
from allotment_lab.policies.headroom import Headroom
from allotment_lab.policies.mixes import card_mix, exact_mix, headroom_milli, mean_mix
from allotment_lab.policies.net_headroom import NetHeadroom
from allotment_proto.events import Event
from allotment_proto.facts import DeviceRequest, Policy, Selection, Typical
from tests.build import GIB, card, holding, node, pod, policy, request, state_of, wants

CARD = 16_000
HALF = request(wants(8_000, 0), cpu_milli=1_000)
WHOLE = request(wants(0, 100, 2, memory_pct=100), cpu_milli=4_000)
SINGLE = request(wants(0, 100, memory_pct=100), cpu_milli=4_000)
CPU_ONLY = request(cpu_milli=2_000)


def test_exact_mix_keeps_frequent_shapes_up_to_95_percent() -> None:
    rare = request(wants(1_000, 0))
    mix = exact_mix({HALF: 60, CPU_ONLY: 35, WHOLE: 4, rare: 1}, CARD)
    assert [shape.request.cpu_milli for shape in mix] == [1_000, 2_000]
    assert [shape.weight_ppm for shape in mix] == [PPM * 60 // 95, PPM * 35 // 95]
    assert [shape.worth_milli for shape in mix] == [500, 0]
    assert all(shape.request.memory_bytes == 0 for shape in mix)


def test_a_mix_has_no_more_shapes_than_asked_for() -> None:
    pods = {request(wants(1_000 * n, 0), cpu_milli=n): 1 for n in range(1, 15)}
    assert len(exact_mix(pods, CARD, most=3)) == 3
    assert len(exact_mix(pods, CARD, most=None)) == 14
    assert exact_mix({}, CARD) == mean_mix({}, CARD) == ()


def test_mean_mix_puts_sizes_together_and_leaves_out_pods_without_cards() -> None:
    big = request(wants(8_000, 0, container=1), cpu_milli=4_000, memory_bytes=3 * GIB)
    typed = request(wants(8_000, 0), selection=Selection(use_types=("T4",)))
    mix = mean_mix({HALF: 2, big: 1, CPU_ONLY: 9, typed: 1}, CARD)
    assert [shape.weight_ppm for shape in mix] == [750_000, 250_000]
    assert mix[0].request.cpu_milli == 2_000
    assert mix[0].request.memory_bytes == 5 * GIB // 3


def test_card_mix_counts_cards_where_mean_mix_counts_pods() -> None:
    """Two pods of two cards are 4 of 100 pods, and 4 of 52 cards."""
    pods = {HALF: 96, WHOLE: 2, CPU_ONLY: 50}
    assert [shape.request.devices[0].count for shape in mean_mix(pods, CARD)] == [1]
    mix = card_mix(pods, CARD)
    assert [shape.request.devices[0].count for shape in mix] == [1, 2]
    assert [shape.weight_ppm for shape in mix] == [PPM * 48 // 52, PPM * 4 // 52]
    assert [shape.worth_milli for shape in mix] == [500, 2_000]
    assert card_mix({CPU_ONLY: 5}, CARD) == card_mix({}, CARD) == ()


def test_root_mix_counts_pods_by_the_fourth_root_of_their_cards_and_leaves_out_none() -> None:
    """Half a card: 0.500^¼ × 1000^¼ = 4.72; two cards: 6.68. One pod in a hundred stays."""
    mix = root_mix({HALF: 99, WHOLE: 1, CPU_ONLY: 50}, CARD)
    assert [shape.request.devices[0].count for shape in mix] == [1, 2]
    total = 99 * 472 + 668
    assert [shape.weight_ppm for shape in mix] == [PPM * 99 * 472 // total, PPM * 668 // total]
    assert [shape.worth_milli for shape in mix] == [500, 2_000]
    assert root_mix({CPU_ONLY: 5}, CARD) == root_mix({}, CARD) == ()


@pytest.mark.parametrize(
    ("shape", "cpu_milli", "filled"),
    [
        (wants(4_000, 0), 5_000, 1_250),
        (wants(4_000, 0), 2_500, 625),
        (wants(4_000, 0), -1, 0),
        (wants(4_000, 60), 5_000, 1_200),
        (wants(8_000, 0), 5_000, 1_000),
        (wants(0, 100, memory_pct=100), 5_000, 1_000),
        (wants(0, 100, 2, memory_pct=100), 5_000, 0),
        (wants(4_000, 0, 2), 5_000, 500),
    ],
)
def test_how_full_pods_of_one_size_make_a_node(
    shape: DeviceRequest, cpu_milli: int, filled: int
) -> None:
    """One card idle, a quarter of the other: five quarters, if there is CPU for five pods; two of
    0.6 by compute; a job of two cards takes one part of each."""
    state = state_of(node(), pod("x", node="n1", holdings=(holding("GPU-0", 12_000, 0),)))
    cards = cards_of(state.nodes["n1"], Policy())["vgpu"]
    size = Typical(request(shape, cpu_milli=1_000), PPM, 0)
    taken = [(units(free, size), fill_milli(free, size)) for free in cards]
    many, fill = sum(n for n, _ in taken), sum(n * milli for n, milli in taken)
    assert filled_milli(many, fill, cpu_milli, 32 << 20, size) == filled


def test_a_rest_is_dead_if_nothing_fits_that_would_fit_the_idle_card() -> None:
    state = state_of(node(), pod("x", node="n1", holdings=(holding("GPU-0", 12_000, 0),)))
    quarter, idle = cards_of(state.nodes["n1"], Policy())["vgpu"]
    half, huge = Typical(HALF, PPM, 500), Typical(request(wants(17_000, 0)), PPM, 1_000)
    assert [units(quarter, half), units(idle, half)] == [0, 2]
    assert [is_dead(quarter, [half, huge]), is_dead(idle, [half, huge])] == [True, False]
    assert not is_dead(quarter, [half, Typical(request(wants(4_000, 0)), PPM, 250)])
    assert not is_dead(quarter, [huge])


@pytest.mark.parametrize(
    ("cpu_milli", "usable", "headroom"), [(1_000, 1_250, 500), (500, 0, 250), (-1, 0, 0)]
)
def test_a_node_with_an_idle_card_and_a_quarter_used_one(
    cpu_milli: int, usable: int, headroom: int
) -> None:
    """Fragments count all of a card that some pod could use; headroom one pod a card, and CPU."""
    state = state_of(node(), pod("x", node="n1", holdings=(holding("GPU-0", 12_000, 0),)))
    cards = cards_of(state.nodes["n1"], Policy())["vgpu"]
    assert usable_milli(cards, 1_000, Typical(HALF, PPM, 500)) == 1_000
    roomy = [Free(free.card) for free in cards]
    roomy[0].memory_mib = 4_000
    quarter = Typical(request(wants(4_000, 0), cpu_milli=1_000), PPM, 250)
    assert usable_milli(roomy, cpu_milli, quarter) == usable
    half = Typical(HALF, PPM, 500)
    assert headroom_milli(1, cpu_milli, 32 * GIB, half) == headroom
    assert Headroom((half,)).part("vgpu", cards[0]) == (False,)
    assert Headroom((half,)).part("vgpu", cards[1]) == (True,)


def test_fragmentation_of_a_cluster() -> None:
    state = state_of(node("n1"), node("n2", 1), pod("x", node="n1", holdings=(holding(),)))
    mix = (Typical(WHOLE, PPM, 2_000),)
    found = cluster_fragmentation(state.nodes.values(), mix, Policy())
    assert found == Fragmentation(stranded_nano=2_750 * PPM, idle_nano=2_750 * PPM)
    assert cluster_fragmentation(state.nodes.values(), (), Policy()) == found


def test_fgd_points_are_those_of_the_sigmoid() -> None:
    assert len(STEPS_NANO) == 99
    for points, step in enumerate(STEPS_NANO, start=1):
        assert abs(step - ceil(1e9 * log(points / (100 - points)))) <= 1
    fgd = Fgd()
    assert fgd.micro(-(10**10)) == 0
    assert fgd.micro(-1) == 49 * POINT_MICRO
    assert fgd.micro(0) == 50 * POINT_MICRO
    assert fgd.micro(10**9) == 73 * POINT_MICRO


def chosen(monkeypatch: pytest.MonkeyPatch, device_policy: DevicePolicy, *events: Event) -> str:
    """Where the pod ``a`` goes: node and cards."""
    monkeypatch.setitem(POLICIES, device_policy.name, device_policy)
    rules = policy(device_policy=device_policy.name, host_policy="none", host_weight=0)
    state = state_of(rules, *events)
    (placement,) = run_cycle(state, ["a"], Evaluator(state)).placements
    return " ".join((placement.node, *(held.card for held in placement.holdings)))


USED = pod("x", node="n2", holdings=(holding("GPU-1", 8_000, 0),))


@pytest.mark.parametrize(
    ("device_policy", "place"),
    [
        (BestFit(), "n2 GPU-1"),
        (GpuPacking(), "n2 GPU-1"),
        (GpuClustering(), "n2 GPU-1"),
        (DotProduct(), "n1 GPU-0"),
        (Fgd(exact_mix({HALF: 1, SINGLE: 1}, CARD)), "n2 GPU-1"),
        (Headroom(mean_mix({HALF: 1, SINGLE: 1}, CARD)), "n2 GPU-1"),
    ],
)
def test_where_a_share_goes(
    monkeypatch: pytest.MonkeyPatch, device_policy: DevicePolicy, place: str
) -> None:
    """Next to the other share; to dot-product both nodes are within the same point."""
    events = (node("n1"), node("n2"), USED, pod("a", HALF))
    assert chosen(monkeypatch, device_policy, *events) == place


def test_headroom_keeps_idle_cards_only_for_a_mix_that_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One pod a card: to a mix of halves alone, an idle card is worth as much as half a card."""
    events = (node("n2"), USED, pod("a", HALF))
    assert chosen(monkeypatch, Headroom(mean_mix({HALF: 1}, CARD)), *events) == "n2 GPU-0"
    both = mean_mix({HALF: 1, SINGLE: 1}, CARD)
    assert chosen(monkeypatch, Headroom(both), *events) == "n2 GPU-1"


def test_net_headroom_puts_what_is_small_on_small_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any card it costs the room for one pod like it; it fills 3/4 of a small one. Headroom sees
    no difference, and takes the node that is fuller.
    """
    share = request(wants(6_000, 0))
    small = node("n2", [card(0, memory_mib=8_000), card(1, memory_mib=8_000)])
    mix = card_mix({share: 1}, CARD)
    used = pod("x", node="n1", holdings=(holding("GPU-0", 8_000, 0),))
    events = (node("n1", 1), small, used, pod("a", share))
    assert chosen(monkeypatch, Headroom(mix), *events).startswith("n1 ")
    assert chosen(monkeypatch, NetHeadroom(mix), *events).startswith("n2 ")


@pytest.mark.parametrize(("also", "place"), [(7_000, "n2"), (9_000, "n1")])
def test_fill_ahead_strands_no_half_of_a_small_card(
    monkeypatch: pytest.MonkeyPatch, also: int, place: str
) -> None:
    """On the small card the share fills 0.506 and leaves 0.494, which 7,000 MiB fit into and 9,000
    do not: 7/4 × 0.494² = 0.427 are more than what it fills there and not on the large one.
    """
    share, other = request(wants(8_100, 0)), request(wants(also, 0))
    large = node("n1", [card(0, memory_mib=80_000)])
    events = (large, node("n2", [card(0)]), pod("a", share))
    pods = {share: 1, other: 1}
    assert chosen(monkeypatch, FillAhead(root_mix(pods, CARD)), *events) == f"{place} GPU-0"


def test_fill_ahead_tells_steps_of_8_thousandths_of_a_card() -> None:
    """In thirds of 10⁻⁹ cards; eight cards gained are all points, and a step is 0.025 points."""
    made, step = FillAhead(), 3 * 8 * PPM
    assert made.micro(1_000 * step) == made.micro(1_001 * step) == FULL_MICRO
    assert made.micro(999 * step) == FULL_MICRO - POINT_MICRO // 40
    assert made.micro(999 * step + 1) == FULL_MICRO
    assert made.micro(-10_000 * step) == 0


def test_headroom_sends_what_needs_much_cpu_to_where_there_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """n1 has CPU for its cards and no more; n2 has CPU to spare. Both have the same cards free."""
    mix = mean_mix({request(wants(0, 100, memory_pct=100), cpu_milli=4_000): 1}, CARD)
    hungry = request(wants(0, 100, memory_pct=100), cpu_milli=7_000)
    events = (node("n1", cpu_milli=8_000), node("n2", cpu_milli=64_000), pod("a", hungry))
    assert chosen(monkeypatch, Headroom(mix), *events) == "n2 GPU-0"
    assert chosen(monkeypatch, BestFit(), *events) == "n1 GPU-0"
