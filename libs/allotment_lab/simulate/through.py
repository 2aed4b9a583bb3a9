"""`--through services`: the same pods decided by the running pipeline, and what the log then says.

A nats-server of its own on file storage; filter, scorer and binder as processes of their own, the
binder without Kubernetes. All pods arrive at once and none leaves. The result is that of one
arrival after the other, since a refused pod takes no room from those that follow.
"""

import hashlib
import tempfile
from pathlib import Path

import anyio
import msgspec

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record
from allotment_lab.engine import Totals, last_obstacle
from allotment_lab.measures import (
    Wanted,
    capacity_milli,
    fragmented_milli,
    idle_cards,
    node_milli,
)
from allotment_lab.processes import CpuClock, nats_server, run, services
from allotment_lab.runs import Progress
from allotment_lab.simulate.policies import Chosen
from allotment_lab.simulate.report import Ran, curve, report
from allotment_lab.simulate.run import Drawn
from allotment_lab.workload import START_MS
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Decided, Envelope, Event, Placement, PolicyLoaded, Refusal

STAGES = ("filter", "scorer", "binder")
SILENCE_S = 120.0
FACTS_PER_RECORD = 100


def simulate_through(drawn: Drawn, chosen: Chosen, seed: int, progress: Progress) -> Ran:
    """Decide a drawn workload with real services. Raises `AllotError` if they fail or hang."""
    if not chosen.is_of_product:
        raise AllotError(f"no service places by {chosen.name}", f"leave out --policy {chosen.name}")
    if len({arrival.fact.priority for arrival in drawn.ours}) > 1:
        raise AllotError(
            "the services decide pods of higher priority first, not one arrival after the other",
            "leave out --through services, or give all pods one priority",
        )
    with tempfile.TemporaryDirectory(prefix="allot-simulate-") as directory:
        log = run(_run, drawn, chosen, Path(directory), progress)
    totals = log.totals()
    found = report(
        totals,
        policy=chosen.name,
        seed=seed,
        through="services",
        mode="arrivals",
        nodes=len(drawn.workload.nodes),
        cpu_s=log.cpu_us / 1e6,
    )
    return Ran(found, curve(totals), totals.starts)


class _Followed:
    """The log's state and answers, pod by pod."""

    def __init__(self, drawn: Drawn) -> None:
        self.state = ClusterState()
        self.cpu_us = 0
        self.placed: dict[str, Placement] = {}
        self.refused: dict[str, Refusal] = {}
        self._drawn = drawn
        self._trace = hashlib.sha256()

    @property
    def answered(self) -> int:
        return len(self.placed) + len(self.refused)

    def decided(self, event: Decided) -> None:
        for refusal in event.refusals:
            self.refused[refusal.uid] = refusal
        for placement in event.placements:
            if placement.uid not in self.state.voided:
                self.placed[placement.uid] = placement
                self.refused.pop(placement.uid, None)
                cards = [holding.card for holding in placement.holdings]
                self._trace.update(msgspec.json.encode((placement.uid, placement.node, cards)))

    def totals(self) -> Totals:
        """The run, from the state to which the log folds."""
        drawn, nodes = self._drawn, self._drawn.workload.nodes
        wanted = Wanted(nodes)
        arrived = allocated = 0
        points: list[tuple[int, int, int]] = []
        for arrival in drawn.ours:
            milli = wanted.milli(arrival.fact.request)
            arrived += milli
            allocated += milli if arrival.fact.uid in self.placed else 0
            points.append((arrived, allocated, len(points) + 1))
        taken = sum(map(node_milli, self.state.nodes.values()))
        refusals: dict[str, int] = {}
        for refusal in self.refused.values():
            code = last_obstacle(refusal)
            refusals[code] = refusals.get(code, 0) + 1
        return Totals(
            capacity_milli=capacity_milli(nodes),
            arrived_milli=arrived,
            allocated_milli=taken,
            peak_milli=taken,
            fragmented_milli=fragmented_milli(self.state, drawn.mix),
            idle_cards=idle_cards(self.state),
            arrived=len(drawn.ours),
            placed=len(self.placed),
            refused=len(self.refused),
            refusals=dict(sorted(refusals.items())),
            waits_s=[],
            decisions=self.answered,
            trace_sha256=self._trace.hexdigest(),
            curve=points[:: max(len(points) // 400, 1)] + points[-1:],
        )


async def _run(drawn: Drawn, chosen: Chosen, directory: Path, progress: Progress) -> _Followed:
    async with (
        nats_server(directory / "nats") as server,
        connect(server.url, "simulate") as connection,
    ):
        log = await JetStreamLog.open(connection, monitor_url=server.monitor_url)
        await _write(log, "cluster", _cluster(drawn, chosen))
        nats = ["--nats-url", server.url, "--nats-monitor-url", server.monitor_url]
        commands = {name: [f"allotment_{name}", *nats] for name in STAGES}
        commands["binder"].append("--no-bind")
        async with services(commands, directory) as running:
            clock = CpuClock(running.pids() | {"nats": server.pid})
            await _write(log, "pods", _pods(drawn))
            found = await _follow(log, drawn, progress)
            running.check()
            found.cpu_us = sum(clock.passed_us().values())
        return found


def _cluster(drawn: Drawn, chosen: Chosen) -> list[Event]:
    loaded = PolicyLoaded(policy=chosen.policy, source="simulation", text_sha256="")
    fixed = [arrival.fact for arrival in drawn.workload.fixed if arrival.deleted_s is None]
    return [loaded, *drawn.learned(chosen), *drawn.workload.nodes, *fixed]


def _pods(drawn: Drawn) -> list[Event]:
    return [
        msgspec.structs.replace(arrival.fact, created_ms=START_MS + 1000 * second)
        for second, arrival in enumerate(drawn.ours, start=1)
    ]


async def _write(log: JetStreamLog, what: str, events: list[Event]) -> None:
    """Append facts, many in a record, and return when the log has them."""
    for first in range(0, len(events), FACTS_PER_RECORD):
        part = tuple(events[first : first + FACTS_PER_RECORD])
        envelope = Envelope(at_ms=START_MS, by="watcher/simulation", events=part)
        await log.append(subjects.FACTS, encode(envelope), msg_id=f"{what}/{first}")


async def _follow(log: JetStreamLog, drawn: Drawn, progress: Progress) -> _Followed:
    """Fold the log until every pod has an answer."""
    found = _Followed(drawn)
    batches = log.follow(0)
    while found.answered < len(drawn.ours):
        before, batch = found.answered, None
        with anyio.move_on_after(SILENCE_S):
            batch = await anext(batches)
        if batch is None:
            pods = f"{found.answered} of {len(drawn.ours)} pods decided"
            raise AllotError(f"the log did not move for {SILENCE_S:.0f} s: {pods}")
        for record in batch:
            events = decode_envelope(record.payload, record.subject).events
            is_decision = record.subject == subjects.DECISION
            apply_record(found.state, events, record.seq, is_decision=is_decision)
            for event in events:
                if isinstance(event, Decided):
                    found.decided(event)
        progress(found.answered - before)
    await batches.aclose()
    return found
