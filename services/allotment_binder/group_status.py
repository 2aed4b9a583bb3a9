"""What a PodGroup's status should say, from the books and from what it says now: the pure part.

Phase and counts are what `queues.phases` makes of its pods. That a group is unschedulable is said
only with a decision behind it: the log's `Short`, or the refusal at the gate of its queue. A
condition replaces the older one of its type; of the two types the newer one holds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from allotment.adapters.kube.objects import ObjectMeta
from allotment.core.ledger.groups import NOT_ADMITTED
from allotment.core.ledger.model import ClusterState, Group
from allotment.core.queues.model import JobView, Phase, Status
from allotment.core.queues.phases import SCHEDULED, TRUE, UNSCHEDULABLE, Closing, Condition, close
from allotment.core.queues.texts import READY, Attempt
from allotment.core.queues.work import Job
from allotment.core.reasons import gate_text, quota_text
from allotment_binder.readers import Readers
from allotment_proto.events import QuotaShort

Json = dict[str, Any]
FALSE = "False"
PHASES = {phase.value: phase for phase in Phase}


class SeenStatus(msgspec.Struct):
    phase: str | None = None
    conditions: list[Json] | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class SeenGroup(msgspec.Struct):
    """A PodGroup as the API server showed it last."""

    metadata: ObjectMeta
    status: SeenStatus | None = None

    @property
    def said(self) -> SeenStatus:
        return self.status or SeenStatus()


class Told(NamedTuple):
    """An Event about a PodGroup: type, reason, note."""

    kind: str
    reason: str
    note: str


class Change(NamedTuple):
    """What to merge into the status, and the Event that goes with it."""

    status: Json
    told: Told | None


def phase_before(group: Group, seen: SeenGroup) -> Phase:
    """The phase that the next one follows from; an admitted group is Inqueue, written or not.

    What the server showed us may be newer than the log, and the other way round.
    """
    fact = group.fact
    assert fact is not None, "only groups that were observed have a status"
    text = (seen.said.phase or "") if seen.metadata.version > fact.rv else fact.phase
    if text in NOT_ADMITTED and fact.phase in NOT_ADMITTED and group.admitted_seq:
        return Phase.INQUEUE
    return PHASES.get(text, Phase.NEW)


def quota_of(state: ClusterState, group: Group) -> tuple[QuotaShort, ...]:
    """By which amounts a quota refuses a group: what the log says of its first member that was
    refused for what the group waits for. Other amounts alone are no news there, nor are they here.
    """
    code = group.short.code if group.short is not None else ""
    pods = (state.pods[uid] for uid in group.members if uid in state.pending)
    refusals = (pod.refusal for pod in pods if pod.refusal is not None)
    return next(
        (r.quota for r in refusals if r.quota and r.problem is not None and r.problem.code == code),
        (),
    )


def closing_of(
    group: Group, view: JobView, before: Phase, quota: Sequence[QuotaShort] = ()
) -> Closing:
    """Phase, counts and condition; no condition while there is no decision about the group."""
    job = Job(view)
    job.phase = before
    found = close(job, Attempt())
    if found.phase in (Phase.NEW, Phase.PENDING) and _is_refused(group):
        assert group.gate is not None
        said = Condition(UNSCHEDULABLE, TRUE, group.gate.code, gate_text(group.gate))
        return found._replace(condition=said)
    condition = found.condition
    if condition is None or condition.type != UNSCHEDULABLE:
        return found
    if group.short is None:
        return found._replace(condition=None)
    message = _with_amounts(group.short.message, quota)
    return found._replace(condition=condition._replace(message=message))


def _with_amounts(message: str, quota: Sequence[QuotaShort]) -> str:
    return f"{message} ({'; '.join(map(quota_text, quota))})" if quota else message


def change_of(
    group: Group,
    view: JobView,
    seen: SeenGroup,
    *,
    now: str,
    transition: str,
    readers: Readers,
    quota: Sequence[QuotaShort] = (),
) -> Change | None:
    """What to write; None if the PodGroup says it all already.

    `now` is the time to give a new condition, `transition` its id, `quota` by which amounts it is
    refused, if it is that.
    """
    found = closing_of(group, view, phase_before(group, seen), quota)
    if found.condition is not None:
        message = readers.text(view.namespace, found.condition.message)
        found = found._replace(condition=found.condition._replace(message=message))
    said = seen.said
    wanted: Json = {
        "phase": found.phase.value,
        "running": found.running,
        "succeeded": found.succeeded,
        "failed": found.failed,
    }
    status = {name: v for name, v in wanted.items() if (getattr(said, name) or 0) != (v or 0)}
    told = None
    conditions = said.conditions or []
    if found.condition is not None and not _says(conditions, found.condition):
        others = [c for c in conditions if c.get("type") != found.condition.type]
        if found.condition.type == SCHEDULED:  # what it waited for holds no more
            over = {"status": FALSE, "transitionID": transition, "lastTransitionTime": now}
            others = [{**c, **over} if c.get("type") == UNSCHEDULABLE else c for c in others]
        status["conditions"] = [*others, _written(found.condition, now, transition)]
        told = _told(group, view, found.condition)
    return Change(status, told) if status else None


def tail_of(message: str) -> str:
    """The state of the group without ``N/M tasks in gang unschedulable``."""
    return message.partition(": ")[2] or message


def _is_refused(group: Group) -> bool:
    return group.gate is not None and bool(group.gate.code)


def _says(conditions: Sequence[Json], wanted: Condition) -> bool:
    """Whether the newest of our two conditions is this one, time and id aside."""
    ours = [c for c in conditions if c.get("type") in (SCHEDULED, UNSCHEDULABLE)]
    if not ours:
        return False
    places = range(len(ours))
    newest = max(places, key=lambda at: (str(ours[at].get("lastTransitionTime") or ""), at))
    said = ours[newest]
    return wanted == Condition(
        *(str(said.get(name) or "") for name in ("type", "status", "reason", "message"))
    )


def _written(condition: Condition, now: str, transition: str) -> Json:
    return {**condition._asdict(), "transitionID": transition, "lastTransitionTime": now}


def _told(group: Group, view: JobView, condition: Condition) -> Told:
    if condition.type == SCHEDULED:
        return Told("Normal", SCHEDULED, READY)
    if group.gate is not None and group.gate.code == condition.reason:
        return Told("Normal", UNSCHEDULABLE, condition.message)
    pending = sum(task.status is Status.PENDING for task in view.tasks)
    return Told(
        "Warning",
        UNSCHEDULABLE,
        f"{pending}/{len(view.tasks)} tasks in gang unschedulable: {tail_of(condition.message)}",
    )
