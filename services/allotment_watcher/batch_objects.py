"""PodGroups, Queues and PriorityClasses: what the watcher reads of them, as leniently as it can."""

import msgspec

from allotment.adapters.kube.objects import PhaseStatus
from allotment_watcher.objects import Amounts, Int32, LabelSelector, Meta


class SubGroupPolicy(msgspec.Struct, rename="camel"):
    name: str = ""
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None


class GroupSpec(msgspec.Struct, rename="camel"):
    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    min_resources: Amounts = None
    sub_group_policy: list[SubGroupPolicy] | None = None


class GroupObject(msgspec.Struct):
    metadata: Meta
    spec: GroupSpec | None = None
    status: PhaseStatus | None = None


class Guarantee(msgspec.Struct):
    resource: Amounts = None


class Affinity(msgspec.Struct):
    required: list[str] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[str] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class QueueAffinity(msgspec.Struct, rename="camel"):
    node_group_affinity: Affinity | None = None
    node_group_anti_affinity: Affinity | None = None


class QueueSpec(msgspec.Struct):
    weight: Int32 | None = None
    capability: Amounts = None
    deserved: Amounts = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    priority: Int32 | None = None
    parent: str | None = None
    affinity: QueueAffinity | None = None


class QueueStatus(msgspec.Struct):
    state: str | None = None


class QueueObject(msgspec.Struct):
    metadata: Meta
    spec: QueueSpec | None = None
    status: QueueStatus | None = None


class PriorityClassObject(msgspec.Struct, rename="camel"):
    metadata: Meta
    value: Int32 = 0
    global_default: bool | None = None
    preemption_policy: str | None = None
