"""What differs between two states: pods, nodes, cards, and the configuration.

The states may be of one log at two moments, or of two logs. Within one log a pod is identified by
its uid, so a pod that was deleted and recreated counts as another; across two logs, where the same
pod has another uid, by its name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import PodView, pod_views
from allotment.core.explain.rows.views import CardView, cards_of, node_views
from allotment.core.ledger.model import ClusterState
from allotment.core.units import bytes_text, cpu_text

_ADDED, _REMOVED, _CHANGED = "added", "removed", "changed"
_MARKS = {_ADDED: "+", _REMOVED: "-", _CHANGED: "~"}
_SETTING = "setting"
_OF_PODS = ("status", "cause", "node", "cards", "memory_bytes", "compute_percent", "extended")
_OF_CARDS = (
    *("model", "mode", "healthy", "slots", "memory_bytes", "compute_percent"),
    *("free_slots", "free_memory_bytes", "free_compute_percent"),
)
_OF_NODES = ("status", "cpu_milli", "host_memory_bytes", "extended", "free_extended")


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """One field that differs."""

    field: str
    before: str
    after: str


class Differing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that is in one state only (`added`, `removed`), or differs (`changed`). Of a pod
    `uid` and `created_ms` (Unix milliseconds) tell it from others of its name; `has_namesake`: one
    of these is in either state, too.
    """

    kind: str
    name: str
    how: str
    changes: tuple[Change, ...] = ()
    uid: str = ""
    created_ms: int = 0
    has_namesake: bool = False

    @property
    def mark(self) -> str:
        """``+`` for objects in the second state only, ``-`` in the first only, ``~`` in both."""
        return _MARKS[self.how]


def differences(
    before: ClusterState, after: ClusterState, *, by_name: bool = False
) -> list[Differing]:
    """All of them: pods, then nodes, cards and the configuration, each by name. `by_name`: the
    states are of two logs.
    """
    return [
        *(_compared_by_name(before, after) if by_name else _compared_by_uid(before, after)),
        *_compared("node", _nodes(before), _nodes(after), _OF_NODES),
        *_compared("card", _cards(before), _cards(after), _OF_CARDS),
        *_configuration(before, after),
    ]


def _compared_by_name(before: ClusterState, after: ClusterState) -> Iterator[Differing]:
    """The youngest of several pods of one name."""
    one, other = ({_name(pod): pod for pod in _views(state)} for state in (before, after))
    return _compared("pod", one, other, _OF_PODS)


def _compared_by_uid(before: ClusterState, after: ClusterState) -> Iterator[Differing]:
    """Pods of one name after each other, the oldest first."""
    one, other = ({pod.uid: pod for pod in _views(state)} for state in (before, after))
    pods = {**one, **other}
    named = Counter(_name(pod) for pod in pods.values())
    found = list(_compared("pod", one, other, _OF_PODS))
    found.sort(key=lambda each: (_name(pods[each.name]), pods[each.name].created_ms))
    for each in found:
        pod = pods[each.name]
        yield msgspec.structs.replace(
            each,
            name=_name(pod),
            uid=pod.uid,
            created_ms=pod.created_ms,
            has_namesake=named[_name(pod)] > 1,
        )


def _name(pod: PodView) -> str:
    return f"{pod.namespace}/{pod.name}"


def _nodes(state: ClusterState) -> dict[str, msgspec.Struct]:
    return {view.name: view for view in node_views(state)}


def _cards(state: ClusterState) -> dict[str, CardView]:
    return {
        f"{view.node}/{view.device}": view
        for node in state.nodes.values()
        for view in cards_of(state, node)
    }


def _compared(
    kind: str,
    before: Mapping[str, msgspec.Struct],
    after: Mapping[str, msgspec.Struct],
    fields: Iterable[str],
) -> Iterator[Differing]:
    for name in sorted({*before, *after}):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            how, there = (_ADDED, other) if one is None else (_REMOVED, one)
            held = {f: getattr(there, f) for f in fields}
            shown = [Change(f, "", _text(value)) for f, value in held.items() if value]
            if how == _REMOVED:
                shown = [Change(each.field, each.after, "") for each in shown]
            yield Differing(kind, name, how, tuple(shown))
            continue
        changes = tuple(_changes({f: (getattr(one, f), getattr(other, f)) for f in fields}))
        if changes:
            yield Differing(kind, name, _CHANGED, changes)


def _changes(values: Mapping[str, tuple[object, object]]) -> Iterator[Change]:
    for field, (one, other) in values.items():
        if one != other:
            yield Change(field, _text(one), _text(other))


def _configuration(before: ClusterState, after: ClusterState) -> Iterator[Differing]:
    """Field by field of the policy and of the device configuration, and where they were read."""
    for name, one, other in (
        ("policy", before.policy, after.policy),
        ("devices", before.devices, after.devices),
    ):
        values = {f: (getattr(one, f), getattr(other, f)) for f in one.__struct_fields__}
        changes = tuple(_changes(values))
        if changes:
            yield Differing(_SETTING, name, _CHANGED, changes)
    kinds = sorted({*before.config_sources, *after.config_sources})
    sources = {
        kind: (before.config_sources.get(kind, ""), after.config_sources.get(kind, ""))
        for kind in kinds
    }
    if changes := tuple(_changes(sources)):
        yield Differing(_SETTING, "sources", _CHANGED, changes)


def _text(value: object) -> str:
    """A value in short words: no text for an empty value."""
    match value:
        case str():
            return value
        case msgspec.UnsetType():
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case tuple() if all(isinstance(each, str) for each in value):
            return ", ".join(value)
        case dict():
            return ", ".join(f"{name}: {amount}" for name, amount in value.items())
        case _:
            return msgspec.json.encode(value).decode()


def field_words(field: str) -> str:
    """A field in words; its unit is part of the amounts."""
    for unit in ("_bytes", "_percent", "_milli"):
        field = field.removesuffix(unit)
    return field.replace("_", " ")


def field_amount(field: str, text: str) -> str:
    """A field's value in words."""
    if not text.lstrip("-").isdecimal():
        return text
    if field.endswith("_bytes"):
        return bytes_text(int(text))
    if field.endswith("_milli"):
        return cpu_text(int(text))
    return f"{text}%" if field.endswith("_percent") else text


def _views(state: ClusterState) -> list[PodView]:
    return pod_views(state, Whys(state).of)
