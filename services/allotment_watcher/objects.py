"""The parts of Kubernetes objects that the watcher reads. Lenient: unknown fields are skipped.

Lists may be null where Go writes null; amounts may be numbers where YAML writers put numbers.
"""

from typing import Annotated

import msgspec

from allotment.adapters.kube.objects import PhaseStatus, PodSpecGlimpse
from allotment.core.units import natural

Labels = dict[str, str] | None
Amount = str | int | float
Amounts = dict[str, Amount] | None
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""As Kubernetes has it. An object with a number beyond that is refused: no record could hold it."""


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
    deletion_grace_period_seconds: int | None = None
    labels: Labels = None
    annotations: Labels = None
    owner_references: list[Owner] | None = None


class NamespaceObject(msgspec.Struct):
    metadata: Meta


class Resources(msgspec.Struct):
    limits: Amounts = None
    requests: Amounts = None


class Port(msgspec.Struct):
    container_port: Int32 = msgspec.field(name="containerPort", default=0)
    host_port: Int32 | None = msgspec.field(name="hostPort", default=None)
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    image: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Port] | None = None


class Expression(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(msgspec.Struct, rename="camel"):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    node_selector_terms: list[NodeTerm] | None = None


class Preference(msgspec.Struct):
    weight: Int32 = 0
    preference: NodeTerm | None = None


class NodeAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[Preference] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class LabelSelector(msgspec.Struct, rename="camel"):
    match_labels: Labels = None
    match_expressions: list[Expression] | None = None


class PodTerm(msgspec.Struct, rename="camel"):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodTerm(msgspec.Struct, rename="camel"):
    weight: Int32 = 0
    pod_affinity_term: PodTerm | None = None


class PodAffinity(msgspec.Struct):
    required: list[PodTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(msgspec.Struct, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(msgspec.Struct, rename="camel"):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(msgspec.Struct, rename="camel"):
    claim_name: str = ""


class EphemeralSource(msgspec.Struct):
    """A claim that is made for the pod."""


class Volume(msgspec.Struct, rename="camel"):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


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
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    resources: Resources | None = None
    overhead: Amounts = None
    host_network: bool | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    scheduling_group: dict[str, msgspec.Raw] | None = None


class PodCondition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Terminated(msgspec.Struct, rename="camel"):
    exit_code: Int32 = 0
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class Waits(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class ContainerState(msgspec.Struct):
    waiting: Waits | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    state: ContainerState | None = None
    allocated_resources: Amounts = None
    resources: Resources | None = None
    last_state: ContainerState | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[PodCondition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    nominated_node_name: str | None = None
    allocated_resources: Amounts = None
    resources: Resources | None = None


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


class Image(msgspec.Struct, rename="camel"):
    names: list[str] | None = None
    size_bytes: int | None = None


class NodeStatus(msgspec.Struct):
    capacity: Amounts = None
    allocatable: Amounts = None
    conditions: list[Condition] | None = None
    images: list[Image] | None = None


class NodeObject(msgspec.Struct):
    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ClaimSpec(msgspec.Struct, rename="camel"):
    volume_name: str | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    resources: Resources | None = None


class ClaimObject(msgspec.Struct):
    metadata: Meta
    spec: ClaimSpec | None = None
    status: PhaseStatus | None = None


class ClaimRef(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(msgspec.Struct):
    required: NodeSelector | None = None


class CsiSource(msgspec.Struct):
    driver: str = ""


class VolumeSpec(msgspec.Struct, rename="camel"):
    capacity: Amounts = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    storage_class_name: str | None = None
    claim_ref: ClaimRef | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class VolumeObject(msgspec.Struct):
    metadata: Meta
    spec: VolumeSpec | None = None
    status: PhaseStatus | None = None


class TopologyExpression(msgspec.Struct):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(msgspec.Struct, rename="camel"):
    match_label_expressions: list[TopologyExpression] | None = None


class ClassObject(msgspec.Struct, rename="camel"):
    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class CsiAllocatable(msgspec.Struct):
    count: Int32 | None = None


class CsiDriver(msgspec.Struct):
    name: str = ""
    allocatable: CsiAllocatable | None = None


class CsiNodeSpec(msgspec.Struct):
    drivers: list[CsiDriver] | None = None


class CsiNodeObject(msgspec.Struct):
    metadata: Meta
    spec: CsiNodeSpec | None = None


class ConfigMapObject(msgspec.Struct):
    metadata: Meta
    data: Labels = None


class PodGlimpse(msgspec.Struct):
    """What can still be said of a pod that fits no type."""

    spec: PodSpecGlimpse = msgspec.field(default_factory=PodSpecGlimpse)
    status: PhaseStatus | None = None


def version(text: str) -> int:
    """resourceVersions are whole numbers on every API server in use; 0 where one is not."""
    return natural(text) or 0
