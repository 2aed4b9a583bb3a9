"""For each term that plugins add to a score, and each of its weights: clusters in which just that
one decides which node is best. The plain rules and the board must rank the nodes alike.

Clusters are drawn with nodes of many sizes, and with what each term reads: room, taints, labels,
images, other pods. What a new term reads must be in `cluster`, or its weights decide in none.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Evaluator, Ranking
from allotment.core.placement.rules.score_term import ScoreTerm
from allotment.core.placement.rules.terms import TERMS
from allotment_board import loop_parts, loops
from allotment_board.board import Board
from allotment_board.term_loops import LOOPS
from allotment_proto.facts import (
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
)
from tests import build

SEEDS = range(12)
DECIDES_LEAST = 3
"""In so many of the clusters a weight must decide, or it is not tested."""
FURTHER: dict[str, tuple[tuple[str, int], ...]] = {
    "binpack": (("binpack.resources.nvidia.com/gpu", 5),),
    "resource-strategy-fit": (
        ("most.cpu", 3),
        ("most.memory", 3),
        ("least.cpu", 3),
        ("most.nvidia.com/gpu", 2),
        ("least.nvidia.com/*", 2),
    ),
}
"""Arguments whose names a term declares by their beginning."""
OVERALL = {
    "binpack": ("binpack.weight",),
    "resource-strategy-fit": ("resourceStrategyFitWeight",),
}
"""Weights by which a term multiplies its others: 0 would switch it off."""
MINOR = "balancedresource.kubernetesMinor"
"""No weight, but by which rule a weight counts."""
IS_WEB = (Expression("app", "In", ("web",)),)


def uses(term: ScoreTerm) -> Iterator[tuple[str, PluginUse]]:
    """The plugin with one of its weights at a time, all others 0."""
    overall = OVERALL.get(term.name, ())
    weights = [name for name in term.arguments if name not in (*overall, MINOR)]
    for name, value in (*((name, 3) for name in weights), *FURTHER.get(term.name, ())):
        others = {other: 0 for other in weights if other != name}
        for minor in (32, 36) if name == "balancedresource.weight" else (0,):
            more = {MINOR: minor} if minor else {}
            arguments = {**others, **dict.fromkeys(overall, 2), **more, name: value}
            title = f"{term.name} {name} {minor or ''}".strip()
            yield title, PluginUse(term.name, arguments=tuple(sorted(arguments.items())))


USES = dict(found for term in TERMS for found in uses(term))


def policy(use: PluginUse) -> Policy:
    """Nothing else counts."""
    return Policy(tiers=((use,),), device_weight=0, host_weight=0, fit_weight=0)


def cluster(random: Random) -> tuple[ClusterState, PodRequest]:
    events: list[Any] = []
    for number in range(random.randint(6, 12)):
        name = f"n{number}"
        size = random.choice((4_000, 8_000, 16_000))
        events.append(
            build.node(
                name,
                0,
                cpu_milli=size,
                memory_bytes=random.choice((16, 32, 48)) * build.GIB,
                extended=(("nvidia.com/gpu", random.choice((4, 8))),),
                labels=(("host", name), ("zone", random.choice("abc"))),
                taints=random.choice(((), (Taint("k", "v", "PreferNoSchedule"),))),
                images=random.choice(((), (("a:1", 900),), (("a:1", 400), ("b:1", 200)))),
            )
        )
        used = build.request(
            cpu_milli=random.randrange(0, size // 2, 100),
            memory_bytes=random.randrange(8) * build.GIB,
            extended=(("nvidia.com/gpu", random.randrange(3)),),
        )
        labels = random.choice(((), (("app", "web"),)))
        events.append(build.pod(f"on-{name}", used, node=name, scheduler="other", labels=labels))
    web = PodTerm("zone", ("default",), IS_WEB)
    request = build.request(
        cpu_milli=random.choice((100, 700, 1_500)),
        memory_bytes=random.choice((1, 3)) * build.GIB,
        extended=(("nvidia.com/gpu", random.choice((1, 2))),),
        images=("a:1", "b:1"),
        constraints=Constraints(
            preferred=(Preference(50, NodeTerm((Expression("zone", "In", ("a",)),))),)
        ),
        company=Company(
            preferred=(PodPreference(random.choice((40, -40)), web),),
            spread=(Spread(web, 1, False, True),),
        ),
    )
    return build.state_of(*events), request


def best_by(state: ClusterState, request: PodRequest, use: PluginUse | None) -> Ranking:
    """The plain ranking; the board's is the same."""
    state.policy = policy(use) if use else Policy(device_weight=0, host_weight=0)
    plain, board = Evaluator(state), Board(state)
    plain.begin()
    board.begin()
    found, wanted = board.rank(request), plain.rank(request)
    assert found == wanted, "the board ranks otherwise"
    return wanted


def decides(seed: int, use: PluginUse) -> bool:
    """Whether a weight puts another node in front than names alone do."""
    state, request = cluster(Random(seed))
    found, without = best_by(state, request, use), best_by(state, request, None)
    assert found.best is not None
    assert without.best is not None
    return found.best.rank[2] != without.best.rank[2]


@pytest.mark.usefixtures("scoring")
@pytest.mark.parametrize("name", USES)
def test_just_this_weight_decides(name: str) -> None:
    assert sum(decides(seed, USES[name]) for seed in SEEDS) >= DECIDES_LEAST


def test_every_term_and_every_weight_has_its_clusters() -> None:
    assert {use.name for use in USES.values()} == {term.name for term in TERMS}


WRONG: dict[str, Callable[[int, int], int]] = {
    "a cap that the rule does not have": lambda position, micro: min(micro, 80_000_000),
    "one micro-point more on one node": lambda position, micro: micro + (position == 3),
    "nothing for odd positions": lambda position, micro: micro * (position % 2),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_wrong_loop_is_found(
    term: ScoreTerm, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, change = LOOPS[term.name], WRONG[fault]

    def wrong(position: int, *arrays: Any) -> int:
        return change(position, row.loop(position, *arrays))

    monkeypatch.setattr(loop_parts, "PARTS", list(loop_parts.PARTS))
    monkeypatch.setitem(LOOPS, term.name, row._replace(loop=wrong))
    monkeypatch.setattr(loops.MachineCode, "loops", loops.PLAIN)
    monkeypatch.setattr(loops, "_store_terms", loops._chain())
    mine = [use for use in USES.values() if use.name == term.name]
    with pytest.raises(AssertionError, match="the board ranks otherwise"):
        sum(decides(seed, use) for seed in SEEDS for use in mine)
