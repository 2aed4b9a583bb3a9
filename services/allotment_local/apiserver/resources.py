"""The built-in resources: one table of names, scopes, subresources and printer columns.

A `ResourceKey` names what is stored; a `Resource` is one served face of it. Events have two faces
(core/v1 and events.k8s.io/v1) over one store, a custom resource has one per served version.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from allotment_local.apiserver import printers
from allotment_local.apiserver.errors import JsonObject, qualified
from allotment_local.apiserver.printers import Column


class ResourceKey(NamedTuple):
    """What a collection of objects is filed under."""

    group: str
    plural: str

    def __str__(self) -> str:
        return qualified(self.plural, self.group)


Convert = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One served face of a stored resource."""

    key: ResourceKey
    group: str
    version: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    columns: tuple[Column, ...] = printers.DEFAULT
    fields: frozenset[str] = frozenset()
    has_generation: bool = False
    custom: bool = False
    schema: JsonObject | None = None
    from_wire: Convert | None = None
    to_wire: Convert | None = None
    api_version: str = field(init=False)

    def __post_init__(self) -> None:
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", api_version)

    @property
    def plural(self) -> str:
        return self.key.plural

    @property
    def keeps_status(self) -> bool:
        """Writes to the main endpoint leave the status alone."""
        return "status" in self.subresources


UNCONTROLLED = frozenset(
    {
        *(("apps", name) for name in ("deployments", "replicasets", "statefulsets", "daemonsets")),
        *(("batch", name) for name in ("jobs", "cronjobs")),
        ("", "replicationcontrollers"),
    }
)
"""What a controller of Kubernetes makes Pods of, and no controller runs here."""


def warning(resource: Resource) -> str:
    """A warning for the creator of such an object; empty if there is nothing."""
    if (resource.group, resource.plural) not in UNCONTROLLED:
        return ""
    return (
        f"local mode runs no controller for {resource.kind}: no Pods will be made of it; "
        "make Pods, or a Job of batch.volcano.sh/v1alpha1"
    )


