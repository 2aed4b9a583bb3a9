"""The filter: owns the order. Opens one cycle after another for the pods that are due.

A cycle is over when its decision is seen in the log, when the binder says that it had nothing to
write, or when no service reports on it before its deadline: then the same pods are due again.
While the scorer or the binder reports progress, the filter extends the deadline.

The state is read off the event loop; what a record changes in the order is noted on it.
"""

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import anyio
import anyio.lowlevel

import allotment_board
from allotment.adapters.log.bus import BUS, Message
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.world import World, open_world
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.trace_ids import cycle_ids
from allotment_board import NodeRanker
from allotment_filter.batches import Batch, next_round
from allotment_filter.effort import Effort
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.groups import Groups
from allotment_filter.orphans import without_group
from allotment_filter.settings import FilterSettings
from allotment_filter.waiting import Waiting
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_message, encode
from allotment_proto.events import BindFailed, Decided, Envelope, StageTime
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Settled

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 60.0
GATHER_S_MAX = 0.1
"""The longest that pods gather for a cycle after one of several that was not full."""
GROUP_WAIT_S = 1.0
"""How long a pod may be known before its PodGroup without being refused."""
PATIENCE_MAX = 16
"""The most by which deadlines are put off for work that is known to be under way."""
LOST = "lost"
"""The outcome of a cycle that the active binder has not received."""
CONFLICT_PAUSE_S = 0.01
CONFLICT_PAUSE_MAX_S = 1.0
FAILED_PAUSE_MAX_S = 0.1
"""While a pod is looked for that makes cycles fail, others wait for their turn."""
ORDER = "order"
ORDER_AGAIN_S = 1.0
"""How long the filter waits before it retries after a defect in computing the order."""

Context = ServiceContext[FilterSettings]


class _Found(NamedTuple):
    """A batch that is due, and what to do with it in addition to sending it."""

    batch: Batch
    offered: Callable[[], None]
    """To be called before the next one is looked for."""
    done: Callable[[], None]
    """To be called when its cycle came to one that stands; after `offered`."""
    follow: Callable[[], None] | None
    """What there is time for while the cycle is under way."""


class _Flight:
    """A cycle under way."""

    def __init__(self, cycle: str, found: _Found, most: int, deadline_s: float) -> None:
        """`most` is how many pods it could have had."""
        self.cycle = cycle
        self.found = found
        self.most = most
        self.deadline_s = deadline_s
        self.over = anyio.Event()
        self.is_under_way = False
        """Whether scorer or binder said that they work on it."""
        self.outcome = ""
        self.seq = 0

    async def ended(self) -> bool:
        """Wait for its end, and say whether it came before the deadline."""
        while not self.over.is_set() and (left_s := self.deadline_s - time.monotonic()) > 0:
            with anyio.move_on_after(left_s):
                await self.over.wait()
        return self.over.is_set()

    def end(self, outcome: str, seq: int) -> None:
        """What is in the log stands, whatever else is said."""
        if self.outcome != "decided":
            self.outcome, self.seq = outcome, seq
            self.over.set()


