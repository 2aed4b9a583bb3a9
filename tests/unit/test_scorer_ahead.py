"""What the scorer does while nobody waits, and that a failure in it ends nothing."""

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import TaskGroup

import allotment_board
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.history.attempts import Waiting
from allotment.core.ledger.model import ClusterState
from allotment_board import machine_code
from allotment_board.board import Board
from allotment_scorer import __main__ as scorer
from allotment_scorer.__main__ import Scorer
from allotment_scorer.settings import ScorerSettings
from tests.build import node, state_of
from tests.off_loop import AtOnce


@pytest.fixture(autouse=True)
def is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes are enough for the board, and nothing is compiled."""
    monkeypatch.setattr(allotment_board, "NODES_MIN", 2)
    monkeypatch.setattr(allotment_board, "COMPILED_NODES_MIN", 2)
    monkeypatch.setattr(machine_code, "load_in_thread", lambda _: None)


class _Fold(AtOnce):
    """A state to which nothing comes but decisions about nobody: so many. Whoever waits for more is
    asleep."""

    def __init__(self, news: int) -> None:
        self.news = news
        self.state = state_of(node("n1"), node("n2"))
        self.listeners: list[Callable[..., None]] = []
        self.restored: list[Callable[..., None]] = []
        self.caught_up = anyio.Event()
        self.caught_up.set()
        self.asleep = anyio.Event()

    async def changed(self) -> None:
        if self.news:
            self.news -= 1
            self.state.decision_seq += 1
            return
        self.asleep.set()
        await anyio.sleep_forever()


async def _until_asleep(news: int = 0) -> list[str]:
    """A scorer keeps up with nodes, and no pod is there. Returns the lines of its log."""
    fold, lines = _Fold(news), io.StringIO()
    async with anyio.create_task_group() as group:
        group.start_soon(_scorer(fold, lines, group).keep_up)
        await fold.asleep.wait()
        group.cancel_scope.cancel()
    return lines.getvalue().splitlines()


def _scorer(fold: _Fold, lines: io.StringIO, group: TaskGroup) -> Scorer:
    world = cast(World, SimpleNamespace(fold=fold))
    logger = Logger(LogSink("scorer", "s-0", stream=lines))
    tracer = start_tracing("scorer", "s-0", {"OTEL_SDK_DISABLED": "true"})
    settings, metrics = ScorerSettings(instance="s-0"), ServiceMetrics("scorer")
    context: Any = ServiceContext("scorer", settings, logger, metrics, tracer, group)
    return Scorer(context, world)


@pytest.mark.anyio
async def test_loops_and_board_are_ready_before_the_first_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(machine_code, "load_in_thread", lambda _: done.append("loops"))
    monkeypatch.setattr(Board, "open_ahead", lambda board: done.append(type(board)))
    await _until_asleep()
    assert done == ["loops", Board]


@pytest.mark.anyio
async def test_what_fails_ahead_is_left_to_the_cycle_that_meets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[Board] = []

    def fail(board: Board) -> None:
        failed.append(board)
        raise ValueError("a request that nobody can rank")

    monkeypatch.setattr(Board, "open_ahead", fail)
    await _until_asleep()
    assert len(failed) == 1


@pytest.mark.anyio
async def test_a_failure_ahead_is_logged_once_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works = iter([False, False, False, True, False, False])

    def open_ahead(board: Board) -> None:
        if not next(works):
            raise ValueError("a request that nobody can rank")

    monkeypatch.setattr(Board, "open_ahead", open_ahead)
    lines = await _until_asleep(news=5)
    assert next(works, None) is None
    assert [json.loads(line)["level"] for line in lines] == ["warning", "warning"]
    assert "a request that nobody can rank" in lines[0]


@pytest.mark.anyio
async def test_why_pods_wait_is_read_off_the_loop_and_with_the_rounds_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Whys] = []

    def noted(_: ClusterState, whys: Whys) -> dict[tuple[str, str], Waiting]:
        asked.append(whys)
        return {}

    monkeypatch.setattr(scorer, "waiting", noted)
    async with anyio.create_task_group() as group:
        work = _scorer(_Fold(0), io.StringIO(), group)
        work.waiting_gauges()
        assert not asked, "the page of metrics is written on the loop"
        await work.read_gauges()
    assert [whys._verdicts._rounds for whys in asked] == [work._rounds]
    assert work._rounds is not None
