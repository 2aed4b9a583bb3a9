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
from allotment_watcher.normalise.lens import Lens
from allotment_watcher.objects import Meta

TASK_PRIORITY = "volcano.sh/task-priority"
CARD_NAME = "volcano.sh/card.name"
TRUE = frozenset(("1", "t", "T", "true", "True", "TRUE"))
"""What Go's strconv.ParseBool takes for true; everything else counts as false."""
PRIORITY_MAX = 2**31 - 1
NEVER_PREEMPTS = "Never"
"""The `preemptionPolicy` of pods and PriorityClasses that never preempt other pods."""

Texts = Mapping[str, str]


class Membership(NamedTuple):
    """Where a pod belongs, and as what."""

    named: str
    """The PodGroup that its annotation names, as ``<namespace>/<name>``."""
    group: str
    """The PodGroup in which a pod of ours is judged. One that is made for the pod may not exist
    yet: the pod waits for it, so that nothing is decided about it in another queue, or without its
    minimum."""
    queue: str
    """As the pod or its namespace says, while no annotation names its group. Without a group it is
    judged there."""
    owner: str
    """The uid of its controller, empty without one."""
    role: str
    priority: int
    """Among the pods of its group."""
    class_priority: int | None
    """That of its class, if it differs: the one that counts among others."""
    preemptable: bool
    card_names: tuple[str, ...]


def membership_of(
    meta: Meta, priority: int | None, of_namespace: str, lens: Lens, *, is_ours: bool
) -> Membership:
    """Where a pod belongs whose spec has a priority; `of_namespace` is the queue that its namespace
    names, if any.
    """
    annotations, labels = meta.annotations or {}, meta.labels or {}
    owner = next((owner.uid for owner in meta.owner_references or () if owner.controller), "")
    named = group_key(meta.namespace, annotations)
    group, queue = named, ""
    if is_ours and not named:
        queue = queue_of(queue_name(annotations), of_namespace=of_namespace)
        if lens.has_groups_made and not is_lone(
            annotations, labels, is_owned=bool(owner), of_namespace=of_namespace
        ):
            group = f"{meta.namespace}/{made_name(meta.uid, owner)}"
    in_group = _task_priority(annotations)
    return Membership(
        named=named,
        group=group,
        queue=queue,
        owner=owner,
        role=annotations.get(TASK_SPEC) or labels.get(TASK_SPEC) or "",
        priority=(priority or 0) if in_group is None else in_group,
        class_priority=None if in_group is None else priority or 0,
        preemptable=is_preemptable(annotations, labels, otherwise=True),
        card_names=alternatives(annotations.get(CARD_NAME, "")),
    )


def gang_problem(annotations: Texts, group: str) -> Problem | None:
    """Why a pod that wants others to start with it cannot be placed where no PodGroups are made."""
    wanted = min_member(annotations)
    if group or wanted == 1:
        return None
    return Problem(
        reasons.INVALID_REQUEST,
        f"annotation {GROUP_MIN_MEMBER}",
        f"asks for {wanted} pods that start together, and no PodGroups are made for pods here "
        f"(group-pods is false): make one, and name it in the annotation {GROUP_NAME}",
    )


def _task_priority(annotations: Texts) -> int | None:
    """A pod's priority in its group by its annotation; None if that is no whole number."""
    text = annotations.get(TASK_PRIORITY, "")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        return max(-PRIORITY_MAX, min(int(text), PRIORITY_MAX))
    return None


def is_preemptable(annotations: Texts, labels: Texts, *, otherwise: bool) -> bool:
    text = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    return otherwise if text is None else text in TRUE
