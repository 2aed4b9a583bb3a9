"""What the fields this server reads must look like, so that no later step has to ask.

A shape is a type, a dict of known fields (others are let through), a one-element list for "list
of", a one-element tuple for "map of", or a `OneOf`. A null in a known field counts as left out, as
it does for the real server.
"""

from typing import Any

from allotment_local.apiserver.errors import JsonObject, bad_request
from allotment_local.apiserver.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ResourceKey,
)


class OneOf(frozenset[type]):
    """Any of some plain types."""


_TEXTS = (str,)
_ANYTHING = object
_NUMBER = OneOf({int, float})
_NUMBER_OR_TEXT = OneOf({int, float, str})
_COUNT_OR_PERCENT = OneOf({int, str})
_NAMES = {bool: "true or false", dict: "an object", float: "a number", int: "a whole number"}

METADATA: dict[str, Any] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": [str],
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str}],
}
_REFERENCE = {"apiVersion": str, "kind": str, "name": str, "namespace": str, "uid": str}
_CONDITIONS = [{"type": str, "status": str, "reason": str, "message": str}]
_RESOURCES = {"limits": (_NUMBER_OR_TEXT,), "requests": (_NUMBER_OR_TEXT,)}
_CONTAINER = {
    "name": str,
    "image": str,
    "env": [{"name": str}],
    "ports": [dict],
    "resources": _RESOURCES,
    "volumeMounts": [dict],
}
_STATE = {"waiting": {"reason": str}, "running": dict, "terminated": {"reason": str}}
_POD = {
    "spec": {
        "affinity": dict,
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "nodeName": str,
        "nodeSelector": _TEXTS,
        "preemptionPolicy": str,
        "priority": int,
        "priorityClassName": str,
        "resources": _RESOURCES,
        "restartPolicy": str,
        "schedulerName": str,
        "schedulingGates": [{"name": str}],
        "terminationGracePeriodSeconds": int,
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "volumes": [{"name": str}],
    },
    "status": {
        "conditions": _CONDITIONS,
        "containerStatuses": [{"ready": bool, "restartCount": int, "state": _STATE}],
        "nominatedNodeName": str,
        "phase": str,
        "podIP": str,
        "reason": str,
    },
}
_NODE = {
    "spec": {"taints": [{"key": str, "value": str, "effect": str}], "unschedulable": bool},
    "status": {
        "addresses": [{"address": str, "type": str}],
        "allocatable": (_NUMBER_OR_TEXT,),
        "capacity": (_NUMBER_OR_TEXT,),
        "conditions": _CONDITIONS,
        "nodeInfo": _TEXTS,
    },
}
_EVENT = {
    "action": str,
    "involvedObject": _REFERENCE,
    "message": str,
    "reason": str,
    "reportingComponent": str,
    "reportingInstance": str,
    "series": {"count": int, "lastObservedTime": str},
    "source": {"component": str, "host": str},
    "type": str,
}
_SELECTOR = {
    "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
    "matchLabels": _TEXTS,
}
_BUDGET = {
    "spec": {
        "maxUnavailable": _COUNT_OR_PERCENT,
        "minAvailable": _COUNT_OR_PERCENT,
        "selector": _SELECTOR,
    }
}
_SCHEMA: dict[str, Any] = {
    "default": _ANYTHING,
    "enum": [_ANYTHING],
    "exclusiveMaximum": bool,
    "exclusiveMinimum": bool,
    "format": str,
    "nullable": bool,
    "pattern": str,
    "required": [str],
    "type": str,
    **dict.fromkeys(("minimum", "maximum"), _NUMBER),
    **{f"{end}{what}": int for end in ("min", "max") for what in ("Items", "Length", "Properties")},
}
_SCHEMA.update(items=_SCHEMA, properties=(_SCHEMA,))
_DEFINITION = {
    "spec": {
        "conversion": dict,
        "group": str,
        "names": {
            "categories": [str],
            "kind": str,
            "listKind": str,
            "plural": str,
            "shortNames": [str],
            "singular": str,
        },
        "scope": str,
        "versions": [
            {
                "additionalPrinterColumns": [
                    {
                        "description": str,
                        "jsonPath": str,
                        "name": str,
                        "priority": int,
                        "type": str,
                    }
                ],
                "name": str,
                "schema": {"openAPIV3Schema": _SCHEMA},
                "selectableFields": [{"jsonPath": str}],
                "served": bool,
                "storage": bool,
                "subresources": {"status": dict, "scale": dict},
            }
        ],
    }
}
SHAPES: dict[ResourceKey, dict[str, Any]] = {
    PODS: _POD,
    NODES: _NODE,
    NAMESPACES: {"spec": {"finalizers": [str]}, "status": {"phase": str}},
    EVENTS: _EVENT,
    LEASES: {"spec": {"holderIdentity": str}},
    PRIORITY_CLASSES: {"value": int, "globalDefault": bool, "preemptionPolicy": str},
    POD_DISRUPTION_BUDGETS: _BUDGET,
    CONFIG_MAPS: {"data": _TEXTS, "binaryData": _TEXTS, "immutable": bool},
    SECRETS: {"data": _TEXTS, "stringData": _TEXTS, "type": str},
    SERVICES: {"spec": {"externalIPs": [str], "ports": [{"port": int, "protocol": str}]}},
    SERVICE_ACCOUNTS: {"secrets": [dict]},
    CUSTOM_RESOURCE_DEFINITIONS: _DEFINITION,
}
# Every other kind: what printers and owners' rules look at.
ANY_KIND: dict[str, Any] = {"spec": dict, "status": dict}
BINDING = {"kind": str, "metadata": METADATA, "target": {"kind": str, "name": str}}
DELETE_OPTIONS = {
    "dryRun": [str],
    "gracePeriodSeconds": int,
    "kind": str,
    "orphanDependents": bool,
    "preconditions": {"uid": str, "resourceVersion": str},
    "propagationPolicy": str,
}
EVICTION = {"metadata": METADATA, "deleteOptions": DELETE_OPTIONS}


