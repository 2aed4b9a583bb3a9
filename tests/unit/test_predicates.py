"""Node predicates: what each looks at, their order, and Kubernetes' corner cases."""

from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.rules.selectors import term_matches, tolerates
from allotment_board.board import Board
from allotment_proto.facts import Constraints, Expression, NodeTerm, Policy, Taint, Toleration
from tests import build


def ask(node: Any = None, wanted: Any = None, state: ClusterState | None = None) -> str:
    found = fits(
        (state or build.state_of(node or build.node())).nodes["n1"],
        build.request(build.wants()) if wanted is None else wanted,
        Policy(),
    )
    return "fits" if isinstance(found, Fit) else found


TAINT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "fits"),
        ({"ready": False}, reasons.NODE_NOT_READY),
        ({"unschedulable": True}, reasons.NODE_CORDONED),
        ({"taints": (TAINT,)}, reasons.TAINT_NOT_TOLERATED),
        ({"taints": (Taint("k", "v", "NoExecute"),)}, reasons.TAINT_NOT_TOLERATED),
        ({"taints": (Taint("k", "v", "PreferNoSchedule"),)}, "fits"),
        ({"pods": 0}, reasons.POD_LIMIT_REACHED),
        ({"cpu_milli": 99}, reasons.INSUFFICIENT_CPU),
        ({"memory_bytes": 1}, reasons.INSUFFICIENT_MEMORY),
        ({"inventories": ()}, reasons.NO_GPU),
        ({"ready": False, "unschedulable": True, "pods": 0}, reasons.NODE_NOT_READY),
        ({"unschedulable": True, "taints": (TAINT,)}, reasons.NODE_CORDONED),
    ],
)
def test_nodes(changes: dict[str, Any], reason: str) -> None:
    assert ask(build.node(**changes)) == reason


@pytest.mark.parametrize(
    ("listed", "wanted", "reason"),
    [
        ((("nvidia.com/gpu", 2),), (("nvidia.com/gpu", 2),), "fits"),
        ((("nvidia.com/gpu", 2),), (("nvidia.com/gpu", 3),), reasons.NOT_ENOUGH_GPUS_ON_NODE),
        ((), (("nvidia.com/gpu", 1),), reasons.NO_GPU),
        ((), (("nvidia.com/gpu", 0),), "fits"),
        ((), (("example.com/x", 1),), reasons.INSUFFICIENT_RESOURCE),
    ],
)
def test_counted_resources(listed: Any, wanted: Any, reason: str) -> None:
    request = build.request(extended=wanted)
    assert ask(build.node(extended=listed), request) == reason


SHARE = build.request(build.wants())
WHOLE = build.request(extended=(("nvidia.com/gpu", 1),))
BOTH = build.request(build.wants(), extended=(("nvidia.com/gpu", 1),))


@pytest.mark.parametrize(
    ("held", "wanted", "reason"),
    [
        (None, SHARE, "fits"),
        (None, WHOLE, "fits"),
        (None, BOTH, reasons.CARDS_IN_OTHER_USE),
        (SHARE, SHARE, "fits"),
        (SHARE, WHOLE, reasons.CARDS_IN_OTHER_USE),
        (WHOLE, WHOLE, "fits"),
        (WHOLE, SHARE, reasons.CARDS_IN_OTHER_USE),
        (WHOLE, build.request(), "fits"),
    ],
)
@pytest.mark.parametrize("is_twice", [True, False])
def test_cards_that_are_listed_twice_are_given_in_one_way_at_a_time(
    held: Any, wanted: Any, reason: str, is_twice: bool
) -> None:
    """Whichever was first; and freely where the node's cards are listed once."""
    twice = (("nvidia.com/gpu", "vgpu"),) if is_twice else ()
    state = build.state_of(
        build.node("n1", 4, extended=(("nvidia.com/gpu", 4),), listed_twice=twice),
        *(() if held is None else (build.pod("held", held),)),
    )
    if held is not None:
        found = run_cycle(state, ["held"], Evaluator(state))
        apply(state, build.decided(*found.placements), state.seq + 1)
        assert state.pods["held"].allocation is not None
    assert ask(wanted=wanted, state=state) == (reason if is_twice else "fits")
    apply(state, build.pod("p", wanted), state.seq + 1)
    board = Board(state)
    assert run_cycle(state, ["p"], board) == run_cycle(state, ["p"], Evaluator(state))


