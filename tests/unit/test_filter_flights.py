"""One cycle is under way at a time; what ends it, and what comes after."""

import io
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup

from allotment.adapters.log.bus import Message
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.ledger.check import check
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment_binder.deciding import CONFLICT, Deciding
from allotment_filter.__main__ import Filter
from allotment_filter.effort import EFFORT_MAX
from allotment_filter.settings import FilterSettings
from allotment_proto import subjects
from allotment_proto.codec import decode_message, encode
from allotment_proto.events import (
    Decided,
    Envelope,
    Event,
    GroupObserved,
    PolicyLoaded,
    QueueObserved,
    StageTime,
)
from allotment_proto.facts import Company, PodRequest, PodTerm, Policy
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal, Settled
from tests import build
from tests.off_loop import AtOnce
from tests.waiting import patience

FULL = 4
"""How many pods a cycle has."""
STAGE = StageTime("binder", "b", 1, 2)
DEFAULT = QueueObserved(uid="q", name="default", rv=1)
BIG = tuple(
    build.node(
        f"n{n}",
        [
            build.card(c, id=f"n{n}-{c}", memory_mib=1 << 19, cores_pct=1_000, slots=99)
            for c in range(8)
        ],
        cpu_milli=1_000_000,
        memory_bytes=1 << 50,
        pods=500,
    )
    for n in (1, 2)
)

pytestmark = pytest.mark.anyio


class Pipeline(AtOnce):
    """Log, scorer and binder beside a filter. Nothing is decided before `decide` is called."""

    def __init__(self, *events: Event) -> None:
        self.state = build.state_of(*events)
        self.listeners: list[Callable[[Record, Envelope], None]] = []
        self.caught_up = anyio.Event()
        self.is_held = True
        self.epoch = 1
        self.odd = ""
        """A pod at which the scorer raises an error."""
        self.opened: list[Feasible] = []
        self.decided: list[Decided] = []
        self.work: Filter | None = None
        self.group: TaskGroup | None = None
        self._turn = anyio.Event()
        self.open: list[Proposal] = []
        """What the scorer proposed and the binder has not decided, the oldest first."""

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert subject == subjects.FEASIBLE
        self.opened.append(decode_message(Feasible, payload))
        self._score(self.opened[-1])

    async def wait_for(self, seq: int) -> None:
        assert seq <= self.state.seq

    async def changed(self) -> None:
        await self._turn.wait()

    def tell(self, *events: Event) -> int:
        seq = self.state.seq + 1
        for event in events:
            apply(self.state, event, seq)
        assert check(self.state) == []
        is_decision = isinstance(events[0], Decided)
        record = Record(seq, subjects.DECISION if is_decision else "fact", b"", 1, "id")
        for hears in self.listeners:
            hears(record, Envelope(v=1, at_ms=1, by="test", events=events))
        turn, self._turn = self._turn, anyio.Event()
        turn.set()
        return seq

    async def decide(self) -> Decided | None:
        """The oldest cycle that is open; None if that comes to a conflict."""
        proposal = self.open.pop(0)
        found = Deciding(self.state).decide(proposal, 0, STAGE).decided
        outcome, seq = "conflict", 0
        if isinstance(found, Decided):
            outcome, seq = "decided", self.tell(found)
            self.decided.append(found)
        await self.settle(proposal.cycle, outcome, seq)
        return found if isinstance(found, Decided) else None

    async def settle(self, cycle: str, outcome: Any, seq: int = 0) -> None:
        assert self.work is not None
        settled = Settled(v=MESSAGE_VERSION, cycle=cycle, outcome=outcome, seq=seq)
        await self.work.on_settled(Message("", encode(settled), {}, ""))
        await anyio.wait_all_tasks_blocked()

    async def refuse(self) -> None:
        """The oldest cycle that is open comes to nothing: another decision was first."""
        await self.settle(self.open.pop(0).cycle, CONFLICT)

    def _score(self, opened: Feasible) -> None:
        state = self.state
        if self.odd in opened.batch:
            self.open.append(
                Proposal(
                    v=MESSAGE_VERSION,
                    cycle=opened.cycle,
                    basis=state.seq,
                    policy=state.policy_seq,
                    batch=opened.batch,
                    placements=(),
                    refusals=(),
                    failed="odd",
                )
            )
            return
        made = Rounds(state).run(opened.batch, Evaluator(state))
        proposed = Proposal(
            v=MESSAGE_VERSION,
            cycle=opened.cycle,
            basis=state.seq,
            policy=state.policy_seq,
            batch=opened.batch,
            placements=made.placements,
            refusals=made.refusals,
            wholes=made.wholes,
            shorts=made.shorts,
            admissions=made.admissions,
            holds=made.holds,
        )
        self.open.append(proposed)


