"""Pods: defaults, resource rules, what may change after creation, and how long they take to die."""

from collections.abc import Iterator
from typing import Any

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_request,
    bad_value,
    duplicate,
    forbidden_field,
    invalid,
    required,
)
from allotment_local.apiserver.meta import is_qualified_name
from allotment_local.apiserver.quantities import MALFORMED, parse_quantity

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
TERMINATION_GRACE_S = 30
_NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage")
_DEFAULT_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
]
_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def _is_extended(name: str) -> bool:
    return name not in _NATIVE_RESOURCES and not name.startswith(("hugepages-", "attachable-volumes-"))


def _containers(spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every container with its path. ApiError 400 when the shape is not a list of objects."""
    for group in ("initContainers", "containers"):
        containers = spec.get(group)
        if containers is None:
            continue
        if not isinstance(containers, list):
            raise bad_request(f"spec.{group}: {containers!r} is not a list")
        for index, container in enumerate(containers):
            if not isinstance(container, dict):
                raise bad_request(f"spec.{group}[{index}]: {container!r} is not an object")
            yield f"spec.{group}[{index}]", container


def quantity_errors(path: str, amounts: Any) -> list[FieldError]:
    """What is wrong with one map of resource name to quantity."""
    if not isinstance(amounts, dict):
        raise bad_request(f"{path}: {amounts!r} is not a map of resource names to quantities")
    errors = []
    for name, value in amounts.items():
        field = f"{path}[{name}]"
        amount = parse_quantity(value)
        if amount is None:
            errors.append(bad_value(field, value, MALFORMED))
        elif amount < 0:
            errors.append(bad_value(field, value, "must be greater than or equal to 0"))
        elif "/" in name and amount.denominator != 1:
            errors.append(bad_value(field, value, "must be an integer"))
        if not is_qualified_name(name) or (_is_extended(name) and "/" not in name):
            errors.append(
                bad_value(field, name, "must be a standard resource type or fully qualified")
            )
    return errors


def _defaulted_resources(container: JsonObject, path: str) -> tuple[JsonObject, list[FieldError]]:
    resources = container.get("resources") or {}
    if not isinstance(resources, dict):
        raise bad_request(f"{path}.resources: {resources!r} is not an object")
    limits, requests = resources.get("limits"), resources.get("requests")
    if not limits and not requests:
        return resources, []
    where = f"{path}.resources"
    errors = quantity_errors(f"{where}.limits", limits or {})
    errors += quantity_errors(f"{where}.requests", requests or {})
    limits, requests = limits or {}, requests or {}
    if not errors:
        for name, value in requests.items():
            errors += _limit_errors(where, name, value, limits.get(name))
    missing = {name: value for name, value in limits.items() if name not in requests}
    if missing:
        resources = {**resources, "requests": {**requests, **missing}}
    return resources, errors


def _limit_errors(where: str, name: str, request: Any, limit: Any) -> list[FieldError]:
    field = f"{where}.requests"
    extended = _is_extended(name)
    if limit is None:
        if extended:
            return [required(f"{where}.limits", f"Limit must be set for non overcommitable resources: {name}")]
        return []
    asked, allowed = parse_quantity(request), parse_quantity(limit)
    assert asked is not None
    assert allowed is not None
    if extended and asked != allowed:
        return [bad_value(field, request, f"must be equal to {name} limit of {limit}")]
    if asked > allowed:
        return [bad_value(field, request, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _defaulted_container(container: JsonObject, path: str) -> tuple[JsonObject, list[FieldError]]:
    resources, errors = _defaulted_resources(container, path)
    name, image = container.get("name"), container.get("image")
    if not name or not isinstance(name, str):
        errors.append(required(f"{path}.name"))
    if not image or not isinstance(image, str):
        errors.append(required(f"{path}.image"))
        image = ""
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    return {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        **container,
        "resources": resources,
    }, errors


def _quality_of_service(spec: JsonObject) -> str:
    """BestEffort without cpu and memory, Guaranteed when all limits equal requests, else Burstable."""
    guaranteed, any_amount = True, False
    for _, container in _containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            any_amount = any_amount or request is not None or limit is not None
            if limit is None or parse_quantity(request) != parse_quantity(limit):
                guaranteed = False
    return "BestEffort" if not any_amount else "Guaranteed" if guaranteed else "Burstable"


def _tolerations(given: Any) -> list[JsonObject]:
    """The node life-cycle tolerations every Pod gets unless it names these taints itself."""
    if given is None:
        return _DEFAULT_TOLERATIONS
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise bad_request(f"spec.tolerations: {given!r} is not a list of objects")
    return given + [
        default
        for default in _DEFAULT_TOLERATIONS
        if not any(
            item.get("key") in (default["key"], None, "")
            and item.get("effect") in ("NoExecute", None, "")
            for item in given
        )
    ]


def new_pod(pod: JsonObject, now: str) -> JsonObject:
    """The Pod as first stored: defaults filled in, status Pending. ApiError 422 names what is wrong."""
    given = pod.get("spec") or {}
    if not isinstance(given, dict):
        raise bad_request(f"spec: {given!r} is not an object")
    spec: JsonObject = {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "enableServiceLinks": True,
        **{name: value for name, value in given.items() if value is not None},
        "tolerations": _tolerations(given.get("tolerations")),
    }
    spec["schedulerName"] = spec["schedulerName"] or "default-scheduler"
    errors: list[FieldError] = []
    defaulted: dict[str, list[JsonObject]] = {"initContainers": [], "containers": []}
    names: set[str] = set()
    for path, container in _containers(given):
        filled, problems = _defaulted_container(container, path)
        errors += problems
        if (name := str(container.get("name"))) in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        defaulted[path[5 : path.index("[")]].append(filled)
    if not defaulted["containers"]:
        errors.append(required("spec.containers"))
    spec.update({group: containers for group, containers in defaulted.items() if containers})
    gates = spec.get("schedulingGates")
    if gates and spec.get("nodeName"):
        errors.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    if errors:
        raise invalid("Pod", "", pod["metadata"]["name"], errors)
    status: JsonObject = {"phase": "Pending", "qosClass": _quality_of_service(spec)}
    if gates:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": GATED_MESSAGE,
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
        ]
    return {**pod, "spec": spec, "status": status}


def _frozen(spec: JsonObject) -> JsonObject:
    """The parts of a spec that an update may not touch."""
    loose = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")
    frozen = {name: value for name, value in spec.items() if name not in loose}
    for group in ("containers", "initContainers"):
        if group in spec:
            frozen[group] = [
                {name: value for name, value in container.items() if name != "image"}
                for _, container in _containers({group: spec[group]})
            ]
    return frozen


def check_pod_update(new: JsonObject, old: JsonObject) -> None:
    """ApiError 422 when an update touches what is fixed once a Pod exists."""
    before, after = old["spec"], new.get("spec")
    if after is before or after == before:
        return
    if not isinstance(after, dict):
        raise bad_request(f"spec: {after!r} is not an object")
    errors: list[FieldError] = []
    kept, now = _frozen(before), _frozen(after)
    gates_before, gates_after = before.get("schedulingGates") or [], after.get("schedulingGates") or []
    if gates_before:  # a gated Pod's placement may still be narrowed
        for name in ("nodeSelector", "affinity"):
            kept.pop(name, None)
            now.pop(name, None)
    if kept != now:
        changed = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
        errors.append(forbidden_field("spec", f"{_UPDATE_RULE}; changed: {', '.join(changed)}"))
    if any(gate not in gates_before for gate in gates_after):
        errors.append(forbidden_field("spec.schedulingGates", "only deletion is allowed"))
    tolerations = after.get("tolerations") or []
    if any(item not in tolerations for item in before.get("tolerations") or []):
        errors.append(forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"))
    if errors:
        raise invalid("Pod", "", old["metadata"]["name"], errors)


def deletion_grace_s(pod: JsonObject, asked_s: int | None) -> int:
    """How long a Pod may take to end: nothing to wait for when it is on no Node or has ended."""
    spec, phase = pod["spec"], (pod.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    if asked_s is not None:
        return asked_s
    return int(spec.get("terminationGracePeriodSeconds") or 0)
