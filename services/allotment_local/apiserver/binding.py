"""Binding a Pod to a Node: one write that also carries the Binding's annotations and labels.

The name, the device annotations and the PodScheduled condition land together, so no reader ever
sees an assigned Pod without its devices.
"""

from allotment_local.apiserver.admission import check_assignments
from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_request,
    conflict,
    invalid,
    required,
    unsupported_value,
)
from allotment_local.apiserver.meta import copied_metadata
from allotment_local.apiserver.resources import PODS
from allotment_local.apiserver.shapes import BINDING, shaped
from allotment_local.apiserver.store import Store


def _target_node(name: str, binding: JsonObject) -> str:
    target = binding.get("target") or {}
    errors: list[FieldError] = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(unsupported_value("target.kind", target["kind"], ("Node", "<empty>")))
    node = target.get("name")
    if not node:
        errors.append(required("target.name"))
    if errors:
        raise invalid("Binding", "", name, errors)
    return str(node)


def bind(
    store: Store,
    namespace: str,
    name: str,
    binding: JsonObject,
    *,
    dry_run: bool = False,
    is_writer: bool = True,
) -> None:
    """Assign the Pod. ApiError 403: annotations that are reserved, 409: another Pod or version than
    meant, ending, assigned, gated."""
    binding = shaped(BINDING, binding, "")
    kind = binding.get("kind", "Binding")
    if kind != "Binding":
        raise bad_request(f"{kind} cannot be handled as a Binding")
    given = copied_metadata(binding)
    if given.get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    if (given.get("namespace") or namespace) != namespace:
        raise bad_request("namespace in URL does not match namespace in Binding object")
    node = _target_node(name, binding)
    store.check_namespace_open(store.registry.stored(PODS), namespace, name)
    if not is_writer:
        check_assignments(store, name, {}, given.get("annotations") or {}, is_bound=True)
    entry = store.entry(PODS, namespace, name)
    pod = entry.obj
    metadata, spec = pod["metadata"], pod["spec"]

    uid, version = given.get("uid"), given.get("resourceVersion")
    why = ""
    if uid and uid != metadata["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
    elif version and version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
    elif "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("pods/binding", "", name, why)
    if dry_run:
        return

    metadata = dict(metadata)
    for field in ("annotations", "labels"):
        if given.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **given[field]}
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.now(),
    }
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    new = {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status}
    store.replace(PODS, entry, new)
