"""What a queue may have, what it has, and which groups wait in it, at one sequence.

The limits are those of the active plugin: they come from the same books that the scheduler decides
on.
"""

from msgspec.structs import replace

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import owner_of
from allotment.core.explain.rows.schema import (
    QUEUE_SCHEMA,
    AsOf,
    QueueExplanation,
    QueueGroup,
    Reason,
    Subject,
    kept_of,
    place_among,
    reason_of,
)
from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.placement.devices import memory_units
from allotment.core.queues.round.verdict import WaitingJob, queue_verdict
from allotment.core.units import rfc3339


def explain_queue(state: ClusterState, name: str, as_of_ms: int) -> QueueExplanation:
    """Explain a queue. Raises KeyError for one that is not known."""
    fact = state.queues[name]
    found = queue_verdict(state, name)
    whys = Whys(state)
    return QueueExplanation(
        schema=QUEUE_SCHEMA,
        subject=Subject(kind="Queue", namespace="", name=name, uid=fact.uid),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        state=found.view.state,
        parent=found.parent,
        children=found.children,
        weight=found.view.weight,
        priority=found.view.priority,
        reclaimable=found.view.reclaimable,
        plugin=found.plugin,
        problem=None
        if fact.problem is None
        else Reason(code=fact.problem.code, message=f"{fact.problem.place} {fact.problem.message}"),
        refuses=None if found.refuses is None else reason_of(found.refuses),
        groups=dict(found.phases),
        queues=place_among(found.queues, name),
        limits=found.limits,
        waiting=tuple(
            _group(state, job, position, as_of_ms, whys)
            for position, job in enumerate(found.waiting, start=1)
        ),
        kept=kept_of(found.holds),
        holders=tuple(
            replace(each, owner=owner_of(state, each.namespace, each.name))
            for each in found.holders
        ),
        units=memory_units(state.devices),
    )


def _group(
    state: ClusterState, job: WaitingJob, position: int, as_of_ms: int, whys: Whys
) -> QueueGroup:
    view = job.view
    reason = None if job.no is None else reason_of(job.no)
    if job.is_pod and reason is not None:
        why = whys.of(state.pods[view.uid.removeprefix(SINGLE)])
        reason = Reason(code=why.code, message=why.text)
    return QueueGroup(
        position=position,
        namespace=view.namespace,
        name=view.name,
        is_pod=job.is_pod,
        phase=job.phase,
        min_member=view.min_member,
        waiting=job.due,
        priority=view.priority,
        passed=job.passed,
        since_seconds=max(as_of_ms - view.created_ms, 0) // 1000 if view.created_ms else 0,
        reason=reason,
        owner="" if job.is_pod else owner_of(state, view.namespace, view.name),
    )
