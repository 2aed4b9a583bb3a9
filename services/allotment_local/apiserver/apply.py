"""Server-side apply, in small: each manager's last configuration is remembered, so that what it no
longer says is removed. Conflicts between managers are not simulated: the last one wins.
"""

from collections.abc import Callable
from typing import Any

from allotment_local.apiserver.errors import JsonObject
from allotment_local.apiserver.patches import MERGED_PRIMITIVES, identity, merge_by_key, merge_key

KeyOf = Callable[[str, list[Any]], str | None]
# Lists of custom resources are replaced, except those that every object's metadata has.
_METADATA_LISTS = ("ownerReferences",)


def builtin_key(name: str, items: list[Any]) -> str | None:
    return merge_key(name, items)


def custom_key(name: str, items: list[Any]) -> str | None:
    return merge_key(name, items) if name in _METADATA_LISTS else None


def apply_configuration(
    live: JsonObject, configuration: JsonObject, previous: JsonObject | None, key_of: KeyOf
) -> JsonObject:
    """`live` with everything in `configuration`, without what only `previous` had."""
    pruned = _pruned(live, configuration, previous, key_of) if previous else live
    merged: JsonObject = _overlaid(pruned, configuration, key_of)
    return merged


def _overlaid(live: Any, wanted: Any, key_of: KeyOf) -> Any:
    if not isinstance(wanted, dict):
        return wanted
    merged = dict(live) if isinstance(live, dict) else {}
    for name, value in wanted.items():
        current = merged.get(name)
        if isinstance(value, list) and isinstance(current, list):
            key = key_of(name, value)
            if key is not None:
                merged[name] = merge_by_key(
                    current, value, key, lambda old, new: _overlaid(old, new, key_of)
                )
            elif name in MERGED_PRIMITIVES:
                merged[name] = current + [item for item in value if item not in current]
            else:
                merged[name] = value
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = _overlaid(current, value, key_of)
    return merged


def _pruned(live: Any, wanted: Any, previous: Any, key_of: KeyOf) -> Any:
    """`live` without the leaves that `previous` set and `wanted` no longer names."""
    if not (isinstance(live, dict) and isinstance(previous, dict) and isinstance(wanted, dict)):
        return live
    kept = dict(live)
    for name, before in previous.items():
        if name not in kept:
            continue
        if name not in wanted:
            kept[name] = _without(kept[name], before, key_of, name)
            if kept[name] in ({}, [], None):
                del kept[name]
        elif isinstance(before, list) and isinstance(kept[name], list):
            kept[name] = _pruned_list(name, kept[name], wanted[name], before, key_of)
        else:
            kept[name] = _pruned(kept[name], wanted[name], before, key_of)
    return kept


def _pruned_list(name: str, live: list[Any], wanted: Any, before: list[Any], key_of: KeyOf) -> Any:
    key = key_of(name, before)
    if key is None or not isinstance(wanted, list):
        return live
    now = {identity(item, key): item for item in wanted if isinstance(item, dict)}
    past = {identity(item, key): item for item in before}
    kept = []
    for item in live:
        name_of = identity(item, key) if isinstance(item, dict) else None
        if name_of in past and name_of not in now:
            continue
        kept.append(_pruned(item, now.get(name_of), past.get(name_of), key_of))
    return kept


def _without(live: Any, before: Any, key_of: KeyOf, name: str) -> Any:
    """What remains of a value whose manager lets go of it: the parts others put there."""
    if isinstance(live, dict) and isinstance(before, dict):
        return _pruned(live, {}, before, key_of)
    if isinstance(live, list) and isinstance(before, list) and key_of(name, before):
        return _pruned_list(name, live, [], before, key_of)
    return None
