"""What queues and groups have and lack, as gauges with Volcano's names, read off a session's books.

Volcano's labels and units: CPU in milli-cores, memory in bytes, other resources in thousandths, one
row for each that a queue has a number for. They are computed from the state each time, so that
none outlives its queue. A queue's `deserved` and `real_capacity` are those of the active quota
plugin, and there are none without one; `capacity` is what the Queue says.

Source of the names: Volcano's `pkg/scheduler/metrics`.
"""

from collections import Counter
from collections.abc import Container, Mapping
from fractions import Fraction
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.metrics.cards import Gauge, Rows
from allotment.core.queues.model import QueueView
from allotment.core.queues.plugins.drf import dominant_share
from allotment.core.queues.reckoning import QueueBook
from allotment.core.queues.resources import (
    CPU,
    MEMORY,
    NOTHING,
    PODS,
    Resources,
    largest_share,
)
from allotment.core.queues.round.quota import reckoned
from allotment.core.queues.session import Session
from allotment.core.queues.shares import open_books
from allotment_proto.events import Decided, Event, Evicted

PREFIX = "volcano"
_QUEUE_LABEL = "queue_name"
_MICRO = 1_000_000
_AMOUNTS = {
    "allocated": "what the queue's pods hold",
    "request": "what the queue's pods hold and ask for",
    "deserved": "what the queue may take back from others",
    "capacity": "the most that the Queue says it may have",
    "real_capacity": "the most that the queue may have, less what others are guaranteed",
    "inqueue": "what admitted groups asked for and do not hold yet",
}


class _Queue(NamedTuple):
    """One queue's amounts by the words of `_AMOUNTS`."""

    view: QueueView
    amounts: Mapping[str, Resources]
    share: Fraction
    is_overused: bool


def queue_gauges(session: Session | None) -> list[Gauge]:
    """All gauges about queues. Every gauge is there, also without rows (no session)."""
    queues = [] if session is None else _queues(session)
    offered = NOTHING if session is None else session.world.cluster.total
    gauges = [
        gauge
        for word, text in _AMOUNTS.items()
        for gauge in _amount_gauges(word, text, queues, offered)
    ]
    share: Rows = {(q.view.name,): int(q.share * _MICRO) for q in queues}
    weight: Rows = {(q.view.name,): q.view.weight for q in queues}
    overused: Rows = {(q.view.name,): int(q.is_overused) for q in queues}
    named = (
        ("share", "the greatest part that a queue has of anything it deserves", share, _MICRO),
        ("weight", "the weight of a queue", weight, 1),
        ("overused", "whether a queue gets nothing more (1)", overused, 1),
    )
    gauges += [
        Gauge(f"{PREFIX}_queue_{word}", text, (_QUEUE_LABEL,), rows, divisor)
        for word, text, rows, divisor in named
    ]
    return gauges


def job_gauges(state: ClusterState, session: Session | None) -> list[Gauge]:
    """All gauges about groups. Every gauge is there, also without rows."""
    waiting: Rows = {
        (key,): sum(uid in state.pending for uid in group.members)
        for key, group in state.groups.items()
        if group.short is not None
    }
    shares: Rows = {}
    spaces: Rows = {}
    if session is not None:
        total = session.world.cluster.total
        for key in state.groups:
            job = session.jobs.get(key)
            if job is not None:
                share = int(dominant_share(job.allocated, total) * _MICRO)
                shares[(job.view.namespace, key)] = share
        spaces = {
            (name,): int(dominant_share(held, total) * _MICRO)
            for name, held in session.world.held_in_namespaces().items()
        }
    count: Rows = {} if session is None else {(): len(waiting)}
    return [
        Gauge(f"{PREFIX}_unschedule_job_count", "groups that found no place", (), count),
        Gauge(
            f"{PREFIX}_unschedule_task_count",
            "pods that wait, of a group that found no place",
            ("job_id",),
            waiting,
        ),
        Gauge(
            f"{PREFIX}_job_share",
            "the greatest part that a group has of anything in the cluster",
            ("job_ns", "job_id"),
            shares,
            _MICRO,
        ),
        *_namespace_gauges(spaces),
    ]