def shaped(shape: Any, value: Any, path: str) -> Any:
    """`value` without nulls in known fields. ApiError 400 names what does not fit."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _misfit(path, value, "an object")
        return _shaped_object(shape, value, path)
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise _misfit(path, value, "a list")
        items = [shaped(shape[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(shape, tuple):
        if not isinstance(value, dict):
            raise _misfit(path, value, "a map")
        if shape is _TEXTS:
            _check_texts(value, path)
            return value
        fitted = {key: shaped(shape[0], item, f"{path}[{key}]") for key, item in value.items()}
        return fitted if any(fitted[key] is not value[key] for key in value) else value
    if not _is_plain(shape, value):
        expected = _NAMES.get(shape, "a string") if isinstance(shape, type) else "a number or text"
        raise _misfit(path, value, expected)
    return value


def _check_texts(value: JsonObject, path: str) -> None:
    """The commonest map, without a call for each entry."""
    for key, item in value.items():
        if type(item) is not str:
            raise _misfit(f"{path}[{key}]", item, "a string; quote it")


def _is_plain(shape: Any, value: Any) -> bool:
    if isinstance(shape, OneOf):
        return type(value) in shape
    if shape is int:
        return type(value) is int
    return isinstance(value, shape)


def _shaped_object(shape: dict[str, Any], value: JsonObject, path: str) -> JsonObject:
    changed: JsonObject = {}
    has_null = False
    for name, field_shape in shape.items():
        if name not in value:
            continue
        item = value[name]
        if item is None:
            has_null = True
            continue
        fitted = shaped(field_shape, item, f"{path}.{name}" if path else name)
        if fitted is not item:
            changed[name] = fitted
    if not changed and not has_null:
        return value
    kept = {n: v for n, v in value.items() if not (v is None and n in shape)}
    return {**kept, **changed}


def _misfit(path: str, value: Any, expected: str) -> Exception:
    return bad_request(f"{path}: {value!r} is not {expected}")


def shaped_object(resource: ResourceKey, new: JsonObject, old: JsonObject | None) -> JsonObject:
    """A new version of an object, looked at only where it differs from the old one."""
    shape = SHAPES.get(resource, ANY_KIND)
    before = old or {}
    fresh = {n: s for n, s in shape.items() if n in new and new[n] is not before.get(n)}
    return _shaped_object(fresh, new, "")
