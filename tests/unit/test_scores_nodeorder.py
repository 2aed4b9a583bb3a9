"""nodeorder: the specification's examples, one term after the other, and their sum."""

import math

import pytest

from allotment.core.config.policy import parse
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.images import points_of
from allotment.core.placement.rules.nodeorder import (
    balanced_points,
    even_points,
    least_points,
    most_points,
    nodeorder_points,
)
from allotment.core.placement.rules.points import POINT_MICRO, TOTAL_MOST
from allotment.core.placement.rules.relative import (
    log_weight,
    scaled_between,
    scaled_down,
    scaled_spread,
    scaled_up,
    soft_taints,
)
from allotment.core.placement.rules.score_term import Amount
from allotment.core.placement.rules.terms import weights_of
from allotment_board.board import Board
from allotment_proto.events import NodeGone, Placement
from allotment_proto.facts import (
    BUILT_IN_TIERS,
    Company,
    Constraints,
    Expression,
    NodeTerm,
    PluginUse,
    PodPreference,
    PodRequest,
    PodTerm,
    Policy,
    Preference,
    Spread,
    Taint,
    Toleration,
)
from tests import build

GIB = build.GIB
USED = build.request(cpu_milli=2_000, memory_bytes=4 * GIB)
"""What runs on the node of the examples."""


def policy(**weights: int) -> Policy:
    """nodeorder alone, with all weights 0 but these."""
    names = {
        "least": "leastrequested",
        "most": "mostrequested",
        "balanced": "balancedresource",
        "affinity": "nodeaffinity",
        "taints": "tainttoleration",
        "pods": "podaffinity",
        "spread": "podtopologyspread",
        "images": "imagelocality",
    }
    arguments = {f"{word}.weight": weights.pop(name, 0) for name, word in names.items()}
    arguments.update((f"balancedresource.{name}", value) for name, value in weights.items())
    use = PluginUse("nodeorder", arguments=tuple(sorted(arguments.items())))
    return Policy(tiers=((use,),), host_policy="none")


def points(request: PodRequest, rules: Policy, *, is_empty: bool = False) -> int:
    """Of the node of the examples: 8 CPUs and 16 GiB, of which 2 and 4 are in use."""
    state = build.state_of(
        build.node(cpu_milli=8_000, memory_bytes=16 * GIB),
        *(() if is_empty else (build.pod("x", USED, node="n1"),)),
    )
    order = weights_of(rules).nodeorder
    assert order is not None
    return nodeorder_points(state.nodes["n1"], request, order)


def test_ex_least() -> None:
    assert points(PodRequest(1_000, 4 * GIB), policy(least=1)) == 56


def test_ex_most() -> None:
    assert points(PodRequest(1_000, 4 * GIB), policy(most=1)) == 43


def test_ex_least_empty() -> None:
    """A container that requests nothing counts 100 mCPU and 200 MiB."""
    request = PodRequest(unrequested=(100, 200 << 20))
    assert points(request, policy(least=1), is_empty=True) == 98


def test_what_running_pods_left_unsaid_counts_too() -> None:
    state = build.state_of(
        build.node(cpu_milli=1_000, memory_bytes=2_000 << 20),
        build.pod("x", PodRequest(unrequested=(100, 200 << 20)), node="n1"),
    )
    order = weights_of(policy(least=1)).nodeorder
    assert order is not None
    assert (
        nodeorder_points(state.nodes["n1"], PodRequest(unrequested=(100, 200 << 20)), order) == 80
    )


@pytest.mark.parametrize(
    ("request_", "minor", "wanted"),
    [
        (PodRequest(2_000, 0), 32, 87),
        (PodRequest(2_000, 0), 36, 68),
        (PodRequest(2_000, 4 * GIB), 32, 100),
        (PodRequest(2_000, 4 * GIB), 36, 75),
        (PodRequest(unrequested=(100, 200 << 20)), 36, 0),
        (PodRequest(unrequested=(100, 200 << 20)), 32, 100),
    ],
)
def test_ex_balanced(request_: PodRequest, minor: int, wanted: int) -> None:
    """By the rule of older and of newer releases; the newer one skips pods without requests."""
    assert points(request_, policy(balanced=1, kubernetesMinor=minor)) == wanted


def test_three_resources_are_even_by_their_standard_deviation() -> None:
    """σ of 0, 0.5 and 1 is 0.408: 59.1 points, truncated."""
    assert even_points([Amount(0, 4), Amount(2, 4), Amount(4, 4)]) == 59
    assert even_points([Amount(1, 3), Amount(2, 6), Amount(3, 9)]) == 100
    assert even_points([Amount(1, 4)]) == 100
    assert balanced_points(100, 100) == 75


def test_amounts_beyond_the_size_count_as_all_of_it() -> None:
    full = [Amount(9, 8), Amount(8, 8)]
    assert least_points(full) == 0
    assert most_points(full) == 100
    assert even_points(full) == 100
    assert least_points([Amount(1, 0), Amount(2, 4)]) == 50, "what a node lacks does not count"
    assert least_points([]) == most_points([]) == 0


