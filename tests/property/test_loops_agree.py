"""The loops, compiled or not, rank nodes as the plain rules do, whatever is asked for, on clusters
with everything in them; and compiled they store what they store uncompiled, position by position.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_board.loops import PLAIN, Loops, MachineCode
from allotment_board.rows import Row
from allotment_proto.events import Event, NodeObserved, Placement, PolicyLoaded
from allotment_proto.facts import Inventory, PluginUse, PodRequest, Policy, Taint
from tests import build
from tests import strategies as own

NODES = 24
LABELS = (
    (),
    (("tier", "5"), ("zone", "a")),
    (("tier", "4"), ("zone", "b"), ("host", "h")),
)
ASKED = (
    build.request(build.wants(1_000, 10)),
    build.request(build.wants(4_000, 25, 2)),
    build.request(build.wants(3_000, 0), build.wants(2_000, 0, container=1)),
    build.request(build.wants(0, 100, memory_pct=100)),
    build.request(build.wants(2_000, 0, family="gpushare")),
)


def node(random: Random, number: int) -> NodeObserved:
    """A node of any kind, with cards of several sizes."""
    name = f"n{number:02}"
    cards = tuple(
        build.card(
            index,
            id=f"{name}-{index}" if index else f"n{number % 3}-0",
            slots=random.choice((1, 2, 10)),
            memory_mib=random.choice((4_000, 16_000, 16_000, 16_001)),
            model=random.choice(own.MODELS),
            healthy=random.random() < 0.9,
        )
        for index in range(random.randint(1, 5))
    )
    mode = random.choice(("hami-core", "hami-core", "mig", "mps"))
    tables = (own.MIG_TABLE, own.SMALL_TABLE) if mode == "mig" else ()
    if tables:
        cards = tuple(
            build.card(i, id=c.id, memory_mib=16_000, table=i % 2) for i, c in enumerate(cards)
        )
    inventories = [Inventory("vgpu", mode, cards, tables)]
    if random.random() < 0.3:
        shared = (build.card(0, id="0", slots=1_000_000, memory_mib=8_000, model="shared GPU"),)
        inventories.append(Inventory("gpushare", "", shared))
    return build.node(
        name,
        0,
        labels=random.choice(LABELS),
        taints=random.choice(((), (), (), (Taint("k", "v", "NoSchedule"),))),
        ready=random.random() < 0.95,
        pods=random.choice((3, 20, 110)),
        cpu_milli=random.choice((0, 300, 8_000, 64_000)),
        extended=random.choice(((), (("example.com/x", 9), ("nvidia.com/gpu", 8)))),
        inventories=tuple(inventories),
        images=random.choice(((), (("a:1", 900),), (("a:1", 2_000), ("b:1", 40)))),
    )


@cache
def cluster(seed: int) -> tuple[ClusterState, list[Placement]]:
    """A cluster in use, and places of pods that wait."""
    random, state = Random(seed), ClusterState()
    tags = ((), own.TAGS[:1], own.TAGS[1:])
    events: list[Event] = [node(random, number) for number in range(NODES)]
    events += [
        build.pod(f"p{n}", random.choice(ASKED), tags=random.choice(tags)) for n in range(60)
    ]
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
    outcome = run_cycle(state, [f"p{n}" for n in range(60)], Board(state))
    assert len(outcome.placements) > NODES
    apply(state, build.decided(*outcome.placements[::2]), len(events) + 1)
    return state, list(outcome.placements[1::2])


@contextmanager
def scored_by(road: Loops) -> Iterator[None]:
    before, MachineCode.loops = MachineCode.loops, road
    yield
    MachineCode.loops = before


def rows(
    state: ClusterState, request: PodRequest, then: list[Placement], road: Loops
) -> Iterator[Row]:
    """The request's row at first, and after some pods more."""
    board = Board(state)
    board.begin()
    for placements in ([], then):
        for placement in placements:
            board.assume(placement)
        with scored_by(road):
            row = board._fresh(request)
            ranking = board.rank(request)
        oracle = Evaluator(state)
        oracle.begin()
        for placement in board.assumed:
            oracle.assume(placement)
        assert ranking == oracle.rank(request)
        oracle.end()
        yield row


@settings(max_examples=max(30, settings().max_examples // 4))
@given(st.integers(0, 3), own.terms_policies, own.every_request)
def test_same_rows(road: Loops, seed: int, policy: Policy, request: PodRequest) -> None:
    check(road, seed, policy, request)


def check(road: Loops, seed: int, policy: Policy, request: PodRequest) -> None:
    state, then = cluster(seed)
    apply(state, PolicyLoaded(policy=policy, source="test", text_sha256=""), 1_000)
    for found, plain in zip(
        rows(state, request, then, road), rows(state, request, then, PLAIN), strict=True
    ):
        fit = plain.fit
        assert found.fit.tolist() == fit.tolist()
        assert found.feasible == plain.feasible == np.count_nonzero(fit)
        assert found.rank.tolist() == plain.rank.tolist()
        assert found.chosen[fit].tolist() == plain.chosen[fit].tolist()
        if plain.more is not None and found.more is not None:
            assert found.more.micro[:, fit].tolist() == plain.more.micro[:, fit].tolist()
        for position in fit.nonzero()[0].tolist():
            assert found.fit_at(position) == plain.fit_at(position)


@pytest.mark.parametrize("fit_weight", [0, 10])
@pytest.mark.parametrize("image_weight", [0, 7])
@pytest.mark.parametrize("asked", [*ASKED, build.request()])
def test_what_is_wasted_and_which_images_are_there(
    road: Loops, asked: PodRequest, image_weight: int, fit_weight: int
) -> None:
    """A file may weigh the one or the other."""
    order = PluginUse("nodeorder", arguments=(("imagelocality.weight", image_weight),))
    policy = Policy(tiers=((order,),), fit_weight=fit_weight)
    request = msgspec.structs.replace(asked, images=("a:1", "b:1"))
    for seed in range(4):
        check(road, seed, policy, request)
        state, _ = cluster(seed)
        [row, _] = rows(state, request, [], road)
        assert (row.images is not None) == (image_weight > 0)
