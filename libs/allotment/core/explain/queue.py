"""What a queue may have, what it has, and whom it keeps waiting, at one sequence.

The limits are those of the plugin that is in force: the same books that decide are shown.
"""

from allotment.core.explain.pod_story import generated_base
from allotment.core.explain.schema import (
    QUEUE_SCHEMA,
    AsOf,
    Limit,
    QueueExplanation,
    QueueGroup,
    QueueHolder,
    Reason,
    Subject,
    kept_of,
    place_among,
    reason_of,
)
from allotment.core.jobs.keys import MADE_GROUP
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import memory_units
from allotment.core.queues.round.verdict import WaitingJob, queue_verdict
from allotment.core.units import rfc3339


def explain_queue(state: ClusterState, name: str, as_of_ms: int) -> QueueExplanation:
    """Explain a queue. Raises KeyError for one that is not known."""
    fact = state.queues[name]
    found = queue_verdict(state, name)
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
        limits=tuple(Limit(**limit._asdict()) for limit in found.limits),
        waiting=tuple(
            _group(state, job, position, as_of_ms)
            for position, job in enumerate(found.waiting, start=1)
        ),
        kept=kept_of(found.holds),
        holders=tuple(
            QueueHolder(**each._asdict(), owner=_owner(state, each.namespace, each.name))
            for each in found.holders
        ),
        units=memory_units(state.devices),
    )


def _owner(state: ClusterState, namespace: str, name: str) -> str:
    """Whose pods a group has that is named by a uid: the pod that has this uid, else what stands
    before the generated ends of their names; empty for other groups, and where names differ.
    """
    group = state.groups.get(f"{namespace}/{name}")
    if group is None or not name.startswith(MADE_GROUP):
        return ""
    uid = name.removeprefix(MADE_GROUP)
    if uid in group.members and uid in state.pods:
        return state.pods[uid].fact.name
    pods = (state.pods[each].fact.name for each in group.members if each in state.pods)
    names = {generated_base(pod) or pod for pod in pods}
    return names.pop() if len(names) == 1 else ""


def _group(state: ClusterState, job: WaitingJob, position: int, as_of_ms: int) -> QueueGroup:
    view = job.view
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
        reason=None if job.no is None else reason_of(job.no),
        owner="" if job.is_pod else _owner(state, view.namespace, view.name),
    )
