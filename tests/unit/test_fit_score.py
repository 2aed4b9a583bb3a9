"""What an instance has beyond what a pod asks for is waste, and no packing."""

import pytest

from allotment.core.config.policy import built_in, parse
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import recheck
from allotment.core.placement.evaluator import Evaluator, Ranking, Trial
from allotment_board.board import Board
from allotment_proto.events import NodeObserved, Placement, PolicyLoaded
from allotment_proto.facts import Geometry, Inventory, PodRequest, Policy, Profile, Selection
from tests import build
from tests.unit.both_rankers import chosen

POINT = 1_000_000
TABLE = (
    Geometry("g1", (Profile("1g", 2_000, 7),)),
    Geometry("g2", (Profile("7g", 16_000, 1),)),
)
NAMES = ("allotment",)


def mig(name: str) -> NodeObserved:
    cards = tuple(build.card(n, id=f"{name}-{n}", mode="mig", table=0) for n in range(2))
    return build.node(name, inventories=(Inventory("vgpu", "mig", cards, (TABLE,)),))


def shared(name: str) -> NodeObserved:
    return build.node(name, [build.card(n, id=f"{name}-{n}") for n in range(2)])


def world(policy: Policy) -> ClusterState:
    return build.state_of(
        PolicyLoaded(policy=policy, source="", text_sha256=""), mig("n1"), shared("n2")
    )


def ranked(state: ClusterState, request: PodRequest) -> Ranking:
    """Both rankers must say the same."""
    board, plain = Board(state), Evaluator(state)
    board.begin()
    plain.begin()
    found = board.rank(request)
    assert found == plain.rank(request)
    return found


@pytest.mark.parametrize(
    ("text", "memory_mib", "node", "fit"),
    [
        ("allotment.FitWeight: 0", 500, "n1", None),
        ("allotment.HostWeight: 1", 500, "n2", 1_000),
        ("allotment.HostWeight: 1", 2_000, "n1", 1_000),
        ("allotment.FitWeight: 1", 500, "n1", 25),
        ("allotment.FitWeight: 2", 500, "n2", 200),
    ],
)
def test_a_small_pod_goes_where_nothing_is_wasted_on_it(
    text: str, memory_mib: int, node: str, fit: int | None
) -> None:
    """An instance of 2,000 MiB packs a card more than a share of 500 MiB, but wastes 75 %."""
    file = f"tiers: [{{plugins: [{{name: allotment, arguments: {{{text}}}}}]}}]"
    best = ranked(world(parse(file, "conf", NAMES).policy), build.request(build.wants(memory_mib)))
    assert best.best is not None
    terms = dict(best.best.score.terms)
    assert best.best.rank[2] == node
    assert terms.get("fit") == (None if fit is None else fit * POINT)
    assert sum(terms.values()) == best.best.score.total_micro


def test_every_card_and_container_counts() -> None:
    """Two cards at 25 % each, and one that is asked for all that it gives."""
    request = build.request(
        build.wants(500, count=2), build.wants(2_000, container=1), selection=Selection(mode="mig")
    )
    best = ranked(world(built_in(NAMES)), request).best
    assert best is not None
    assert dict(best.score.terms)["fit"] == 10 * (25 + 25 + 100) * POINT


def test_percentages_and_whole_cards_fit_exactly_where_all_is_given() -> None:
    for wanted in (build.wants(0, memory_pct=100), build.wants(16_000, 100)):
        best = ranked(world(built_in(NAMES)), build.request(wanted)).best
        assert best is not None
        assert dict(best.score.terms)["fit"] == 1_000 * POINT


def test_a_pod_without_devices_has_no_such_term_and_no_policy_without_points() -> None:
    best = ranked(world(built_in(NAMES)), build.request()).best
    assert best is not None
    assert "fit" not in dict(best.score.terms)
    text = "tiers: [{plugins: [{name: deviceshare, arguments: {%s}}]}]"
    for argument, weight in (
        ("deviceshare.SchedulePolicy: none", 0),
        ("deviceshare.SchedulePolicy: spread", 10),
        ("deviceshare.ScheduleWeight: 3", 3),
        ("deviceshare.ScheduleWeight: 0", 0),
    ):
        assert parse(text % argument, "conf", NAMES).policy.fit_weight == weight, argument


def test_what_is_chosen_stands_when_it_is_asked_again() -> None:
    state = world(built_in(NAMES))
    apply(state, build.pod("a", build.request(build.wants(500))), state.seq + 1)
    answer = chosen(state, state.pods["a"].fact)
    assert isinstance(answer, Placement)
    assert recheck(state, Trial(state), answer) is None
