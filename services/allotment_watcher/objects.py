"""The parts of Kubernetes objects that the watcher reads. Lenient: unknown fields are skipped.

Lists may be null where Go writes null; amounts may be numbers where YAML writers put numbers.
"""

import msgspec

Labels = dict[str, str] | None
Amount = str | int | float
Amounts = dict[str, Amount] | None
VERSION_DIGITS_MAX = 18


class Owner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels = None
    annotations: Labels = None
    owner_references: list[Owner] | None = None


class Resources(msgspec.Struct):
    limits: Amounts = None
    requests: Amounts = None


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class Expression(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(msgspec.Struct, rename="camel"):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(msgspec.Struct, rename="camel"):
    node_affinity: NodeAffinity | None = None


class Toleration(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Gate(msgspec.Struct):
    name: str = ""


class PodSpec(msgspec.Struct, rename="camel"):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: Labels = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[Gate] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    overhead: Amounts = None
    resource_claims: list[msgspec.Raw] | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None


class PodObject(msgspec.Struct):
    metadata: Meta
    spec: PodSpec
    status: PodStatus | None = None


class TaintObject(msgspec.Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[TaintObject] | None = None


class Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class NodeStatus(msgspec.Struct):
    capacity: Amounts = None
    allocatable: Amounts = None
    conditions: list[Condition] | None = None


class NodeObject(msgspec.Struct):
    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMapObject(msgspec.Struct):
    metadata: Meta
    data: Labels = None


class Glimpse(msgspec.Struct):
    """What can still be said of an object that fits no type."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


class PodGlimpse(msgspec.Struct, rename="camel"):
    scheduler_name: str | None = None
    node_name: str | None = None


def version(text: str) -> int:
    """resourceVersions are whole numbers on every API server in use; 0 where one is not."""
    is_version = text.isascii() and text.isdigit() and len(text) <= VERSION_DIGITS_MAX
    return int(text) if is_version else 0