def test_ex_affinity() -> None:
    assert scaled_up([80, 20, 0]) == [100, 25, 0]
    assert scaled_up([0, 0]) == [0, 0]


def test_ex_taint() -> None:
    assert scaled_down([0, 1, 3]) == [100, 67, 0]
    assert scaled_down([0, 0, 0]) == [100, 100, 100]


def test_taints_that_are_tolerated_or_forbid_are_not_counted() -> None:
    taints = (
        Taint("a", "", "PreferNoSchedule"),
        Taint("b", "", "PreferNoSchedule"),
        Taint("c", "", "NoSchedule"),
    )
    assert soft_taints(taints, (Toleration("a", "Exists", "", ""),)) == 1
    assert soft_taints(taints, (Toleration("a", "Exists", "", "NoSchedule"),)) == 2


def test_preferences_for_pods_are_scaled_between_the_least_and_the_most() -> None:
    assert scaled_between([-50, 0, 50]) == [0, 50, 100]
    assert scaled_between([7, 7]) == [0, 0]


def test_the_fewest_pods_of_a_spread_score_most() -> None:
    assert scaled_spread([2, 4, None]) == [100, 50, 0]
    assert scaled_spread([0, 0, None]) == [100, 100, 0]


@pytest.mark.parametrize("domains", [0, 1, 3, 4_998])
def test_logarithms_in_fixed_point(domains: int) -> None:
    assert log_weight(domains) == round(math.log(domains + 2) * 2**20)


# ---- whole clusters, decided both ways


def decide(state: ClusterState, rules: Policy, *uids: str) -> tuple[Placement, ...]:
    """What the board decides, which is what the evaluator decides."""
    state.policy = rules
    wanted = run_cycle(state, uids, Evaluator(state))
    assert run_cycle(state, uids, Board(state)) == wanted
    return wanted.placements


def test_ex_sum() -> None:
    """Default weights, no labels, taints or images: 56 + 68 + 0 + 3·100 = 424.

    Both pods of the examples in one: least 56 by what is not requested, balanced 68.
    """
    rules = Policy(tiers=((PluginUse("nodeorder"),),), host_policy="none", device_weight=0)
    state = build.state_of(
        build.node(cpu_milli=8_000, memory_bytes=16 * GIB),
        build.pod("x", USED, node="n1"),
        build.pod("a", PodRequest(2_000, 0, unrequested=(-1_000, 4 * GIB))),
    )
    (placed,) = decide(state, rules, "a")
    assert placed.terms == (("device", 0), ("host", 0), ("nodeorder", 424 * POINT_MICRO))
    assert placed.score_micro == 424 * POINT_MICRO


def test_ex_image() -> None:
    """One container: 2,000 MiB on one of four nodes count as 500, 10 MiB are not worth a look."""
    assert points_of(500 * 1_024, 1) == 48
    assert [points_of(kib, 2) for kib in (0, 10 * 1_024, 23 * 1_024, 9_999 * 1_024)] == [
        0,
        0,
        0,
        100,
    ]
    state = build.state_of(
        build.node("n1"),
        build.node("n2"),
        build.node("n3", images=(("big:1", 2_000), ("small:1", 10))),
        build.node("n4"),
        build.pod("a", build.request(images=("big:1",))),
        build.pod("b", build.request(images=("small:1",))),
    )
    first, second = decide(state, policy(images=2), "a", "b")
    assert (first.node, dict(first.terms)["nodeorder"]) == ("n3", 96 * POINT_MICRO)
    assert (second.node, dict(second.terms)["nodeorder"]) == ("n1", 0)


def test_an_image_that_comes_or_goes_somewhere_counts_everywhere() -> None:
    """The board's row is older than the news, on a node of which it heard nothing itself."""
    rules = policy(images=1)
    image = (("big:1", 900),)
    state = build.state_of(build.node("n1"), build.node("n2", images=image))
    state.policy = rules
    board = Board(state)
    wanted = build.pod("a", build.request(images=("big:1", "big:1")))
    for news in (
        wanted,
        build.node("n3", images=image),
        build.node("n1", rv=2, images=image),
        build.node("n2", rv=2),
        NodeGone(name="n3", uid="uid-n3", rv=3),
    ):
        apply(state, news, state.seq + 1)
        plain = run_cycle(state, ["a"], Evaluator(state))
        assert run_cycle(state, ["a"], board) == plain
    (placed,) = plain.placements
    assert (placed.node, dict(placed.terms)["nodeorder"]) == ("n1", 44 * POINT_MICRO)