def test_one_batch_does_not_give_a_card_twice() -> None:
    """What was placed before in the batch counts, on both roads."""
    twice = build.node(
        "n1", 4, extended=(("nvidia.com/gpu", 4),), listed_twice=(("nvidia.com/gpu", "vgpu"),)
    )
    for first, second in ((SHARE, WHOLE), (WHOLE, SHARE)):
        state = build.state_of(twice, build.pod("a", first), build.pod("b", second))
        found = run_cycle(state, ["a", "b"], Board(state))
        assert found == run_cycle(state, ["a", "b"], Evaluator(state))
        assert [placed.uid for placed in found.placements] == ["a"]
        assert found.refusals[0].reasons == ((reasons.CARDS_IN_OTHER_USE, 1),)


def test_an_unknown_family_fits_nowhere() -> None:
    assert ask(wanted=build.request(build.wants(family="later"))) == reasons.NO_GPU


def test_a_family_that_is_switched_off_fits_nowhere() -> None:
    node = build.state_of(build.node()).nodes["n1"]
    request = build.request(build.wants())
    assert fits(node, request, Policy(families=("gpushare",))) == reasons.NO_GPU


def test_who_asks_for_no_cpu_is_not_hurt_by_overbooked_cpu() -> None:
    stranger = build.pod("x", build.request(cpu_milli=9_000), node="n1")
    state = build.state_of(build.node(), stranger)
    assert ask(wanted=build.request(build.wants(), cpu_milli=0), state=state) == "fits"
    assert ask(state=state) == reasons.INSUFFICIENT_CPU


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v", ""), True),
        (Toleration("k", "Equal", "w", ""), False),
        (Toleration("k", "Exists", "", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(TAINT, (toleration,)) == tolerated


def test_a_cordon_is_tolerated_like_its_taint() -> None:
    rule = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    wanted = build.request(build.wants(), constraints=Constraints(tolerations=(rule,)))
    assert ask(build.node(unschedulable=True), wanted) == "fits"


LABELS = {"zone": "a", "tier": "5", "odd": "1_0"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("absent", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("absent", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("tier", "Gt", ("4",), True),
        ("tier", "Gt", ("5",), False),
        ("tier", "Lt", ("6",), True),
        ("zone", "Gt", ("4",), False),
        ("tier", "Gt", ("x",), False),
        ("tier", "Gt", ("1", "2"), False),
        ("odd", "Gt", ("1",), False),
        ("zone", "Unheard", ("a",), False),
    ],
)
def test_affinity_operators(key: str, operator: str, values: tuple[str, ...], holds: bool) -> None:
    assert term_matches(NodeTerm((Expression(key, operator, values),)), LABELS, "n1") == holds


def test_affinity_terms() -> None:
    named = Expression("metadata.name", "In", ("n1",))
    assert term_matches(NodeTerm((), (named,)), {}, "n1")
    assert not term_matches(NodeTerm((), (named,)), {}, "n2")
    assert not term_matches(NodeTerm((), (Expression("metadata.uid", "Exists", ()),)), {}, "n1")
    assert not term_matches(NodeTerm((), ()), LABELS, "n1"), "an empty term matches nothing"


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        (Constraints(node_selector=(("zone", "a"),)), "fits"),
        (Constraints(node_selector=(("zone", "b"),)), reasons.SELECTOR_MISMATCH),
        (Constraints(affinity=(NodeTerm((), ()),)), reasons.AFFINITY_MISMATCH),
        (
            Constraints(affinity=(NodeTerm((), ()), NodeTerm((Expression("zone", "Exists", ()),)))),
            "fits",
        ),
    ],
)
def test_constraints(constraints: Constraints, reason: str) -> None:
    node = build.node(labels=(("zone", "a"),))
    assert ask(node, build.request(build.wants(), constraints=constraints)) == reason
