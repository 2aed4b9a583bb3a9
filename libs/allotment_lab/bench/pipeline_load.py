"""The load of `allot bench pipeline`: facts put into the log, decisions read back from it.

All times are the log's: when the server stored a pod's fact, and when it stored the decision.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from random import Random

import anyio
import msgspec

from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.recorder import Recorder
from allotment.core.errors import AllotError
from allotment.core.logport import LogMisconfigured, Record
from allotment_lab.bench.worlds.churn import misfit, queue_name
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import Envelope, Event, PodGone, PodObserved
from allotment_proto.facts import PodRequest
from allotment_proto.registry import subject_of_facts

NAMESPACE = "bench"


class _Decided(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a placement or a refusal."""

    uid: str


class Cycle(msgspec.Struct, tag="Decided", frozen=True):
    """What the bench reads of a decision: a few fields, so that reading costs little."""

    batch: tuple[str, ...]
    placements: tuple[_Decided, ...] = ()
    refusals: tuple[_Decided, ...] = ()


class _Seen(msgspec.Struct, tag="PodObserved"):
    uid: str


class _Ended(msgspec.Struct, tag="PodGone"):
    uid: str


class _Decision(msgspec.Struct):
    events: tuple[Cycle, ...]


class _Facts(msgspec.Struct):
    events: tuple[_Seen | _Ended, ...]


decode_decision = msgspec.json.Decoder(_Decision).decode
_facts = msgspec.json.Decoder(_Facts)


class Landed(msgspec.Struct, frozen=True):
    """One decision, and when the log took it."""

    time_ns: int
    cycle: Cycle


async def write_at_once(log: JetStreamLog, events: Iterable[Event]) -> None:
    """Append events, a hundred in a record, and return when the log has them."""
    waiting = iter(events)
    for number in itertools.count():
        part = tuple(itertools.islice(waiting, 100))
        if not part:
            return
        envelope = Envelope(at_ms=0, by="watcher/bench", events=part)
        await log.append(subjects.FACTS, encode(envelope), msg_id=f"bench/{number}")


class Load:
    """Writes pods as the watcher does, and ends the oldest so that at most `live` hold cards."""

    def __init__(
        self,
        log: JetStreamLog,
        wanted: Sequence[PodRequest],
        live: int,
        random: Random,
        queues: int = 0,
        misfits: int = 0,
    ) -> None:
        """The pods are in so many queues (`queue_name`), and so many of a hundred fit nowhere."""
        self.decisions: list[Landed] = []
        self.placed = 0
        self.refused = 0
        self._log = log
        self.wanted = wanted
        self._weights = [1 / request.devices[0].count for request in wanted]
        self._live = live
        self._queues, self._misfits = queues, misfits
        self._random = random
        self._pods = 0
        self._running: deque[str] = deque()
        self._fact_records: list[Record] = []
        self._turn = anyio.Event()
        self._recorder = Recorder(log, "watcher/bench", subject_of_facts, _fail_full, _fail_large)

    async def write(self) -> None:
        """Append what was put, for ever."""
        await self._recorder.run()

    async def follow(self, after_seq: int) -> None:
        """Read the log from there on, for ever."""
        async for batch in self._log.follow(after_seq):
            for record in batch:
                if record.subject == subjects.DECISION:
                    self._take(record)
                else:
                    self._fact_records.append(record)
            turn, self._turn = self._turn, anyio.Event()
            turn.set()

    def put(self, events: Iterable[Event]) -> None:
        self._recorder.put(events)

    def arrive(self, requests: Sequence[PodRequest]) -> list[str]:
        """New pods with these requests; their uids."""
        facts = [self._pod(request) for request in requests]
        self.put(facts)
        return [fact.uid for fact in facts]

    def pick(self, count: int) -> list[PodRequest]:
        """Requests of so many pods."""
        picked = self._random.choices(self.wanted, self._weights, k=count)
        draw = self._random.randrange
        return [misfit(each) if draw(100) < self._misfits else each for each in picked]

    async def settled(self, timeout_s: float) -> None:
        """Wait until every pod so far was decided. Raises AllotError if nothing moves."""
        while (answered := self.placed + self.refused) < self._pods:
            with anyio.move_on_after(timeout_s) as silence:
                while self.placed + self.refused == answered:
                    await self._turn.wait()
            if silence.cancelled_caught:
                raise AllotError(
                    f"no decision for {timeout_s:.0f} s: {answered} of {self._pods} pods decided"
                )

    async def written(self, timeout_s: float) -> None:
        """Wait until every pod so far was read back. Raises AllotError if nothing moves."""
        known = looked_at = 0
        while True:
            for record in self._fact_records[looked_at:]:
                known += len(_facts.decode(record.payload).events)
            looked_at = len(self._fact_records)
            if known >= self._pods:
                return
            with anyio.move_on_after(timeout_s) as silence:
                await self._turn.wait()
            if silence.cancelled_caught:
                raise AllotError(f"only {known} of {self._pods} pods came back from the log")

    def latencies_us(self) -> list[float]:
        """Each decided pod's time from its fact to its decision, both as the log dates them."""
        seen_ns = self._fact_times_ns()
        return sorted(
            (decision.time_ns - seen_ns[uid]) / 1000
            for decision in self.decisions
            for uid in decision.cycle.batch
            if uid in seen_ns
        )

    def elapsed_s(self) -> float:
        """From the first fact to the last decision."""
        return (self.decisions[-1].time_ns - min(self._fact_times_ns().values())) / 1e9

    def _fact_times_ns(self) -> dict[str, int]:
        """When each pod's fact was stored."""
        times: dict[str, int] = {}
        for record in self._fact_records:
            for event in _facts.decode(record.payload).events:
                if isinstance(event, _Seen):
                    times.setdefault(event.uid, record.time_ns)
        return times

    def forget(self) -> None:
        """Start a new measurement."""
        self.decisions.clear()
        self._fact_records.clear()

    def _take(self, record: Record) -> None:
        for cycle in decode_decision(record.payload).events:
            self.decisions.append(Landed(record.time_ns, cycle))
            self.placed += len(cycle.placements)
            self.refused += len(cycle.refusals)
            self._running.extend(pod.uid for pod in cycle.placements)
        ended = [self._running.popleft() for _ in range(len(self._running) - self._live)]
        self.put(PodGone(uid=uid, namespace=NAMESPACE, name=uid, rv=2) for uid in ended)

    def _pod(self, request: PodRequest) -> PodObserved:
        self._pods += 1
        uid = f"3f8a91c2-5b7e-4d60-9a1f-{self._pods:012d}"  # as long as Kubernetes' own
        return PodObserved(
            uid=uid,
            namespace=NAMESPACE,
            name=f"pod-{self._pods}",
            rv=1,
            created_ms=self._pods,
            queue=queue_name(self._pods % self._queues) if self._queues else "",
            scheduler="allotment",
            phase="Pending",
            request=request,
        )


def _fail_full(message: str) -> None:
    if message:
        raise LogMisconfigured("the bench's log", ())


def _fail_large(event: Event, message: str) -> None:
    raise AllotError(f"a fact is too large for the log: {message}")
