"""A cycle that comes after one which is not decided yet: on top of its proposal, or after it."""

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from allotment.adapters.log.bus import Message
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import decode_message, encode
from allotment_proto.events import (
    Envelope,
    Event,
    NodeGone,
    PodGone,
    PolicyLoaded,
)
from allotment_proto.facts import Policy
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal
from allotment_scorer.__main__ import Scorer
from allotment_scorer.settings import ScorerSettings
from tests import build
from tests.off_loop import AtOnce

pytestmark = pytest.mark.anyio
HUGE = build.request(build.wants(memory_mib=1_000_000))
NODE = build.node("n1", [build.card(c, id=f"n1-{c}") for c in range(8)])


class Scene(AtOnce):
    """A scorer, the log that it follows, and what it proposes."""

    def __init__(self, *events: Event) -> None:
        self.state = build.state_of(*events)
        self.listeners: list[Callable[[Record, Envelope], None]] = []
        self.restored: list[Callable[..., None]] = []
        self.caught_up = anyio.Event()
        self.caught_up.set()
        self.is_held = True
        self.made: list[Proposal] = []
        self.work: Scorer | None = None
        self._turn = anyio.Event()

    async def reach(self, seq: int) -> bool:
        return self.state.seq >= seq

    async def changed(self) -> None:
        await self._turn.wait()

    async def publish(self, subject: str, payload: bytes, headers: Any = None) -> None:
        assert subject == subjects.PROPOSAL
        self.made.append(decode_message(Proposal, payload))

    def tell(self, event: Event) -> None:
        seq = self.state.seq + 1
        apply(self.state, event, seq)
        record = Record(seq, "", b"", 1, "id")
        for hears in self.listeners:
            hears(record, Envelope(v=1, at_ms=1, by="test", events=(event,)))
        turn, self._turn = self._turn, anyio.Event()
        turn.set()

    def decide(self, proposal: Proposal) -> None:
        """Just as it was proposed."""
        self.tell(
            build.decided(
                *proposal.placements,
                cycle=proposal.cycle,
                batch=proposal.batch,
                refusals=proposal.refusals,
            )
        )

    async def ask(self, cycle: str, *batch: str, after: str = "") -> None:
        assert self.work is not None
        opened = Feasible(
            v=MESSAGE_VERSION,
            cycle=cycle,
            basis=self.state.seq,
            batch=batch,
            classes=(),
            after=after,
        )
        await self.work.on_feasible(Message("", encode(opened), {}, ""))


@asynccontextmanager
async def scene(*events: Event) -> AsyncIterator[Scene]:
    found = Scene(NODE, *events)
    async with anyio.create_task_group() as group:
        logger = Logger(LogSink("scorer", "s-0", stream=io.StringIO()))
        tracer = start_tracing("scorer", "s-0", {"OTEL_SDK_DISABLED": "true"})
        settings, metrics = ScorerSettings(instance="s-0"), ServiceMetrics("scorer")
        context: Any = ServiceContext("scorer", settings, logger, metrics, tracer, group)
        world = cast(World, SimpleNamespace(bus=found, fold=found, lease=found))
        found.work = Scorer(context, world)
        yield found


async def test_the_second_stands_on_the_first() -> None:
    async with scene(build.pod("a"), build.pod("b")) as world:
        await world.ask("c1", "a")
        await world.ask("c2", "b", after="c1")
        first, second = world.made
        assert (first.assumed, second.assumed) == ((), ("c1",))
        assert second.basis == first.basis
        taken = {h.card for p in (*first.placements, *second.placements) for h in p.holdings}
        assert len(taken) == 1, "binpack: the card that the first is to have"
        assert second.placements[0].score_micro > first.placements[0].score_micro


async def test_what_is_decided_is_not_assumed() -> None:
    async with scene(build.pod("a"), build.pod("b")) as world:
        await world.ask("c1", "a")
        world.decide(world.made[0])
        await world.ask("c2", "b", after="c1")
        assert (world.made[1].assumed, world.made[1].basis) == ((), world.state.seq)


@pytest.mark.parametrize(
    ("first", "second", "meanwhile"),
    [
        ("a", "bh", []),
        ("a", "h", []),
        ("a", "b", [NodeGone(name="n1", uid=NODE.uid, rv=9)]),
        ("a", "b", [build.node("n1", [build.card(9, id="n1-9")], rv=9)]),
        ("a", "b", [PodGone(uid="a", namespace="default", name="a", rv=9)]),
    ],
    ids=["one refused on top", "none on top", "a node that went", "other cards", "a pod that went"],
)
async def test_nothing_is_proposed_where_the_first_has_to_be_decided_before(
    first: str, second: str, meanwhile: list[Event]
) -> None:
    pods = (build.pod("a"), build.pod("b"), build.pod("h", HUGE))
    async with scene(*pods) as world:
        await world.ask("c1", *first)
        for event in meanwhile:
            world.tell(event)
        await world.ask("c2", *second, after="c1")
        made = world.made[1]
        assert (made.assumed, made.placements, made.refusals) == (("c1",), (), ())


EVICTING = PolicyLoaded(
    policy=Policy(actions=("enqueue", "allocate", "preempt")), source="", text_sha256=""
)


@pytest.mark.parametrize(("second", "is_placed"), [("b", True), ("bh", False)])
async def test_who_was_told_before_is_not_passed_over(second: str, is_placed: bool) -> None:
    """There is nothing new to tell him, but he may find a place if the first takes less, or others
    may have to go for him.
    """
    async with scene(build.pod("a"), build.pod("b"), build.pod("h", HUGE)) as world:
        await world.ask("c0", "h")
        world.decide(world.made[0])
        await world.ask("c1", "a")
        await world.ask("c2", *second, after="c1")
        assert (world.made[2].assumed, bool(world.made[2].placements)) == (("c1",), is_placed)


@pytest.mark.parametrize("first", ["h", "ah"])
async def test_who_was_refused_first_takes_nothing(first: str) -> None:
    pods = (build.pod("a"), build.pod("b"), build.pod("h", HUGE))
    async with scene(*pods) as world:
        await world.ask("c1", *first)
        await world.ask("c2", "b", after="c1")
        assert (world.made[1].assumed, len(world.made[1].placements)) == (("c1",), 1)


async def test_on_a_cycle_that_it_does_not_know_nothing_stands() -> None:
    async with scene(build.pod("a"), build.pod("b")) as world:
        await world.ask("c1", "a")
        await world.ask("c2", "b", after="another")
        assert [each.assumed for each in world.made] == [(), ()]