def test_preferred_node_affinity_decides_and_is_told() -> None:
    prefers = Constraints(
        preferred=(
            Preference(80, NodeTerm((Expression("zone", "In", ("b",)),))),
            Preference(20, NodeTerm((Expression("disk", "Exists", ()),))),
        )
    )
    state = build.state_of(
        build.node("n1", labels=(("disk", "ssd"),)),
        build.node("n2", labels=(("zone", "b"),)),
        build.node("n3"),
        build.pod("a", build.request(constraints=prefers)),
    )
    (placed,) = decide(state, policy(affinity=2), "a")
    assert (placed.node, dict(placed.terms)["nodeorder"]) == ("n2", 200 * POINT_MICRO)
    device = dict(placed.terms)["device"]
    runners_up = {r.node: r.score_micro - device for r in placed.runners_up}
    assert runners_up == {"n1": 50 * POINT_MICRO, "n3": 0}


def test_a_taint_to_be_avoided_is_avoided_until_nothing_else_is_left() -> None:
    state = build.state_of(
        build.node("n1", pods=1, taints=(Taint("old", "", "PreferNoSchedule"),)),
        build.node("n2", pods=1),
        build.pod("a", build.request()),
        build.pod("b", build.request()),
    )
    first, second = decide(state, policy(taints=3), "a", "b")
    assert (first.node, second.node) == ("n2", "n1")
    assert dict(first.terms)["nodeorder"] == 300 * POINT_MICRO
    assert dict(second.terms)["nodeorder"] == 0


def test_preferred_pod_affinity_counts_both_ways() -> None:
    """`a` wants to be near web pods; a web pod that runs would rather be away from `b`."""
    web = PodTerm("zone", ("default",), (Expression("app", "In", ("web",)),))
    db = PodTerm("zone", ("default",), (Expression("app", "In", ("db",)),))
    state = build.state_of(
        build.node("n1", labels=(("zone", "1"),)),
        build.node("n2", labels=(("zone", "2"),)),
        build.pod(
            "w",
            build.request(company=Company(preferred=(PodPreference(-10, db),))),
            node="n2",
            labels=(("app", "web"),),
        ),
        build.pod("a", build.request(company=Company(preferred=(PodPreference(5, web),)))),
        build.pod("b", build.request(), labels=(("app", "db"),)),
    )
    near, away = decide(state, policy(pods=1), "a", "b")
    assert (near.node, away.node) == ("n2", "n1")
    assert dict(near.terms)["nodeorder"] == dict(away.terms)["nodeorder"] == 100 * POINT_MICRO


def test_replicas_that_prefer_to_be_apart_are_so_though_one_card_would_be_packed() -> None:
    """Volcano's default configuration: nodeorder and binpack, and nothing about cards."""
    web = PodTerm("host", ("default",), (Expression("app", "In", ("web",)),))
    request = build.request(
        build.wants(8_000), company=Company(preferred=(PodPreference(-100, web),))
    )
    labels = (("app", "web"),)
    state = build.state_of(
        build.node("n1", labels=(("host", "1"),)),
        build.node("n2", labels=(("host", "2"),)),
        build.pod("a", request, labels=labels),
        build.pod("b", request, labels=labels),
    )
    text = "tiers: [{plugins: [{name: predicates}, {name: nodeorder}, {name: binpack}]}]"
    first, second = decide(state, parse(text, "conf", ("allotment",)).policy, "a", "b")
    assert {first.node, second.node} == {"n1", "n2"}


def test_a_wished_spread_prefers_the_zone_with_fewer_pods() -> None:
    term = PodTerm("zone", ("default",), (Expression("app", "In", ("web",)),))
    wish = Company(spread=(Spread(term, 1, is_required=False, counts_self=True),))
    labels = (("app", "web"),)
    state = build.state_of(
        build.node("n1", labels=(("zone", "1"),)),
        build.node("n2", labels=(("zone", "2"),)),
        build.node("n3"),
        build.pod("w", build.request(), node="n1", labels=labels),
        build.pod("a", build.request(company=wish), labels=labels),
        build.pod("b", build.request(company=wish), labels=labels),
    )
    first, second = decide(state, policy(spread=2), "a", "b")
    assert (first.node, second.node) == ("n2", "n1")
    assert dict(first.terms)["nodeorder"] == 200 * POINT_MICRO


def test_without_a_file_nodeorder_does_not_count() -> None:
    """The built-in tiers name it, but what is built in decides as before there were tiers."""
    state = build.state_of(build.node(), build.pod("a"))
    assert Policy().tiers == BUILT_IN_TIERS
    (placed,) = decide(state, Policy(), "a")
    assert [name for name, _ in placed.terms] == ["device", "host"]


def test_totals_end_where_a_rank_would_not_fit() -> None:
    state = build.state_of(
        build.node("n1"), build.pod("a", build.request(build.wants(16_000, 100, 2)))
    )
    rules = Policy(
        device_policy="spread",
        device_weight=20_000,
        tiers=((PluginUse("binpack", arguments=(("binpack.weight", 1_000),)),),),
    )
    (placed,) = decide(state, rules, "a")
    assert placed.score_micro == TOTAL_MOST < sum(value for _, value in placed.terms)