META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_POD_FIELDS = frozenset(
    {
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        *("spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    }
)
_OBJECT_REFERENCE = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)
_EVENT_FIELDS = frozenset(
    {
        *(f"involvedObject.{name}" for name in _OBJECT_REFERENCE),
        *(f"regarding.{name}" for name in _OBJECT_REFERENCE),
        *("reason", "type", "source", "reportingComponent", "reportingController"),
    }
)


def _builtin(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    subresources: tuple[str, ...] = (),
    columns: tuple[Column, ...] = printers.DEFAULT,
    fields: frozenset[str] = frozenset(),
    categories: tuple[str, ...] = (),
    has_generation: bool = False,
) -> Resource:
    return Resource(
        key=ResourceKey(group, plural),
        group=group,
        version=version,
        kind=kind,
        namespaced=namespaced,
        singular=kind.lower(),
        short_names=short,
        categories=categories,
        subresources=subresources,
        columns=columns,
        fields=META_FIELDS | fields,
        has_generation=has_generation,
    )


def _plain(group: str, *entries: tuple[str, str, bool]) -> list[Resource]:
    """Kinds that are only stored: `(plural, kind, namespaced)`."""
    return [_builtin(group, "v1", plural, kind, namespaced=ns) for plural, kind, ns in entries]


def _workload(plural: str, kind: str, short: str) -> Resource:
    return _builtin(
        *("apps", "v1", plural, kind),
        short=(short,),
        subresources=("status",),
        categories=("all",),
        has_generation=True,
    )


PODS = ResourceKey("", "pods")
NODES = ResourceKey("", "nodes")
NAMESPACES = ResourceKey("", "namespaces")
CONFIG_MAPS = ResourceKey("", "configmaps")
VOLUMES = ResourceKey("", "persistentvolumes")
VOLUME_CLAIMS = ResourceKey("", "persistentvolumeclaims")
SECRETS = ResourceKey("", "secrets")
SERVICES = ResourceKey("", "services")
SERVICE_ACCOUNTS = ResourceKey("", "serviceaccounts")
EVENTS = ResourceKey("", "events")
LEASES = ResourceKey("coordination.k8s.io", "leases")
PRIORITY_CLASSES = ResourceKey("scheduling.k8s.io", "priorityclasses")
POD_DISRUPTION_BUDGETS = ResourceKey("policy", "poddisruptionbudgets")
CUSTOM_RESOURCE_DEFINITIONS = ResourceKey("apiextensions.k8s.io", "customresourcedefinitions")

_STATUS = ("status",)
# Known so that they can be refused in plain words: no container runs behind these Pods.
CONTAINER_ACCESS = ("attach", "exec", "log", "portforward")
BUILTINS: tuple[Resource, ...] = (
    _builtin(
        *("", "v1", "pods", "Pod"),
        short=("po",),
        subresources=("status", "binding", "eviction", *CONTAINER_ACCESS),
        columns=printers.POD,
        fields=_POD_FIELDS,
        categories=("all",),
        has_generation=True,
    ),
    _builtin(
        *("", "v1", "nodes", "Node"),
        namespaced=False,
        short=("no",),
        subresources=_STATUS,
        columns=printers.NODE,
        fields=frozenset({"spec.unschedulable"}),
    ),
    _builtin(
        *("", "v1", "namespaces", "Namespace"),
        namespaced=False,
        short=("ns",),
        subresources=("status", "finalize"),
        fields=frozenset({"status.phase"}),
    ),
    _builtin("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    _builtin(
        "", "v1", "events", "Event", short=("ev",), columns=printers.EVENT, fields=_EVENT_FIELDS
    ),
    _builtin("", "v1", "secrets", "Secret", fields=frozenset({"type"})),
    _builtin(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short=("sa",),
    ),
    _builtin(
        *("", "v1", "services", "Service"),
        short=("svc",),
        subresources=_STATUS,
        categories=("all",),
    ),
    *_plain(
        "",
        ("endpoints", "Endpoints", True),
        ("limitranges", "LimitRange", True),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("persistentvolumes", "PersistentVolume", False),
        ("podtemplates", "PodTemplate", True),
        ("replicationcontrollers", "ReplicationController", True),
        ("resourcequotas", "ResourceQuota", True),
    ),
    _workload("deployments", "Deployment", "deploy"),
    _workload("replicasets", "ReplicaSet", "rs"),
    _workload("statefulsets", "StatefulSet", "sts"),
    _workload("daemonsets", "DaemonSet", "ds"),
    _builtin(
        *("batch", "v1", "jobs", "Job"),
        subresources=_STATUS,
        categories=("all",),
        has_generation=True,
    ),
    _builtin(
        "batch",
        "v1",
        "cronjobs",
        "CronJob",
        short=("cj",),
        subresources=_STATUS,
        has_generation=True,
    ),
    _builtin("coordination.k8s.io", "v1", "leases", "Lease"),
    _builtin(
        *("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass"),
        namespaced=False,
        short=("pc",),
    ),
    _builtin(
        *("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        short=("pdb",),
        subresources=_STATUS,
        has_generation=True,
    ),
    *_plain(
        "rbac.authorization.k8s.io",
        ("roles", "Role", True),
        ("rolebindings", "RoleBinding", True),
        ("clusterroles", "ClusterRole", False),
        ("clusterrolebindings", "ClusterRoleBinding", False),
    ),
    *_plain(
        "networking.k8s.io",
        ("ingresses", "Ingress", True),
        ("networkpolicies", "NetworkPolicy", True),
    ),
    *_plain("discovery.k8s.io", ("endpointslices", "EndpointSlice", True)),
    *_plain("node.k8s.io", ("runtimeclasses", "RuntimeClass", False)),
    *_plain(
        "storage.k8s.io",
        ("csidrivers", "CSIDriver", False),
        ("csinodes", "CSINode", False),
        ("storageclasses", "StorageClass", False),
    ),
    *_plain(
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    ),
    _builtin(
        *("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
        short=("hpa",),
        subresources=_STATUS,
    ),
    _builtin(
        *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
        namespaced=False,
        short=("crd", "crds"),
        subresources=_STATUS,
        categories=("api-extensions",),
        has_generation=True,
    ),
)
