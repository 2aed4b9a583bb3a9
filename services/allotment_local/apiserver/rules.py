"""What is special about single kinds when they are created or changed: defaults and admission.

A rule gets a `World` to look things up in and returns the object to store; it never mutates what it
was given. Kinds without a rule are stored as they come.
"""

import base64
from collections.abc import Callable
from typing import NamedTuple, Protocol

from allotment_local.apiserver.crds import check_definition, established
from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    forbidden,
    forbidden_field,
    invalid,
)
from allotment_local.apiserver.events import check_micro_time, event_errors
from allotment_local.apiserver.podresources import read_amounts
from allotment_local.apiserver.pods import new_pod, updated_pod
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    VOLUME_CLAIMS,
    VOLUMES,
    ResourceKey,
)

Objects = list[JsonObject]


class World(Protocol):
    """What rules may ask."""

    def now(self) -> str: ...
    def find(self, resource: ResourceKey, namespace: str, name: str) -> JsonObject | None: ...
    def list(self, resource: ResourceKey, namespace: str | None = None) -> tuple[Objects, int]: ...


class Rules(NamedTuple):
    create: Callable[[World, JsonObject], JsonObject]
    # (world, new, old, subresource)
    update: Callable[[World, JsonObject, JsonObject, str], JsonObject]


def _keep(_world: World, new: JsonObject, _old: JsonObject, _subresource: str) -> JsonObject:
    return new


def _create_pod(world: World, pod: JsonObject) -> JsonObject:
    return _with_priority(world, new_pod(pod, world.now()))


def _with_priority(world: World, pod: JsonObject) -> JsonObject:
    """Fill priority and preemptionPolicy from the priority class, as admission does."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    class_name = spec.get("priorityClassName") or ""
    if class_name:
        found = world.find(PRIORITY_CLASSES, "", class_name)
        if found is None:
            raise forbidden("pods", "", name, f"no PriorityClass with name {class_name} was found")
    else:
        classes, _ = world.list(PRIORITY_CLASSES)
        defaults = [item for item in classes if item.get("globalDefault")]
        found = min(defaults, key=lambda item: item["value"]) if defaults else None
    value = found["value"] if found else 0
    given = spec.get("priority")
    if given is not None and given != value:
        raise forbidden(
            "pods",
            "",
            name,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name",
        )
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    filled = {**spec, "priority": value, "preemptionPolicy": spec.get("preemptionPolicy") or policy}
    if found:
        filled["priorityClassName"] = found["metadata"]["name"]
    return {**pod, "spec": filled}


def _update_pod(_world: World, new: JsonObject, old: JsonObject, subresource: str) -> JsonObject:
    return new if subresource else updated_pod(new, old)


def _check_node(_world: World, node: JsonObject) -> JsonObject:
    errors: list[FieldError] = []
    given = node.get("status") or {}
    status = dict(given)
    for field in ("capacity", "allocatable"):
        if given.get(field) is not None:
            status[field], problems = read_amounts(f"status.{field}", given[field])
            errors += problems
    if errors:
        raise invalid("Node", "", node["metadata"]["name"], errors)
    return {**node, "status": status} if status != given else node


def _update_node(world: World, new: JsonObject, old: JsonObject, _subresource: str) -> JsonObject:
    return new if new.get("status") is old.get("status") else _check_node(world, new)


def _create_namespace(_world: World, namespace: JsonObject) -> JsonObject:
    name = namespace["metadata"]["name"]
    labels = {**(namespace["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
    return {
        **namespace,
        "metadata": {**namespace["metadata"], "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _create_volume(_world: World, volume: JsonObject) -> JsonObject:
    """A volume or a claim: whether it is bound is a controller's to say."""
    return {**volume, "status": {"phase": "Pending"}}


def _create_secret(_world: World, secret: JsonObject) -> JsonObject:
    """Plain strings are stored encoded among the data."""
    kept = {name: value for name, value in secret.items() if name != "stringData"}
    plain = secret.get("stringData") or {}
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        kept["data"] = {**(secret.get("data") or {}), **encoded}
    return {"type": "Opaque", **kept}


def _update_secret(
    world: World, new: JsonObject, _old: JsonObject, _subresource: str
) -> JsonObject:
    return _create_secret(world, new)


def _create_event(_world: World, event: JsonObject) -> JsonObject:
    if errors := event_errors(event):
        raise invalid("Event", "", event["metadata"]["name"], errors)
    for name in ("firstTimestamp", "lastTimestamp"):  # null, not left out: kubectl sorts by them
        event.setdefault(name, None)
    return event


def _create_lease(_world: World, lease: JsonObject) -> JsonObject:
    spec = lease.get("spec") or {}
    for name in ("acquireTime", "renewTime"):
        check_micro_time(spec.get(name), f"spec.{name}")
    return lease


def _update_lease(world: World, new: JsonObject, _old: JsonObject, _subresource: str) -> JsonObject:
    return _create_lease(world, new)


def _create_priority_class(_world: World, priority_class: JsonObject) -> JsonObject:
    return {"preemptionPolicy": "PreemptLowerPriority", "value": 0, **priority_class}


def _update_priority_class(
    _world: World, new: JsonObject, old: JsonObject, _subresource: str
) -> JsonObject:
    if new.get("value") != old.get("value"):
        error = forbidden_field("value", "may not be changed in an update.")
        raise invalid("PriorityClass", "scheduling.k8s.io", old["metadata"]["name"], [error])
    return new


def _create_definition(world: World, definition: JsonObject) -> JsonObject:
    check_definition(definition)
    return established(definition, world.now())


def _update_definition(
    world: World, new: JsonObject, old: JsonObject, subresource: str
) -> JsonObject:
    if subresource:
        return new
    check_definition(new)
    return established(new, world.now()) if new.get("spec") != old.get("spec") else new


RULES: dict[ResourceKey, Rules] = {
    PODS: Rules(_create_pod, _update_pod),
    NODES: Rules(_check_node, _update_node),
    NAMESPACES: Rules(_create_namespace, _keep),
    EVENTS: Rules(_create_event, _keep),
    LEASES: Rules(_create_lease, _update_lease),
    VOLUMES: Rules(_create_volume, _keep),
    VOLUME_CLAIMS: Rules(_create_volume, _keep),
    SECRETS: Rules(_create_secret, _update_secret),
    PRIORITY_CLASSES: Rules(_create_priority_class, _update_priority_class),
    CUSTOM_RESOURCE_DEFINITIONS: Rules(_create_definition, _update_definition),
}
