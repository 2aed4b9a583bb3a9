"""What a cycle and a fold cost. Run with `make bench`; compare medians of one machine only."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import BATCH_MAX, run_cycle
from allotment_board.board import Board
from allotment_proto.events import Decided
from tests.bench.clusters import add_pods, cluster


@pytest.mark.parametrize("nodes", [10, 100, 1000])
@pytest.mark.parametrize("shapes", [1, 16])
def bench_cycle_of_256(benchmark: BenchmarkFixture, nodes: int, shapes: int) -> None:
    state = cluster(nodes)
    batch = add_pods(state, BATCH_MAX, shapes)
    board = Board(state)
    outcome = benchmark(lambda: run_cycle(state, batch, board))
    assert len(outcome.placements) == BATCH_MAX
    benchmark.extra_info["pods_per_cycle"] = BATCH_MAX


def bench_fold_of_a_decision(benchmark: BenchmarkFixture) -> None:
    state = cluster(100)
    batch = add_pods(state, BATCH_MAX)
    placements = run_cycle(state, batch, Board(state)).placements
    saved = snapshot.encode(state)
    decided = Decided(
        cycle="bench", basis=state.seq, checked=state.seq, policy=0, batch=batch,
        placements=placements,
    )  # fmt: skip

    def fold(fresh: ClusterState) -> ClusterState:
        apply(fresh, decided, fresh.seq + 1)
        return fresh

    folded = benchmark.pedantic(  # type: ignore[no-untyped-call]
        fold, setup=lambda: ((snapshot.decode(saved),), {}), rounds=20
    )
    assert len(folded.reserved) == BATCH_MAX