def _namespace_gauges(shares: Rows) -> list[Gauge]:
    """What namespaces have. All weigh the same, so the weighted share is the share."""
    text = "the greatest part that a namespace's pods have of anything in the cluster"
    labels = ("namespace_name",)
    return [
        Gauge(f"{PREFIX}_namespace_share", text, labels, shares, _MICRO),
        Gauge(f"{PREFIX}_namespace_weight", "always 1", labels, dict.fromkeys(shares, 1)),
        Gauge(f"{PREFIX}_namespace_weighted_share", text, labels, shares, _MICRO),
    ]


class Preemptions:
    """Counts what the log tells of evictions."""

    def __init__(self) -> None:
        self._attempts = 0
        self._victims = 0
        self._evicted: Counter[str] = Counter()
        self._open: dict[str, str] = {}

    def take(self, event: Event, *, is_ours: bool) -> None:
        """Take note of one event, in log order; see `Schedules.take`."""
        if isinstance(event, Decided) and event.evictions:
            self._attempts += is_ours
            self._victims = len(event.evictions)
            self._open.update((eviction.uid, eviction.action) for eviction in event.evictions)
        elif isinstance(event, Evicted):
            action = self._open.pop(event.uid, "")
            if action and not event.code and is_ours:
                self._evicted[action] += 1

    def gauges(self) -> list[Gauge]:
        """What was counted, under Volcano's names (one of which is a counter by its name only)."""
        evicted: Rows = {(action,): count for action, count in self._evicted.items()}
        return [
            Gauge(
                f"{PREFIX}_pod_preemption_victims",
                "pods that the last decision to evict evicts",
                (),
                {(): self._victims},
            ),
            Gauge(
                f"{PREFIX}_total_preemption_attempts",
                "decisions to evict since the start",
                (),
                {(): self._attempts},
            ),
            Gauge(
                f"{PREFIX}_eviction_transactions_total",
                "pods evicted since the start",
                ("action",),
                evicted,
                is_counter=True,
            ),
        ]


def _queues(session: Session) -> list[_Queue]:
    own = open_books(session.world)
    return [
        _queue(session, session.queue(name), own[name]) for name in sorted(session.world.queues)
    ]


def _queue(session: Session, view: QueueView, own: QueueBook) -> _Queue:
    """One queue; `own` is what its pods have and ask for, without those of queues below it."""
    found = reckoned(session, view.name)
    allocated, due = found.book.allocated, NOTHING
    amounts = {"capacity": view.capability, "allocated": allocated}
    amounts["request"] = allocated.plus(own.pending)
    if found.most is not None and found.deserved is not None:
        due = found.most if found.is_strict else found.deserved
        amounts |= {"deserved": due, "real_capacity": found.most, "inqueue": found.book.inqueue}
    return _Queue(
        view,
        amounts,
        Fraction(largest_share(allocated, due)),
        session.overused(view.name) is not None,
    )


def _amount_gauges(
    word: str, text: str, queues: list[_Queue], offered: Container[str]
) -> list[Gauge]:
    """One amount of all queues. What no node offers has rows only where the Queue names it: pods
    make up as many names as they like.
    """
    cpu: Rows = {}
    memory: Rows = {}
    scalars: Rows = {}
    for queue in queues:
        for name, amount in queue.amounts.get(word, NOTHING).items():
            if name == CPU:
                cpu[(queue.view.name,)] = int(amount)
            elif name == MEMORY:
                memory[(queue.view.name,)] = int(amount)
            elif name != PODS and (name in offered or name in queue.view.capability):
                scalars[(queue.view.name, name)] = int(amount)
    start = f"{PREFIX}_queue_{word}"
    return [
        Gauge(f"{start}_milli_cpu", f"{text}: CPU in thousandths", (_QUEUE_LABEL,), cpu),
        Gauge(f"{start}_memory_bytes", f"{text}: memory", (_QUEUE_LABEL,), memory),
        Gauge(
            f"{start}_scalar_resources",
            f"{text}: others in thousandths",
            (_QUEUE_LABEL, "resource"),
            scalars,
        ),
    ]
