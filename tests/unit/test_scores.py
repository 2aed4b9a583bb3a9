"""Scores in micro-points: what each policy rewards, and that nothing divides by zero."""

import pytest

from allotment.core.placement.rules.points import share_micro
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.rules.scores import score
from allotment_proto.facts import PodRequest, Policy
from tests import build

POINT = 1_000_000


def terms(request: PodRequest, **policy: object) -> dict[str, int]:
    state = build.state_of(
        build.node(extended=(("nvidia.com/gpu", 4),)),
        build.pod("x", node="n1", holdings=(build.holding("GPU-0", 4_000, 25),)),
    )
    values: dict[str, object] = {"device_weight": 1, "host_policy": "none", **policy}
    rules = Policy(**values)  # type: ignore[arg-type]
    node = state.nodes["n1"]
    found = fits(node, request, rules)
    assert isinstance(found, Fit)
    return dict(score(node, request, found, rules).terms)


@pytest.mark.parametrize(
    ("used", "capacity", "micro"), [(1, 2, 50 * POINT), (1, 3, 33_333_333), (5, 0, 0), (0, 9, 0)]
)
def test_share(used: int, capacity: int, micro: int) -> None:
    assert share_micro(used, capacity) == micro


@pytest.mark.parametrize(
    ("policy", "count", "points"),
    [
        ("binpack", 1, 50),
        ("binpack", 2, 75),
        ("spread", 1, 100),
        ("spread", 2, 100),
        ("none", 2, 0),
    ],
)
def test_device_term(policy: str, count: int, points: int) -> None:
    """binpack: use after placing, per card; spread: 100 per card that was idle before."""
    found = terms(build.request(build.wants(4_000, 25, count)), device_policy=policy)
    assert found["device"] == points * POINT


@pytest.mark.parametrize(("policy", "points"), [("binpack", 75), ("spread", 25), ("none", 0)])
def test_counted_cards_score_by_their_use(policy: str, points: int) -> None:
    found = terms(build.request(extended=(("nvidia.com/gpu", 3),)), device_policy=policy)
    assert found["device"] == points * POINT


def test_a_resource_of_which_nothing_is_asked_scores_nothing() -> None:
    assert terms(build.request(extended=(("absent.com/gpu", 0),)))["device"] == 0


@pytest.mark.parametrize(("policy", "points"), [("binpack", 50), ("spread", 50), ("none", 0)])
def test_host_term(policy: str, points: int) -> None:
    """The mean of CPU (100 %) and memory (0 %) after placement, or what is left of 100."""
    state = build.state_of(build.node(cpu_milli=100))
    node = state.nodes["n1"]
    request = build.request(build.wants(), memory_bytes=0)
    rules = Policy(host_policy=policy, device_policy="none", host_weight=3)
    found = fits(node, request, rules)
    assert isinstance(found, Fit)
    points_found = score(node, request, found, rules)
    assert points_found.total_micro == dict(points_found.terms)["host"] == 3 * points * POINT


def test_leftover_is_what_stays_free_on_the_chosen_cards() -> None:
    node = build.state_of(build.node()).nodes["n1"]
    request = build.request(build.wants(4_000, 25, 2))
    found = fits(node, request, Policy())
    assert isinstance(found, Fit)
    assert score(node, request, found, Policy()).leftover == 24_000
