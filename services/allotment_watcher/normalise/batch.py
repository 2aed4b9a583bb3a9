"""PodGroups, Queues and PriorityClasses as the log tells them.

Amounts are Volcano's: `cpu` in milli-cores, `memory` in bytes, `pods` as they are, everything else
in thousandths. An amount that cannot be read counts as if it was not given, and is the fact's
problem; nothing else suffers.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from allotment.adapters.kube.objects import PhaseStatus
from allotment.core import units
from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.queues.plugins.card_claims import CardsError, read_counts
from allotment.core.queues.plugins.sla import DurationError, waiting_ms
from allotment.core.queues.plugins.task_topology import TopologyError, read_topology
from allotment.core.reasons import UNKNOWN_FIELD
from allotment_proto.events import GroupObserved, PriorityClassObserved, QueueObserved
from allotment_proto.facts import Amounts, Problem, SubGroups, TaskTopology
from allotment_watcher import objects
from allotment_watcher.batch_objects import (
    Affinity,
    GroupObject,
    GroupSpec,
    PriorityClassObject,
    QueueObject,
    QueueSpec,
    QueueStatus,
    SubGroupPolicy,
    unknown_fields,
)
from allotment_watcher.normalise.amounts import bounded, texts
from allotment_watcher.normalise.bounds import bounded_group, too_many_names
from allotment_watcher.normalise.constraints import expressions_of
from allotment_watcher.normalise.lens import CPU, MEMORY
from allotment_watcher.normalise.membership import NEVER_PREEMPTS, is_preemptable
from allotment_watcher.normalise.times import time_ms
from allotment_watcher.objects import LabelSelector

CARD_REQUEST = "volcano.sh/card.request"
CARD_QUOTA = "volcano.sh/card.quota"
SLA_WAITING_TIME = "sla-waiting-time"
SUB_GROUP_POLICIES_MAX = 64
"""Each pod of a group is asked which of them it matches."""
INVALID = "InvalidAmount"
_UNKNOWN_SHOWN = 4
INVALID_TOPOLOGY = "InvalidTaskTopology"
QUOTAS = ("count/", "requests.", "limits.")
"""How names begin by which a ResourceQuota counts; of a group's minimum they are no resources."""
AS_THEY_ARE = frozenset(("memory", "pods"))


def group_fact(group: GroupObject) -> GroupObserved:
    """A PodGroup. Never raises."""
    meta, spec = group.metadata, group.spec()
    annotations = meta.annotations or {}
    problems: list[Problem] = []
    minimum, sub_groups = spec.min_resources, _sub_groups(spec.sub_group_policy or [], problems)
    excess = too_many_names(minimum or (), "spec.minResources")
    if excess is not None:
        problems.append(excess)
        minimum = {name: minimum[name] for name in (CPU, MEMORY) if minimum and name in minimum}
    topology = _topology(annotations, problems)
    problems += _unknown(group.written, GroupSpec, "PodGroup")
    fact = GroupObserved(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        rv=objects.version(meta.resource_version),
        created_ms=time_ms(meta.creation_timestamp),
        queue=spec.queue or DEFAULT_QUEUE,
        priority_class=spec.priority_class_name or "",
        min_member=max(spec.min_member or 1, 1),
        min_task_member=tuple(sorted((spec.min_task_member or {}).items())),
        min_resources=None
        if minimum is None
        else _amounts(texts(minimum), "spec.minResources", problems),
        phase=(group.status or PhaseStatus()).phase or "",
        preemptable=is_preemptable(annotations, meta.labels or {}, otherwise=False),
        card_request=_cards(annotations, CARD_REQUEST, problems) or (),
        waiting_most_ms=_span_ms(annotations, problems),
        problem=problems[0] if problems else None,
        owner=_owner(meta),
        sub_groups=sub_groups,
        task_topology=topology,
    )
    return bounded_group(fact)


