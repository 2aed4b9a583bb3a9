"""An exported log → the workload that it records: the same nodes, and the same pods again.

Nodes are those that exist when the log ends, as they were last seen. Pods of ours come when
they were created and run, once placed, as long as they did; those that never ran go when they were
deleted. Where the log's decisions put them is left out, because that is decided again. Pods
that others placed, and those placed before the log began, take their room from when they were seen.
Queues, priority classes and PodGroups come, change and go when they did; of a PodGroup's status,
which tells what was decided then, nothing is kept.
"""

from collections.abc import Iterable

import msgspec

from allotment.core.ledger.model import ENDED
from allotment.core.logport import Record
from allotment_lab.workload import START_MS, Arrival, Workload, WorkloadError
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import (
    Decided,
    Event,
    GroupGone,
    GroupObserved,
    MixLearned,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_proto.facts import Policy


def from_records(records: Iterable[Record], source: str) -> Workload:
    """The workload of a log. Raises `WorkloadError` if it holds no nodes or no pods of ours.

    Records that no release can read are skipped, as the services do.
    """
    reader = _Reader()
    for record in records:
        try:
            envelope = decode_envelope(record.payload, record.subject)
        except UndecodableError:
            continue
        for event in envelope.events:
            reader.read(event, record.time_ns // 1_000_000_000)
    if not reader.nodes or not reader.pods:
        missing = "nodes" if not reader.nodes else "pods"
        raise WorkloadError([f"{source}: holds no {missing}; wanted: a whole exported log"])
    return reader.workload()


class _Seen:
    """One pod: as first seen, as placed by others, and its times."""

    def __init__(self, fact: PodObserved, seen_s: int) -> None:
        self.fact = fact
        self.created_s = fact.created_ms // 1000 or seen_s
        self.placed: PodObserved | None = None
        self.placed_s = 0
        self.ended_s: int | None = None


class _Reader:
    def __init__(self) -> None:
        self.policy = Policy()
        self.nodes: dict[str, NodeObserved] = {}
        self.pods: dict[str, _Seen] = {}
        self.facts: list[tuple[int, Event]] = []
        self._decided_s: dict[str, int] = {}
        self._groups: dict[tuple[str, str], GroupObserved] = {}

    def read(self, event: Event, seen_s: int) -> None:
        match event:
            case NodeObserved():
                self.nodes[event.name] = event
            case NodeGone():
                self.nodes.pop(event.name, None)
            case PolicyLoaded():
                is_same = event.policy.device_policy == self.policy.device_policy
                mix = self.policy.mix if is_same else ()
                self.policy = msgspec.structs.replace(event.policy, mix=mix)
            case MixLearned():
                if event.policy == self.policy.device_policy:
                    self.policy = msgspec.structs.replace(self.policy, mix=event.mix)
            case PodObserved():
                self._pod(event, seen_s)
            case PodGone():
                self._end(event.uid, seen_s)
            case Decided():
                self._decided_s.update((p.uid, seen_s) for p in event.placements)
            case GroupObserved():
                self._group(event, seen_s)
            case GroupGone():
                self._groups.pop((event.namespace, event.name), None)
                self.facts.append((seen_s, event))
            case QueueObserved() | QueueGone() | PriorityClassObserved() | PriorityClassGone():
                self.facts.append((seen_s, event))
            case _:
                pass

    def _group(self, event: GroupObserved, seen_s: int) -> None:
        """A PodGroup without its status, where that is news."""
        key = event.namespace, event.name
        bare = msgspec.structs.replace(event, phase="", rv=1)
        if self._groups.get(key) != bare:
            self._groups[key] = bare
            self.facts.append((seen_s, event))

    def _pod(self, fact: PodObserved, seen_s: int) -> None:
        pod = self.pods.get(fact.uid)
        if pod is None:
            pod = self.pods[fact.uid] = _Seen(fact, seen_s)
        elif not fact.node and fact.uid not in self._decided_s:
            pod.fact = fact  # the PodGroup that was made for it, perhaps
        if fact.node and pod.placed is None:
            pod.placed, pod.placed_s = fact, seen_s
        if fact.phase in ENDED:
            self._end(fact.uid, seen_s)

    def _end(self, uid: str, seen_s: int) -> None:
        pod = self.pods.get(uid)
        if pod is not None and pod.ended_s is None:
            pod.ended_s = seen_s

    def workload(self) -> Workload:
        arrivals = [a for uid, pod in self.pods.items() if (a := self._arrival(uid, pod))]
        start_s = min((arrival.created_s for arrival in arrivals), default=0)
        facts = [(max(at_s - start_s, 0), _afresh(event, start_s)) for at_s, event in self.facts]
        return Workload(
            tuple(self.nodes[name] for name in sorted(self.nodes)),
            tuple(
                Arrival(
                    a.fact,
                    a.created_s - start_s,
                    None if a.deleted_s is None else max(a.deleted_s, a.created_s) - start_s,
                    a.runs_s,
                )
                for a in arrivals
            ),
            self.policy,
            tuple(facts),
            placed_then=sum(a.fact.uid in self._decided_s for a in arrivals),
        )

    def _arrival(self, uid: str, pod: _Seen) -> Arrival | None:
        fact = pod.fact
        decided_s = self._decided_s.get(uid)
        is_ours = pod.placed is None and fact.scheduler in self.policy.scheduler_names
        if decided_s is not None or is_ours:
            again = msgspec.structs.replace(
                fact, rv=1, node="", holdings=(), phase="Pending", deleting=False, gated=False
            )
            if decided_s is None or pod.ended_s is None:
                return Arrival(again, pod.created_s, pod.ended_s)
            return Arrival(again, pod.created_s, None, max(pod.ended_s - decided_s, 1))
        if pod.placed is None or pod.placed.phase in ENDED:
            return None
        return Arrival(pod.placed, pod.placed_s, pod.ended_s)


def _afresh(event: Event, start_s: int) -> Event:
    """A fact as the simulated scheduler receives it; moments count from the start."""
    if not isinstance(event, GroupObserved):
        return event
    created_ms = START_MS + max(event.created_ms - 1000 * start_s, 0)
    return msgspec.structs.replace(event, phase="", created_ms=created_ms)
