"""One active life of the binder on a log in memory and a scripted API server."""

import contextlib
import io
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from tests.build import node, pod, policy, request, wants
from tests.contract.binder_loops import Api, add, at_work
from tests.contract.kube_server import kubeconfig, reply, scripted
from tests.memory_log import MemoryLog, MemoryLogCore
from tests.turns import counted
from tests.waiting import until

from allotment.adapters.log.bus import Message
from allotment.adapters.log.fold import Fold
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import Abandoned, World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment_binder import __main__ as binder_service
from allotment_binder import records
from allotment_binder.deciding import Answer, Deciding
from allotment_binder.settings import BinderSettings
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    Decided,
    PodGone,
)
from allotment_proto.messages import MESSAGE_VERSION, Proposal

pytestmark = pytest.mark.anyio
HUGE = request(wants(memory_mib=1_000_000))


async def test_a_proposal_is_decided_bound_recorded_and_told(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a"), pod("h", HUGE)) as scene:
        await scene.propose("a", "h")
        await until(lambda: scene.kinds()[-1] == "Bound")
        await until(lambda: len(scene.api.events) == 2)
        assert scene.kinds()[4:] == ["Decided", "Bound"]
        assert [(s.outcome, s.seq) for s in scene.bus.settled] == [("decided", 8)]
        assert scene.api.bindings == ["pod-a"]
        assert sorted(scene.api.events) == [("pod-a", "Scheduled"), ("pod-h", "FailedScheduling")]
        assert scene.api.told == [
            "pod-h: InsufficientGPUMemory: 976.6 GiB of one GPU requested; the largest GPU that "
            "the pod accepts has 15.6 GiB. 0/1 nodes are available: 1 InsufficientGPUMemory. "
            "Ask: allot explain pod default/pod-h"
        ]


async def test_a_binder_has_a_connection_open_before_it_binds_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby has one too: the first pod that it binds waits for no handshake."""
    async with scripted() as script, anyio.create_task_group() as group:
        script.otherwise = reply({})
        logger = Logger(LogSink("binder", "0", stream=io.StringIO()))
        tracer = start_tracing("binder", "0", {"OTEL_SDK_DISABLED": "true"})
        config = kubeconfig(tmp_path / "kubeconfig", script.url)
        settings = BinderSettings(instance="binder-0", kubeconfig=config)
        ctx = ServiceContext("binder", settings, logger, ServiceMetrics("binder"), tracer, group)

        @contextlib.asynccontextmanager
        async def standby(*_: object) -> AsyncIterator[World]:
            async def subscribe(*_: object) -> None: ...

            yield cast(
                World,
                SimpleNamespace(
                    log=MemoryLog(),
                    fold=Fold(MemoryLog(), logger),
                    bus=SimpleNamespace(subscribe=subscribe),
                    active=anyio.sleep_forever,
                ),
            )

        monkeypatch.setattr(binder_service, "open_world", standby)
        group.start_soon(binder_service.run, ctx)
        await until(lambda: script.requests)
        group.cancel_scope.cancel()
    assert [request.path for request in script.requests] == ["/version"]


async def test_a_doubled_proposal_decides_and_tells_once_and_the_log_is_not_full(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a"), pod("h", HUGE)) as scene:
        proposal = await scene.propose("a", "h")
        await scene.send(proposal)
        await until(lambda: len(scene.api.events) == 2 and len(scene.bus.settled) == 2)
        await anyio.sleep(0.05)
        assert len(scene.decisions()) == 1
        assert len(scene.api.events) == 2
        assert [s.outcome for s in scene.bus.settled] == ["decided", "conflict"]
        assert scene.binder.ctx.readiness.reasons().get("log space") is None


async def test_two_proposals_for_one_cycle_with_different_news_are_both_decided(
    tmp_path: Path,
) -> None:
    """Two scorers, each thinking that it is the active one, answer the same cycle."""
    async with at_work(tmp_path, policy(), node(), pod("h", HUGE), pod("i", HUGE)) as scene:
        await scene.propose("h")
        await scene.propose("i")
        assert [s.outcome for s in scene.bus.settled] == ["decided", "decided"]
        assert len(scene.decisions()) == 2


async def test_a_decision_that_lost_its_place_is_checked_again(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a"), pod("b")) as scene:
        other = Decided(cycle="x", basis=1, checked=1, policy=1, batch=())
        append = scene.log.compare_and_append
        late = [other]

        async def beaten(subject: str, payload: bytes, *, msg_id: str, expected_seq: int) -> Any:
            if late:
                await add(scene.log, late.pop())
            return await append(subject, payload, msg_id=msg_id, expected_seq=expected_seq)

        scene.log.compare_and_append = beaten  # type: ignore[method-assign]
        await scene.propose("a", "b")
        assert [s.outcome for s in scene.bus.settled] == ["decided"]
        assert [d.checked for d in scene.decisions()] == [1, 8]


async def test_a_full_log_stops_deciding_says_so_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment_binder.decider.FULL_WAIT_S", 0.01)
    core = MemoryLogCore(max_bytes=3000)
    async with at_work(tmp_path, policy(), node(), pod("a"), log=MemoryLog(core)) as scene:
        core._max_bytes = core._bytes + 10
        await scene.propose("a")
        assert [s.outcome for s in scene.bus.settled] == ["conflict"]
        assert "log space" in scene.binder.ctx.readiness.reasons()
        assert scene.api.bindings == []
        core._max_bytes = 1 << 20
        await scene.propose("a")
        assert scene.bus.settled[-1].outcome == "decided"
        assert "log space" not in scene.binder.ctx.readiness.reasons()


async def test_a_binding_that_is_forbidden_is_told_once_and_gives_the_cards_back(
    tmp_path: Path,
) -> None:
    api = Api()
    api.status = 403
    async with at_work(tmp_path, policy(), node(), pod("a"), api=api) as scene:
        for attempt in (1, 2):
            await scene.propose("a", cycle=f"c{attempt}")
            await until(lambda n=attempt: scene.kinds().count("BindFailed") == n)  # type: ignore[misc]
            await until(lambda n=attempt: len(api.told) == n)  # type: ignore[misc]
        await until(lambda: api.events)
        await anyio.sleep(0.05)
        assert api.told[0].startswith("pod-a: failed to bind to node n1: APIError: 403")
        assert api.events == [("pod-a", "FailedScheduling")]
        assert list(scene.fold.state.pending) == ["a"]


async def test_what_an_earlier_binder_reserved_is_looked_at_and_settled(tmp_path: Path) -> None:
    first = at_work(tmp_path, policy(), node("n1"), node("n2"), pod("a"), pod("b"))
    async with first as scene:
        scene.binder.client.bind = _never  # type: ignore[method-assign, assignment]
        await scene.propose("a", "b")
        log = scene.log
    assert sorted(scene.fold.state.reserved) == ["a", "b"]
    api = Api()
    meta = {"uid": "a", "annotations": {"allotment.dev/log-seq": "6"}}
    held = scene.fold.state.pods["a"].allocation
    assert held is not None
    api.there["pod-a"] = {"metadata": meta, "spec": {"nodeName": held.node}}
    api.there["pod-b"] = {"metadata": {"uid": "b"}, "spec": {}}
    async with at_work(tmp_path, log=log, api=api) as scene:
        await until(lambda: scene.kinds().count("Bound") == 1)
        seen = pod("a", rv=2, node=held.node, holdings=held.holdings, bind_phase="success")
        await scene.add(seen)  # so the other one need not wait any more
        await until(lambda: scene.kinds().count("Bound") == 2)
        assert sorted(api.looks) == ["pod-a", "pod-b"]
        assert api.bindings == ["pod-b"]
        await until(lambda: not scene.fold.state.reserved)


async def _never(*_: object) -> Any:
    await anyio.sleep_forever()


async def test_losing_the_lease_ends_this_life_and_only_this(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        lease = cast(Any, scene.binder.world.lease)
        lease.is_held = False
        proposal = Proposal(
            v=MESSAGE_VERSION, cycle="c", basis=1, policy=1, batch=(), placements=(), refusals=()
        )
        message = Message(subjects.PROPOSAL, encode(proposal), {}, "")
        await scene.binder.decider.on_proposal(message)
        await scene.binder.decider.on_proposal(Message(subjects.PROPOSAL, b"garbage", {}, ""))
        assert not scene.binder.decider.proposals
        lease.gone.set()
        await anyio.wait_all_tasks_blocked()
        lease.is_held = True
        await scene.binder.decider.on_proposal(Message(subjects.PROPOSAL, b"garbage", {}, ""))
        await scene.binder.decider.on_proposal(message)
        await anyio.wait_all_tasks_blocked()
        assert scene.bus.settled == []  # nobody works until the next life begins


@pytest.mark.parametrize("is_gone", [False, True], ids=["acknowledged", "gone"])
async def test_a_pod_that_is_gone_is_no_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """The next one is sent when the kubelet is past the first, and nobody answered for that one."""
    monkeypatch.setattr(records, "PASSED_AFTER_S", 0.0)
    async with at_work(tmp_path, policy(), node(), pod("a"), pod("b")) as scene:
        await scene.propose("a", "b")
        await until(lambda: scene.kinds()[-1] == "Bound")
        assert scene.api.bindings == ["pod-a"], "one after the other"
        held = scene.fold.state.nodes["n1"].allocations["a"].holdings
        served = pod("a", rv=2, node="n1", holdings=held, bind_phase="success")
        gone = PodGone(uid="a", namespace="default", name="pod-a", rv=2)
        await scene.add(gone if is_gone else served)
        await until(lambda: scene.kinds().count("Bound") == 2)
        assert scene.api.bindings == ["pod-a", "pod-b"]
        assert counted(scene.binder.sender.times)[0] == (not is_gone)


def _proposal(cycle: str, *, under_way: bool = False) -> Message:
    proposal = Proposal(
        v=MESSAGE_VERSION,
        cycle=cycle,
        basis=1,
        policy=1,
        batch=(),
        placements=(),
        refusals=(),
        under_way=under_way,
    )
    return Message(subjects.PROPOSAL, encode(proposal), {}, "")


async def test_a_proposal_whose_cycle_was_superseded_is_not_decided(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node()) as scene:
        decider = scene.binder.decider
        for cycle in ("c1", "c2", "c3"):
            await decider.on_proposal(_proposal(cycle))
        assert [each[0].cycle for each in decider.proposals] == ["c3"]
        assert decider.superseded == 2


async def test_the_filter_is_told_that_a_cycle_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the scorer, through the binder, and by the binder while it decides."""
    go_on = threading.Event()
    decide = Deciding.decide

    def slow(*said: Any) -> Answer:
        go_on.wait()
        return decide(*said)

    monkeypatch.setattr(Deciding, "decide", slow)
    async with at_work(tmp_path, policy(), node(), pod("h", HUGE)) as scene:
        await scene.binder.decider.on_proposal(_proposal("c0", under_way=True))
        assert [(s.cycle, s.outcome) for s in scene.bus.settled] == [("c0", "under_way")]
        await scene.propose("h")
        await until(lambda: len(scene.bus.settled) > 2)
        assert {(s.cycle, s.outcome) for s in scene.bus.settled[1:]} == {("c1", "under_way")}
        go_on.set()
        await until(lambda: scene.bus.settled[-1].outcome == "decided")


async def test_a_binder_that_lost_its_lease_ends_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = list[bool](), list[Exception]()

    def endless(deciding: Deciding, *_: Any) -> Answer:
        begun.append(True)
        try:
            while True:
                deciding.rounds._checkpoint()
        except Exception as error:
            ended.append(error)
            raise

    monkeypatch.setattr(Deciding, "decide", endless)
    async with at_work(tmp_path, policy(), node(), pod("h", HUGE)) as scene:
        await scene.binder.decider.on_proposal(_proposal("c1"))
        await until(lambda: begun)
        scene.binder.world.lease.is_held = False  # type: ignore[misc]
        scene.binder.world.lease.gone.set()  # type: ignore[attr-defined]
        await until(lambda: scene.binder.pacer is None)
        assert [type(error) for error in ended] == [Abandoned]
        assert scene.decisions() == []
        assert scene.binder.ctx.refusals.shown() == []