def queue_fact(queue: QueueObject) -> QueueObserved:
    """A Queue. Never raises."""
    meta, spec = queue.metadata, queue.spec()
    problems: list[Problem] = []
    guarantee = spec.guarantee.resource if spec.guarantee else None
    affinity = spec.affinity
    card_quota = _cards(meta.annotations or {}, CARD_QUOTA, problems)
    capability = _amounts(texts(spec.capability), "spec.capability", problems)
    deserved = _amounts(texts(spec.deserved), "spec.deserved", problems)
    guaranteed = _amounts(texts(guarantee), "spec.guarantee.resource", problems)
    problems += _unknown(queue.written, QueueSpec, "Queue")
    return QueueObserved(
        uid=meta.uid,
        name=meta.name,
        rv=objects.version(meta.resource_version),
        created_ms=time_ms(meta.creation_timestamp),
        weight=max(spec.weight or 1, 1),
        capability=capability,
        deserved=deserved,
        guarantee=guaranteed,
        priority=spec.priority or 0,
        parent=spec.parent or "root",
        reclaimable=spec.reclaimable is not False,
        state=(queue.status or QueueStatus()).state or "Open",
        card_quota=card_quota,
        node_groups=None
        if affinity is None
        else (*_names(affinity.node_group_affinity), *_names(affinity.node_group_anti_affinity)),
        problem=problems[0] if problems else None,
    )


def class_fact(found: PriorityClassObject) -> PriorityClassObserved:
    """A PriorityClass."""
    return PriorityClassObserved(
        uid=found.metadata.uid,
        name=found.metadata.name,
        rv=objects.version(found.metadata.resource_version),
        value=found.value,
        is_default=bool(found.global_default),
        preempts=found.preemption_policy != NEVER_PREEMPTS,
    )


def _amounts(given: Mapping[str, str], place: str, problems: list[Problem]) -> Amounts:
    out: dict[str, int] = {}
    for name, text in sorted(given.items()):
        if name.startswith(QUOTAS):
            continue
        try:
            read = units.whole_up if name in AS_THEY_ARE else units.milli
            out[name] = bounded(read(text))
        except units.QuantityError as error:
            problems.append(Problem(INVALID, f"{place}.{name}", str(error)))
    return tuple(out.items())


def _unknown(written: Any, kind: type[msgspec.Struct], whose: str) -> list[Problem]:
    """That fields of a spec do not exist, as one problem."""
    found = list(unknown_fields(written, kind, "spec"))
    if not found:
        return []
    hints = [f"did you mean {meant}?" if meant else "" for _, meant in found]
    text = f"is not a field of a {whose} and is ignored" + (f"; {hints[0]}" if hints[0] else "")
    for (place, _), hint in zip(found[1:_UNKNOWN_SHOWN], hints[1:], strict=False):
        text += f" {place} is ignored, too" + (f"; {hint}" if hint else ".")
    return [Problem(UNKNOWN_FIELD, found[0][0], text)]


def _sub_groups(policies: list[SubGroupPolicy], problems: list[Problem]) -> tuple[SubGroups, ...]:
    if len(policies) > SUB_GROUP_POLICIES_MAX:
        text = f"has {len(policies)} entries, of which the first {SUB_GROUP_POLICIES_MAX} count"
        problems.append(Problem(INVALID, "spec.subGroupPolicy", text))
    return tuple(
        SubGroups(
            name=policy.name,
            size=max(policy.sub_group_size or 1, 1),
            least=max(policy.min_sub_groups or 0, 0),
            selector=expressions_of(policy.label_selector or LabelSelector()),
            keys=tuple(policy.match_label_keys or ()),
        )
        for policy in policies[:SUB_GROUP_POLICIES_MAX]
    )


def _cards(annotations: Mapping[str, str], key: str, problems: list[Problem]) -> Amounts | None:
    if key not in annotations:
        return None
    try:
        found = read_counts(annotations[key])
    except CardsError as error:
        problems.append(Problem(INVALID, f"annotation {key}", str(error)))
        return None
    return tuple(sorted((name, int(amount)) for name, amount in found.items()))


def _topology(annotations: Mapping[str, str], problems: list[Problem]) -> TaskTopology | None:
    try:
        return read_topology(annotations)
    except TopologyError as error:
        problems.append(Problem(INVALID_TOPOLOGY, f"annotation {error.key}", str(error)))
        return None


def _span_ms(annotations: Mapping[str, str], problems: list[Problem]) -> int:
    if SLA_WAITING_TIME not in annotations:
        return -1
    try:
        return waiting_ms(annotations[SLA_WAITING_TIME])
    except DurationError as error:
        problems.append(Problem(INVALID, f"annotation {SLA_WAITING_TIME}", str(error)))
        return -1


def _owner(meta: objects.Meta) -> str:
    """The uid of an object's owner, its controller if there is one; empty if it has no owner."""
    owners = sorted(meta.owner_references or (), key=lambda owner: not owner.controller)
    return owners[0].uid if owners else ""


def _names(affinity: Affinity | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if affinity is None:
        return (), ()
    return tuple(sorted(affinity.required or ())), tuple(sorted(affinity.preferred or ()))
