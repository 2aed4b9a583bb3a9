"""Pods: defaults, resource rules, what may change after creation, and how long they take to die."""

from collections.abc import Iterator

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    duplicate,
    forbidden_field,
    invalid,
    required,
)
from allotment_local.apiserver.podresources import defaulted_resources, pod_level_resources
from allotment_local.apiserver.quantities import parse_quantity

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
TERMINATION_GRACE_S = 30
GRACE_S_MAX = 1 << 33
"""Go's durations reach no further, and the dates of longer ones do not exist."""
_DEFAULT_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
]
# Filled in by admission on creation; an update that leaves them out means the same.
_ADMITTED = ("priority", "priorityClassName", "preemptionPolicy")
_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def _containers(spec: JsonObject) -> Iterator[tuple[str, int, JsonObject]]:
    """Every container with its list's name and its place there."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield group, index, container


def _defaulted_container(container: JsonObject, path: str) -> tuple[JsonObject, list[FieldError]]:
    resources, errors = defaulted_resources(container, path)
    name, image = container.get("name"), container.get("image")
    if not name:
        errors.append(required(f"{path}.name"))
    if not image:
        errors.append(required(f"{path}.image"))
    tag = (image or "").rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    latest = "@" not in (image or "") and tag in ("", "latest")
    return {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        **container,
        "resources": resources,
    }, errors


def _quality_of_service(spec: JsonObject) -> str:
    """BestEffort without cpu and memory, Guaranteed when limits equal requests, else Burstable.

    What the pod says itself goes before what its containers say.
    """
    guaranteed, any_amount = True, False
    own = spec.get("resources")
    asking = [{"resources": own}] if own else [part for _, _, part in _containers(spec)]
    for part in asking:
        resources = part.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name), limits.get(name)
            any_amount = any_amount or request is not None or limit is not None
            if limit is None or parse_quantity(request) != parse_quantity(limit):
                guaranteed = False
    return "BestEffort" if not any_amount else "Guaranteed" if guaranteed else "Burstable"


def _tolerations(given: list[JsonObject] | None) -> list[JsonObject]:
    """The node life-cycle tolerations every Pod gets unless it names these taints itself."""
    if not given:
        return _DEFAULT_TOLERATIONS
    return given + [
        default
        for default in _DEFAULT_TOLERATIONS
        if not any(
            item.get("key") in (default["key"], None, "")
            and item.get("effect") in ("NoExecute", None, "")
            for item in given
        )
    ]


def _defaulted_spec(given: JsonObject) -> tuple[JsonObject, list[FieldError]]:
    """The spec with what every Pod has filled in, and what is wrong with it."""
    spec: JsonObject = {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "enableServiceLinks": True,
        **{name: value for name, value in given.items() if value not in (None, "")},
        "tolerations": _tolerations(given.get("tolerations")),
    }
    errors: list[FieldError] = []
    defaulted: dict[str, list[JsonObject]] = {"initContainers": [], "containers": []}
    names: set[str] = set()
    for group, index, container in _containers(given):
        path = f"spec.{group}[{index}]"
        filled, problems = _defaulted_container(container, path)
        errors += problems
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        defaulted[group].append(filled)
    if not defaulted["containers"]:
        errors.append(required("spec.containers"))
    spec.update({group: containers for group, containers in defaulted.items() if containers})
    if spec.get("resources"):
        spec["resources"], problems = pod_level_resources(spec)
        errors += problems
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden_field("spec.nodeName", why))
    return spec, errors


def new_pod(pod: JsonObject, now: str) -> JsonObject:
    """The Pod as first stored: defaults filled in, status Pending. ApiError 422 on bad fields."""
    spec, errors = _defaulted_spec(pod.get("spec") or {})
    if errors:
        raise invalid("Pod", "", pod["metadata"]["name"], errors)
    status: JsonObject = {"phase": "Pending", "qosClass": _quality_of_service(spec)}
    if spec.get("schedulingGates"):
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
    loose = (
        "activeDeadlineSeconds",
        "tolerations",
        "schedulingGates",
        "terminationGracePeriodSeconds",
    )
    frozen = {name: value for name, value in spec.items() if name not in loose}
    for group in ("containers", "initContainers"):
        if group in spec:
            frozen[group] = [
                {name: value for name, value in container.items() if name != "image"}
                for container in spec[group]
            ]
    return frozen


def updated_pod(new: JsonObject, old: JsonObject) -> JsonObject:
    """The next version of a Pod. ApiError 422 when it touches what is fixed once a Pod exists."""
    before = old["spec"]
    if new.get("spec") is before:
        return new
    admitted = {name: before[name] for name in _ADMITTED if name in before}
    after, errors = _defaulted_spec({**admitted, **(new.get("spec") or {})})
    gates = before.get("schedulingGates") or []
    gates_left = after.get("schedulingGates") or []
    kept, now = _frozen(before), _frozen(after)
    if gates:  # a gated Pod's placement may still be narrowed
        for name in ("nodeSelector", "affinity"):
            kept.pop(name, None)
            now.pop(name, None)
    if kept != now:
        changed = sorted(n for n in kept.keys() | now.keys() if kept.get(n) != now.get(n))
        errors.append(forbidden_field("spec", f"{_UPDATE_RULE}; changed: {', '.join(changed)}"))
    if any(gate not in gates for gate in gates_left):
        errors.append(forbidden_field("spec.schedulingGates", "only deletion is allowed"))
    tolerations = after.get("tolerations") or []
    if any(item not in tolerations for item in before.get("tolerations") or []):
        errors.append(forbidden_field("spec.tolerations", "existing tolerations must be kept"))
    if errors:
        raise invalid("Pod", "", old["metadata"]["name"], errors)
    return {**new, "spec": after}


def deletion_grace_s(pod: JsonObject, asked_s: int | None) -> int:
    """How long a Pod may take to end: nothing to wait for when it is on no Node or has ended."""
    spec, phase = pod["spec"], (pod.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    own_s = int(spec.get("terminationGracePeriodSeconds") or 0)
    grace_s = own_s if asked_s is None else asked_s
    return 1 if grace_s < 0 else min(grace_s, GRACE_S_MAX)