class Filter:
    """The cycle in flight, and the memory of what was tried. Both can be lost without harm."""

    def __init__(self, ctx: Context, world: World) -> None:
        self.ctx = ctx
        self.world = world
        self.tried: dict[str, int] = {}
        self.held_back: dict[str, float] = {}
        """Pods whose Binding failed → the monotonic time at which they are worth another try."""
        self._awaited: set[str] = set()
        """Pods whose PodGroup is not known, and that were given time for it."""
        self.cycles = 0
        self.reissued = 0
        self._patience = 1
        """By how much deadlines are put off, as the last cycle was being worked on at its own."""
        self._conflicts = 0
        """How many cycles in a row came back as a conflict."""
        self._most = ctx.settings.batch_max
        """How many pods a cycle has: fewer while one is looked for that makes cycles fail."""
        self._failures: dict[str, int] = {}
        """Pods and groups that made a cycle of their own fail → how often in a row."""
        self._flight: _Flight | None = None
        self._feasibility: FeasibilityCache | None = None
        self._effort = Effort()
        self._groups: Groups | None = None
        self._waiting: Waiting | None = None
        """The waiting pods in order, while there are no queues."""
        world.fold.listeners.append(self._on_record)

    def _on_record(self, record: Record, envelope: Envelope) -> None:
        if self._waiting is not None:
            self._waiting.take(envelope)
        if record.subject not in (subjects.DECISION, subjects.OUTCOME):
            return
        flight = self._flight
        if flight is not None and not envelope.events:
            flight.end(LOST, 0)  # a binder begins: what was on its way to another one is lost
        for event in envelope.events:
            if isinstance(event, Decided):
                if flight is not None and event.cycle == flight.cycle:
                    flight.end("decided", record.seq)
            elif isinstance(event, BindFailed):
                self._hold_back(event, record)

    def _hold_back(self, event: BindFailed, record: Record) -> None:
        """A pod whose Binding failed waits; what the log tells of earlier failures waited since."""
        fold = self.world.fold
        pod = fold.state.pods.get(event.uid)
        failures = pod.bind_failures if pod else 1
        delay_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))
        if not fold.caught_up.is_set():
            delay_s -= max(0, time.time_ns() - record.time_ns) / 1e9
        if delay_s > 0:
            self.held_back[event.uid] = time.monotonic() + delay_s

    async def on_settled(self, message: Message) -> None:
        try:
            settled = decode_message(Settled, message.payload)
        except UndecodableError as error:
            self.ctx.refusals.refuse(BUS, "Settled", error.reason)
            return
        flight = self._flight
        if flight is None or flight.cycle != settled.cycle:
            return
        if settled.outcome == "under_way":
            flight.is_under_way = True
            flight.deadline_s = self._deadline_s()
        else:
            flight.end(settled.outcome, settled.seq)

    def _on_broken_compiler(self, reason: str) -> None:
        self.ctx.log.warning("nodes are scored without compiled loops", reason=reason)

    async def run(self) -> None:
        """Open cycles while this replica is the active one."""
        numbers = itertools.count(1)
        name = f"{self.ctx.settings.instance}.{self.world.lease.epoch}"
        while self.world.lease.is_held:
            received_us, begun_s = _now_us(), time.monotonic()
            try:
                found, looked_at_seq = await self.world.fold.off_loop(self._look)
            except Exception as error:  # whatever it is: a defect must not end the order of all
                await self._start_over(error)
                continue
            if found is None:
                await self._sleep_until_news(looked_at_seq)
                continue
            flight = await self._send(f"{name}.{next(numbers)}", found, received_us)
            await self._land(flight)
            self._flight = None
            if self._waiting is None and 1 < len(found.batch.uids) < self._most:
                # What a cycle over groups costs hardly depends on its pods: so while several come
                # in the time of one, as much time goes to gathering. Where they come one by one
                # there is nothing to gather, and the next would wait in vain.
                await anyio.sleep(min(GATHER_S_MAX, time.monotonic() - begun_s))

    async def _start_over(self, error: Exception) -> None:
        """Discard the order that was kept: the next batch rebuilds it from the state."""
        self.ctx.log.error("defect; the order of pods is recomputed", error=error)
        self.ctx.refusals.refuse(ORDER, "Batch", error)
        self._groups = self._feasibility = self._waiting = None
        await anyio.sleep(ORDER_AGAIN_S)

    def _look(self) -> tuple[_Found | None, int]:
        """The pods that are due, and the last record they take into account: none if costly pods
        were skipped. The filter looks at those next, after the records that wait.
        """
        found, state = self._next(), self.world.fold.state
        groups = self._groups if state.is_batched else None
        effort = self._effort if groups is None else groups.effort
        return found, -1 if effort.has_passed_over else state.seq

    def _next(self) -> _Found | None:
        """The pods that are due, without those that are in a cycle; None if there are none."""
        self._forget_held_back()
        state = self.world.fold.state
        if state.is_batched:  # the order of groups asks no node, so that it needs no loops
            self._feasibility = self._waiting = None
            return self._next_groups(state)
        allotment_board.prepare(state, self._on_broken_compiler)
        if self._feasibility is None or self._feasibility.state is not state:
            self._feasibility = FeasibilityCache(state, NodeRanker(state))
        if self._waiting is None or self._waiting.state is not state:
            self._waiting = Waiting(state)
        return self._next_pods(state, self._feasibility, self._waiting)

    def _next_pods(
        self, state: ClusterState, feasibility: FeasibilityCache, waiting: Waiting
    ) -> _Found | None:
        if len(self.tried) > 2 * len(state.pending) + 1000:
            self.tried = {uid: seq for uid, seq in self.tried.items() if uid in state.pending}
        while True:
            turn = next_round(
                *(feasibility, self.tried, self.held_back, self._most, waiting),
                self._effort,
            )
            batch = turn.batch
            for uid in turn.in_vain:
                self.tried[uid] = batch.basis
            if batch.uids:
                break
            if not turn.in_vain or self._effort.has_passed_over:
                return None

        def done() -> None:
            self.tried.update(dict.fromkeys(batch.uids, batch.basis))

        offered = partial(waiting.offered, batch.uids)
        return _Found(batch, offered, done, feasibility.follow)

    def _next_groups(self, state: ClusterState) -> _Found | None:
        if self._groups is None or self._groups.state is not state:
            self._groups = Groups(state, partial(self._ranker, state))
        groups = self._groups
        parked = groups.parked
        if parked is not None and parked.asks_nodes:
            allotment_board.prepare(state, self._on_broken_compiler)
        self._give_time(state)
        found = groups.next_batch(self.held_back, self._most)
        for job, error in groups.left_out.items():
            self.ctx.log.error("defect; what it is about is left out", about=job, reason=error)
            self.ctx.refusals.refuse(ORDER, "Job", error)
        groups.left_out.clear()
        if found is None:
            return None
        follow = None if groups.parked is None else groups.parked.follow
        offered = partial(groups.offered, found)
        done = partial(groups.tried, found, is_offered=True)
        return _Found(found.batch, offered, done, follow)

    def _ranker(self, state: ClusterState) -> NodeRanker | None:
        """What asks the nodes for those who wait in vain: not as long as the loops are compiled
        that are to do it, for that would hold up everybody else.
        """
        allotment_board.prepare(state, self._on_broken_compiler)
        return None if allotment_board.is_loading() else NodeRanker(state)

    def _give_time(self, state: ClusterState) -> None:
        """A pod may arrive before its PodGroup, so the filter does not refuse it at once."""
        missing = set(without_group(state))
        for uid in self._awaited - missing:
            self.held_back.pop(uid, None)
        for uid in missing - self._awaited:
            self.held_back.setdefault(uid, time.monotonic() + GROUP_WAIT_S)
        self._awaited = missing

    def _forget_held_back(self) -> None:
        now = time.monotonic()
        if self.held_back:
            self.held_back = {uid: at for uid, at in self.held_back.items() if at > now}

    async def _sleep_until_news(self, looked_at_seq: int) -> None:
        """Until the log moves on from there, or a held-back pod's time has come; the lease is
        looked at often.
        """
        if self.world.fold.state.seq != looked_at_seq:
            return
        wait_s = 0.5
        if self.held_back:
            wait_s = max(0.001, min(wait_s, min(self.held_back.values()) - time.monotonic()))
        with anyio.move_on_after(wait_s):
            await self.world.fold.changed()

    async def _send(self, cycle: str, found: _Found, received_us: int) -> _Flight:
        """Send a cycle on its way."""
        batch = found.batch
        flight = self._flight = _Flight(cycle, found, self._most, self._deadline_s())
        headers: dict[str, str] = {}
        with self.ctx.tracer.batch_span(
            "filter", attributes={"allot.batch.pods": len(batch.uids)}, ids=cycle_ids(cycle)
        ) as span:
            span.update({"allot.ledger.seq": batch.basis, "allot.cycle": cycle})
            span.inject(headers)
            finished_us = _now_us()
            message = Feasible(
                v=MESSAGE_VERSION,
                cycle=cycle,
                basis=batch.basis,
                batch=batch.uids,
                classes=batch.classes,
                stages=(StageTime("filter", self.ctx.settings.instance, received_us, finished_us),),
            )
            dropped = await self.world.bus.publish(subjects.FEASIBLE, encode(message), headers)
        self.cycles += 1
        self.ctx.metrics.observe_stage("filter", (finished_us - received_us) / 1e6, span.trace_id)
        if dropped is not None:
            self.ctx.log.warning("cycle not sent", cycle=cycle, reason=dropped)
        found.offered()
        await anyio.lowlevel.checkpoint()  # the message goes first
        if found.follow is not None:
            await self.world.fold.off_loop(found.follow)
        return flight

    def _deadline_s(self) -> float:
        """When a cycle of which nothing is heard from now on will have taken too long."""
        return time.monotonic() + self._patience * self.ctx.settings.cycle_deadline_ms / 1000

    async def _land(self, flight: _Flight) -> None:
        """Wait for the end of a cycle, and do what follows from it."""
        is_over = await flight.ended()
        if flight.outcome == LOST:
            self.reissued += 1
            self._patience = 1
            self.ctx.log.info("a binder begins, issuing the cycle again", cycle=flight.cycle)
            return
        if is_over:
            with anyio.move_on_after(self.ctx.settings.cycle_deadline_ms / 1000) as reached:
                await self.world.fold.wait_for(flight.seq)
            is_over = not reached.cancelled_caught
        if not is_over:
            self.reissued += 1
            if flight.is_under_way:  # set by reports; unset in each cycle that is reissued
                self._patience = min(2 * self._patience, PATIENCE_MAX)
            self.ctx.log.warning("no answer about a cycle, issuing it again", cycle=flight.cycle)
            return
        self._patience = 1
        if flight.outcome == "failed":
            self._narrow(flight.found.batch.uids)
        elif flight.outcome != "conflict":
            self._conflicts = 0
            self._widen(flight)
            flight.found.done()
            return
        pause_s = CONFLICT_PAUSE_S * 2.0 ** min(self._conflicts, 16)
        self._conflicts += 1
        most_s = CONFLICT_PAUSE_MAX_S if flight.outcome == "conflict" else FAILED_PAUSE_MAX_S
        await anyio.sleep(min(pause_s, most_s))

    def _narrow(self, uids: Sequence[str]) -> None:
        """A cycle raised an error. Halving the batch finds the pod or group that caused it. That
        one waits longer after each failure, so that it does not hold up other pods.
        """
        units = {self._unit(uid) for uid in uids}
        if len(units) > 1:
            self._most = max(1, min(self._most, len(uids)) // 2)
            return
        for unit in units:
            failures = self._failures[unit] = self._failures.get(unit, 0) + 1
            delay_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))
            self.held_back.update(dict.fromkeys(uids, time.monotonic() + delay_s))
            self.ctx.log.warning(
                "a pod or group makes cycles fail and is retried later",
                about=unit,
                failures=failures,
                wait_s=delay_s,
            )

    def _widen(self, flight: _Flight) -> None:
        """A cycle came to its end. One that was under way while another one failed says nothing
        about fewer pods.
        """
        uids = flight.found.batch.uids
        if flight.most == self._most:
            self._most = min(2 * self._most, self.ctx.settings.batch_max)
        if self._failures:
            pods = self.world.fold.state.pods
            over = {self._unit(uid) for uid in uids}
            known = {fact.group or fact.uid for fact in (pod.fact for pod in pods.values())}
            self._failures = {
                unit: times
                for unit, times in self._failures.items()
                if unit in known and unit not in over
            }

    def _unit(self, uid: str) -> str:
        """What is decided as a whole: the pod's group, or the pod."""
        pod = self.world.fold.state.pods.get(uid)
        return uid if pod is None or not pod.fact.group else pod.fact.group


async def run(ctx: Context) -> None:
    async with open_world(ctx) as world:
        work = Filter(ctx, world)
        ctx.metrics.expose(
            "allot_cycles_total", "cycles opened", lambda: work.cycles, kind="counter"
        )
        ctx.metrics.expose(
            "allot_cycles_reissued_total",
            "cycles that did not come back in time",
            lambda: work.reissued,
            kind="counter",
        )
        ctx.metrics.expose(
            "allot_compiled_loops",
            "1 while nodes are scored by compiled loops",
            allotment_board.is_compiled,
        )
        await world.bus.subscribe(subjects.SETTLED, work.on_settled)
        with ctx.until_stop():
            while True:
                await world.active()
                await work.run()


def _now_us() -> int:
    return time.time_ns() // 1000


def main() -> None:
    sys.exit(
        start_service("allotment-filter", FilterSettings, run, "Orders pods and opens cycles.")
    )


if __name__ == "__main__":
    main()
