"""What objects say of their part in groups and queues: annotations, and labels in their place.

Source: Volcano's scheduling.volcano.sh API; annotations win over labels of the same name.
"""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.jobs.groups import is_lone, made_name, min_member, queue_name, queue_of
from allotment.core.jobs.keys import (
    GROUP_MIN_MEMBER,
    GROUP_NAME,
    PREEMPTABLE,
    TASK_SPEC,
)
from allotment.core.placement.rules.card_names import alternatives
from allotment_proto.facts import Problem
from allotment_proto.volcano.exclusive import group_key
from allotment_watcher.objects import Meta

TASK_PRIORITY = "volcano.sh/task-priority"
CARD_NAME = "volcano.sh/card.name"
TRUE = frozenset(("1", "t", "T", "true", "True", "TRUE"))
"""What Go's strconv.ParseBool takes for true; everything else counts as false."""
PRIORITY_MAX = 2**31 - 1
NEVER_PREEMPTS = "Never"
"""The `preemptionPolicy` of pods and PriorityClasses that never preempt other pods."""

Texts = Mapping[str, str]


class Standing(NamedTuple):
    """Where a pod of ours is judged: in its PodGroup, or without one in a queue."""

    group: str = ""
    """``<namespace>/<name>``. One that is made for the pod may not exist yet: the pod waits for it,
    so that nothing is decided about it in another queue, or without its minimum."""
    queue: str = ""
    """As the pod or its namespace says, while no annotation names its group. Without a group it is
    judged there."""


def standing_of(
    meta: Meta, *, is_ours: bool, has_groups_made: bool, of_namespace: str = ""
) -> Standing:
    """Where a pod belongs. `has_groups_made`: a controller makes PodGroups for pods without;
    `of_namespace`: the queue that its namespace names, if any.
    """
    annotations, labels = meta.annotations or {}, meta.labels or {}
    group = group_key(meta.namespace, annotations)
    if group or not is_ours:
        return Standing(group)
    owner = owner_of(meta)
    queue = queue_of(queue_name(annotations), of_namespace=of_namespace)
    if not has_groups_made or is_lone(
        annotations, labels, is_owned=bool(owner), of_namespace=of_namespace
    ):
        return Standing(queue=queue)
    return Standing(f"{meta.namespace}/{made_name(meta.uid, owner)}", queue)


def owner_of(meta: Meta) -> str:
    """The uid of a pod's controller, empty without one."""
    return next((owner.uid for owner in meta.owner_references or () if owner.controller), "")


def gang_problem(annotations: Texts, standing: Standing) -> Problem | None:
    """Why a pod that wants others to start with it cannot be placed where no PodGroups are made."""
    wanted = min_member(annotations)
    if standing.group or wanted == 1:
        return None
    return Problem(
        reasons.INVALID_REQUEST,
        f"annotation {GROUP_MIN_MEMBER}",
        f"asks for {wanted} pods that start together, and no PodGroups are made for pods here "
        f"(group-pods is false): make one, and name it in the annotation {GROUP_NAME}",
    )


def role_of(annotations: Texts, labels: Texts) -> str:
    return annotations.get(TASK_SPEC) or labels.get(TASK_SPEC) or ""


class Priorities(NamedTuple):
    """A pod's priority among the pods of its group, and where they differ that of its class, which
    is the one that counts among others.
    """

    in_group: int
    of_class: int | None = None


def priorities_of(annotations: Texts, of_spec: int | None) -> Priorities:
    """In its group the pod's annotation counts if that is a whole number, else its spec's."""
    text = annotations.get(TASK_PRIORITY, "")
    digits = text.removeprefix("-")
    own = of_spec or 0
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        return Priorities(max(-PRIORITY_MAX, min(int(text), PRIORITY_MAX)), own)
    return Priorities(own)


def is_preemptable(annotations: Texts, labels: Texts, *, otherwise: bool) -> bool:
    text = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    return otherwise if text is None else text in TRUE


def card_names_of(annotations: Texts) -> tuple[str, ...]:
    return alternatives(annotations.get(CARD_NAME, ""))