def pods(*names: str, **values: Any) -> list[Event]:
    return [build.pod(name, name=name, created_ms=n, **values) for n, name in enumerate(names)]


async def played(
    play: Callable[[Pipeline], Awaitable[None]], *events: Event, deadline_ms: int = 60_000
) -> Pipeline:
    """A filter at work beside the pipeline, while that is played upon."""
    line = Pipeline(*events)
    async with anyio.create_task_group() as group:
        settings = FilterSettings(instance="f-0", batch_max=FULL, cycle_deadline_ms=deadline_ms)
        logger = Logger(LogSink("filter", "f-0", stream=io.StringIO()))
        tracer = start_tracing("filter", "f-0", {"OTEL_SDK_DISABLED": "true"})
        metrics = ServiceMetrics("filter")
        context = ServiceContext("filter", settings, logger, metrics, tracer, group)
        world = cast(World, SimpleNamespace(bus=line, fold=line, lease=line))
        line.work, line.group = Filter(context, world), group
        group.start_soon(line.work.run)
        await anyio.wait_all_tasks_blocked()
        await play(line)
        group.cancel_scope.cancel()
    return line


def uid_of(line: Pipeline, node: str) -> str:
    fact = line.state.nodes[node].fact
    assert fact is not None
    return fact.uid


async def decide_all(line: Pipeline) -> None:
    while line.open:
        await line.decide()


async def test_one_cycle_is_under_way_at_a_time() -> None:
    async def play(line: Pipeline) -> None:
        for opened in range(1, 7):
            assert (len(line.opened), len(line.open)) == (opened, 1)
            await line.decide()

    uids = [f"p{n:02}" for n in range(5 * FULL + 1)]
    line = await played(play, *BIG, *pods(*uids))
    assert [uid for each in line.opened for uid in each.batch] == uids, "each is offered once"
    assert sorted(p.uid for each in line.decided for p in each.placements) == uids


async def test_namespaces_take_turns_from_one_cycle_to_the_next() -> None:
    async def play(line: Pipeline) -> None:
        await decide_all(line)

    made = [
        build.pod(f"{space}{n}", name=f"{space}{n}", namespace=space, created_ms=n)
        for space in "xyz"
        for n in range(2 * FULL)
    ]
    line = await played(play, *BIG, TURNS, *made)
    in_turns = [f"{space}{n}" for n in range(2 * FULL) for space in "xyz"]
    assert sorted(uid for each in line.opened for uid in each.batch) == sorted(in_turns)
    for each in line.opened:
        assert {uid[0] for uid in each.batch} == set("xyz")
    assert len(line.decided) == 6


HUGE = build.request(build.wants(memory_mib=1_000_000))
ANOTHER = QueueObserved(uid="r", name="other", rv=1)
TURNS = PolicyLoaded(policy=Policy(namespace_turns=True), source="", text_sha256="")
GROUP = GroupObserved(uid="g", namespace="default", name="g", rv=1, min_member=4, phase="Inqueue")
MEMBERS = pods(*(f"g{n}" for n in range(FULL)), group="default/g")


