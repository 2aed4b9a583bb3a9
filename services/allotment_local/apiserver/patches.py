"""Patches as pure functions: old object and patch in, new object out, untouched parts shared.

JSON patch (RFC 6902), merge patch (RFC 7386), and strategic merge (lists of built-in kinds merge by
a key).
"""

import copy
from collections.abc import Callable
from typing import Any

import jsonpatch
import jsonpointer

from allotment_local.apiserver.errors import ApiError, JsonObject, bad_request

# Lists that merge item by item, and the key that tells their items apart. All others are replaced.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
MERGED_PRIMITIVES = frozenset({"finalizers", "podCIDRs"})
_DIRECTIVES = ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch")


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def json_patch(target: JsonObject, operations: Any) -> JsonObject:
    """RFC 6902. ApiError 422 when an operation cannot be done, 400 when it is none."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise bad_request("a JSON patch must be a list of operations")
    try:
        patched = jsonpatch.apply_patch(copy.deepcopy(target), operations, in_place=True)
    except (jsonpatch.InvalidJsonPatch, TypeError) as error:
        raise bad_request(f"error decoding JSON patch: {error}") from None
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        text = f"the server rejected our request due to an error in our request: {error}"
        raise ApiError(422, "Invalid", text) from None
    if not isinstance(patched, dict):
        raise bad_request("a JSON patch must leave an object")
    return patched


def merge_key(name: str, items: list[Any]) -> str | None:
    """The key by which the list `name` merges, given some of its items."""
    keys = MERGE_KEYS.get(name)
    if keys is None or not all(isinstance(item, dict) for item in items):
        return None
    if len(keys) == 1 or not items:
        return keys[0]
    return next(
        (key for key in keys if all(key in item for item in items if "$patch" not in item)), None
    )


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge patch with its directives, as kubectl makes them for built-in kinds."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if isinstance(retained := patch.get("$retainKeys"), list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [
                item for item in _as_list(merged.get(name)) if item not in _as_list(value)
            ]
        if key.startswith(_DIRECTIVES):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _strategic_list(key, _as_list(merged.get(key)), value)
        else:
            merged[key] = strategic(merged.get(key), value)
    for key, order in patch.items():
        name = key.removeprefix("$setElementOrder/")
        if name != key and isinstance(merged.get(name), list):
            merged[name] = _ordered(name, merged[name], order)
    return merged


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strategic_list(name: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if name in MERGED_PRIMITIVES:
        return current + [item for item in patch if item not in current]
    key = merge_key(name, patch)
    if key is None:
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    for item in patch:
        if key not in item and "$patch" not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
    deleted = [item.get(key) for item in patch if item.get("$patch") == "delete"]
    kept = [item for item in current if not (isinstance(item, dict) and item.get(key) in deleted)]
    return merge_by_key(kept, [item for item in patch if "$patch" not in item], key, strategic)


def identity(item: JsonObject, key: str) -> str | int | None:
    """What tells an item from the others of its list. ApiError 400 when it cannot."""
    value = item.get(key)
    if value is not None and not isinstance(value, str | int):
        raise bad_request(f"{key}: {value!r} cannot tell the items of a list apart")
    return value


def merge_by_key(
    current: list[Any], items: list[Any], key: str, combine: Callable[[Any, Any], Any]
) -> list[Any]:
    """Merge each item into the one with the same key, or append it."""
    merged = list(current)
    places = {
        identity(item, key): index for index, item in enumerate(merged) if isinstance(item, dict)
    }
    for item in items:
        place = places.get(identity(item, key))
        if place is None:
            places[identity(item, key)] = len(merged)
            merged.append(combine({}, item))
        else:
            merged[place] = combine(merged[place], item)
    return merged


def _ordered(name: str, items: list[Any], order: Any) -> list[Any]:
    """Items named by a $setElementOrder directive in its order, the others after them."""
    if not isinstance(order, list):
        raise bad_request(f"$setElementOrder/{name}: {order!r} is not a list")
    key = merge_key(name, [item for item in order if isinstance(item, dict)])

    def named(item: Any) -> Any:
        return identity(item, key) if isinstance(item, dict) and key else item

    ranked = [named(item) for item in order]
    return sorted(
        items, key=lambda item: ranked.index(named(item)) if named(item) in ranked else len(ranked)
    )
