"""Scorer and binder have read what nodes offer before the first pod comes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from allotment.adapters.log.bus import Message
from allotment.adapters.telemetry.traces import start_tracing
from allotment_binder.decider import Decider
from allotment_binder.deciding import Deciding
from allotment_proto.codec import encode
from allotment_proto.events import QueueObserved
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from allotment_scorer.__main__ import Scorer
from tests import build
from tests.off_loop import AtOnce
from tests.unit.rounds_world import World

NODES = 5


class _Fold(AtOnce):
    """A fold that is up to date, and to which nothing comes but what the test says."""

    def __init__(self, world: World) -> None:
        self.state = world.state
        self.listeners: list[object] = []
        self.restored: list[object] = []
        self.caught_up = anyio.Event()
        self.caught_up.set()
        self.news = anyio.Event()

    async def changed(self) -> None:
        await self.news.wait()
        self.news = anyio.Event()


@pytest.fixture
def world() -> World:
    nodes = [build.node(f"n{number}", 4) for number in range(NODES)]
    return World(*nodes, QueueObserved(uid="q-default", name="default", rv=1))


def _scorer(fold: _Fold) -> Scorer:
    metrics = SimpleNamespace(expose_histograms=lambda found: None)
    log = SimpleNamespace(warning=lambda text, **more: None)
    ctx: Any = SimpleNamespace(metrics=metrics, log=log)
    return Scorer(ctx, cast("Any", SimpleNamespace(fold=fold)))


@pytest.mark.anyio
async def test_what_nodes_offer_is_read_before_a_pod_comes(world: World) -> None:
    fold = _Fold(world)
    scorer = _scorer(fold)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scorer.keep_up)
        await anyio.wait_all_tasks_blocked()
        totals = scorer._ready_rounds().views.totals
        assert totals.read == NODES
        world.tell(build.node("n1", 4, rv=2, extended=(("nvidia.com/gpu", 4),)))
        fold.news.set()
        await anyio.wait_all_tasks_blocked()
        assert totals.read == NODES + 1
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_round_that_cannot_be_opened_ahead_is_left_to_its_cycle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = _Fold(world)
    scorer = _scorer(fold)
    broken = SimpleNamespace(open_ahead=lambda: 1 // 0)
    monkeypatch.setattr(scorer, "_ready_rounds", lambda: broken)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scorer.keep_up)
        await anyio.wait_all_tasks_blocked()
        assert scorer._rounds is None
        tasks.cancel_scope.cancel()


def _decider(fold: _Fold, warn: Callable[..., None] | None = None) -> Decider:
    log = SimpleNamespace(warning=warn)
    ctx: Any = SimpleNamespace(
        settings=SimpleNamespace(instance="b-1"), readiness=None, ready=None, log=log
    )
    return Decider(ctx, cast("Any", SimpleNamespace(fold=fold)), lambda decided, upheld: None)


@pytest.mark.anyio
async def test_the_binder_has_read_them_too(world: World) -> None:
    fold = _Fold(world)
    decider = _decider(fold)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decider.keep_up)
        await anyio.wait_all_tasks_blocked()
        totals = decider._ready().rounds.views.totals
        assert totals.read == NODES
        world.tell(build.node("n1", 4, rv=2, extended=(("nvidia.com/gpu", 4),)))
        fold.news.set()
        await anyio.wait_all_tasks_blocked()
        assert totals.read == NODES + 1
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_a_decision_changed_is_taken_over_before_the_next_round(world: World) -> None:
    """And not with every pod that comes: the round does that at once."""
    fold = _Fold(world)
    scorer = _scorer(fold)
    rounds = scorer._ready_rounds()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scorer.keep_up)
        await anyio.wait_all_tasks_blocked()
        looked_at = rounds.views.made
        for uid in ("a", "b"):
            world.tell(build.pod(uid, queue="default"))
            fold.news.set()
            await anyio.wait_all_tasks_blocked()
        assert rounds.views.made == looked_at
        world.decide(["a"])
        fold.news.set()
        await anyio.wait_all_tasks_blocked()
        looked_at = rounds.views.made
        rounds.session()
        assert rounds.views.made == looked_at > 0
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_binder_takes_it_over_once_its_answer_is_sent(world: World) -> None:
    fold, sent = _Fold(world), list[int]()

    async def reach(seq: int) -> bool:
        return True

    def asked() -> None:
        sent.append(decider._ready().rounds.views.made)

    async def publish(subject: str, payload: bytes) -> None:
        asked()

    tracer = start_tracing("binder", "b-1", {"OTEL_SDK_DISABLED": "true"})
    fold.reach = reach  # type: ignore[attr-defined]
    around = SimpleNamespace(
        fold=fold, bus=SimpleNamespace(publish=publish), lease=SimpleNamespace(is_held=True)
    )
    ctx: Any = SimpleNamespace(
        settings=SimpleNamespace(instance="b-1"),
        log=None,
        metrics=SimpleNamespace(observe_stage=lambda *said: asked()),
        tracer=tracer,
        refusals=SimpleNamespace(refuse=lambda *said, **more: None),
    )
    decider = Decider(ctx, cast("Any", around), lambda decided, upheld: None)
    world.tell(build.pod("a", queue="default"))
    world.decide()
    said = Proposal(
        v=MESSAGE_VERSION,
        cycle="c",
        basis=world.seq,
        policy=world.state.policy_seq,
        batch=(),
        placements=(),
        refusals=(),
        failed="by the scorer",
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decider.run)
        await decider.on_proposal(Message("", encode(said), {}, ""))
        await anyio.wait_all_tasks_blocked()
        assert sent == [0, 0], "neither the answer nor its time waits for it"
        assert decider._ready().rounds.views.made > 0
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_failure_ahead_ends_nothing_in_the_binder_and_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made is thrown away, and the next record tries again."""
    fold, said = _Fold(world), list[str]()
    decider = _decider(fold, warn=lambda text, **more: said.append(more["error"]))
    monkeypatch.setattr(Deciding, "open_ahead", lambda deciding: 1 // 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decider.keep_up)
        for _ in range(3):
            await anyio.wait_all_tasks_blocked()
            assert decider._deciding is None
            fold.news.set()
        tasks.cancel_scope.cancel()
    assert len(said) == 1
    assert "ZeroDivisionError" in said[0]