async def test_the_second_does_not_undo_what_follows_from_the_failure_of_the_first() -> None:
    """Halves of a batch find the pod on which cycles fail."""
    uids = [f"p{n:02}" for n in range(4 * FULL)]
    sizes: list[int] = []

    async def play(line: Pipeline) -> None:
        line.odd = uids[FULL]
        await line.decide()
        with patience():
            while len(line.state.pending) > 1:
                await anyio.sleep(0.001)
                while line.open:
                    if line.open[0].failed:
                        sizes.append(len(line.open[0].batch))
                        await line.settle(line.open.pop(0).cycle, "failed")
                        continue
                    await line.decide()
                    await anyio.sleep(0.1)  # longer than the pause after a failure
                    if sizes == [FULL]:
                        assert line.work is not None
                        assert line.work._most == FULL / 2

    await played(play, *BIG, *pods(*uids))
    assert sizes[:3] == [4, 2, 1]


async def test_what_is_in_the_log_stands_whatever_else_is_said() -> None:
    async def play(line: Pipeline) -> None:
        await line.decide()
        first = line.open.pop(0)
        found = Deciding(line.state).decide(first, 0, STAGE).decided
        assert isinstance(found, Decided)
        line.tell(found)
        await line.settle(first.cycle, "conflict")
        assert line.work is not None
        assert line.work._conflicts == 0

    await played(play, *BIG, *pods(*(f"p{n:02}" for n in range(3 * FULL))))


async def test_after_a_conflict_all_are_offered_again() -> None:
    uids = [f"p{n:02}" for n in range(3 * FULL)]

    async def play(line: Pipeline) -> None:
        await line.decide()
        await line.refuse()
        with patience():
            while line.state.pending:
                await anyio.sleep(0.01)
                await decide_all(line)

    line = await played(play, *BIG, *pods(*uids))
    assert sorted(p.uid for each in line.decided for p in each.placements) == uids


async def test_a_cycle_that_is_not_heard_of_keeps_nobody_waiting_for_ever() -> None:
    uids = [f"p{n:02}" for n in range(3 * FULL)]

    async def play(line: Pipeline) -> None:
        assert line.work is not None
        await line.decide()
        assert len(line.open) == 1
        line.open.clear()  # lost
        with patience():
            while line.state.pending:
                await anyio.sleep(0.01)
                await decide_all(line)
        assert line.work.reissued >= 1

    line = await played(play, *BIG, *pods(*uids), deadline_ms=500)
    assert sorted(p.uid for each in line.decided for p in each.placements) == uids


async def test_a_lease_that_comes_back_begins_with_nothing_under_way() -> None:
    uids = [f"p{n:02}" for n in range(3 * FULL)]

    async def play(line: Pipeline) -> None:
        assert line.work is not None
        assert line.group is not None
        await line.decide()
        line.is_held = False
        await line.decide()  # while another one is under way, of which nobody hears any more
        line.open.clear()
        line.is_held, line.epoch = True, 2
        line.group.start_soon(line.work.run)
        await anyio.wait_all_tasks_blocked()
        assert line.opened[-1].batch == tuple(uids[-FULL:])

    await played(play, *BIG, *pods(*uids))


async def test_records_are_let_in_while_many_costly_pods_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asking the nodes for all that are refused as before, in one go, would take minutes."""
    rules = tuple(PodTerm(f"key-{n}", (), ()) for n in range(32))
    wanted = [PodRequest(1 << 40, memory, company=Company(away=rules)) for memory in range(1, 65)]
    looks: list[int] = []

    async def play(line: Pipeline) -> None:
        await decide_all(line)
        work = line.work
        assert work is not None
        assert work._feasibility is not None
        feasibility, look = work._feasibility, work._look

        def counted() -> Any:
            before = feasibility.counted
            found = look()
            looks.append(feasibility.counted - before)
            return found

        monkeypatch.setattr(work, "_look", counted)
        line.tell(msgspec.structs.replace(BIG[1], rv=2, labels=(("new", "label"),)))
        while sum(looks) < len(wanted):
            await anyio.wait_all_tasks_blocked()
            await decide_all(line)

    pods = [build.pod(f"p{n}", request) for n, request in enumerate(wanted)]
    await played(play, build.policy(), *BIG, *pods)
    assert max(looks) <= EFFORT_MAX // 32
