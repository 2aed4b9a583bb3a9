"""Plugins by name: their arguments' types and defaults, and how they are made.

Arguments follow Volcano's rules of types: an integer must be written as one, a number may have a
fraction, a boolean may be a text that reads as one; what has another type leaves the default. Each
such mistake is said, so that nobody believes in a setting that has no effect.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, NamedTuple

import msgspec

from allotment.core.queues.plugins import (
    capacity,
    card,
    conformance,
    drf,
    gang,
    nodegroup,
    overcommit,
    priority,
    proportion,
    sla,
)
from allotment.core.queues.plugins.base import ALWAYS, SWITCHES, Plugin
from allotment.core.queues.work import World

HIERARCHY_SWITCH = "enableHierarchy"
"""The one switch that is off unless said otherwise, and changes how a plugin works."""

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class ArgumentError(ValueError):
    """Raised for an argument's value that has no effect; says what would be right."""


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise ArgumentError("wanted: true or false")


def _number(value: object) -> Fraction:
    """A number exactly as it is written: 1.2 is 6/5."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            return Fraction(value if isinstance(value, Rational) else str(value))
        except (ValueError, OverflowError) as error:
            raise ArgumentError("wanted: a finite number") from error
    raise ArgumentError("wanted: a number, not in quotes")


def _factor(value: object) -> Fraction:
    number = _number(value)
    if number < 1:
        raise ArgumentError("wanted: at least 1; the usual 1.2 counts instead")
    return number


def _span(value: object) -> int:
    if not isinstance(value, str):
        raise ArgumentError("wanted: a time span like 1h30m")
    try:
        return sla.waiting_ms(value)
    except sla.DurationError as error:
        raise ArgumentError(str(error)) from error


class Argument(NamedTuple):
    """Which field of the plugin's arguments a key sets, and how its value is read."""

    field: str
    read: Callable[[object], Any]


class Entry(NamedTuple):
    """One plugin: how it is made, the struct of its arguments, the keys that it understands."""

    make: Callable[[Any, World], Plugin]
    points: frozenset[str]
    arguments: type[msgspec.Struct]
    keys: Mapping[str, Argument] = {}


PLUGINS: dict[str, Entry] = {
    "priority": Entry(priority.Priority, priority.Priority.points, priority.Arguments),
    "gang": Entry(gang.Gang, gang.Gang.points, gang.Arguments),
    "conformance": Entry(
        conformance.Conformance, conformance.Conformance.points, conformance.Arguments
    ),
    "drf": Entry(drf.Drf, drf.Drf.points, drf.Arguments),
    "proportion": Entry(proportion.Proportion, proportion.Proportion.points, proportion.Arguments),
    "capacity": Entry(capacity.Capacity, capacity.Capacity.points, capacity.Arguments),
    "capacity-card": Entry(
        card.CapacityCard,
        card.CapacityCard.points,
        card.Arguments,
        {
            "cardUnlimitedCpuMemory": Argument("unlimited_cpu_memory", _flag),
            "allotment.shareQuota": Argument("share_quota", _flag),
            "nodeOrderWeight": Argument("node_order_weight", _number),
        },
    ),
    "overcommit": Entry(
        overcommit.Overcommit,
        overcommit.Overcommit.points,
        overcommit.Arguments,
        {"overcommit-factor": Argument("factor", _factor)},
    ),
    "nodegroup": Entry(
        nodegroup.NodeGroup,
        nodegroup.NodeGroup.points,
        nodegroup.Arguments,
        {"strict": Argument("strict", _flag), HIERARCHY_SWITCH: Argument("hierarchy", _flag)},
    ),
    "sla": Entry(
        sla.Sla,
        sla.Sla.points,
        sla.Arguments,
        {"sla-waiting-time": Argument("waiting_most_ms", _span)},
    ),
}
"""The order and quota plugins. Others (predicates, scores) are not asked here."""


class Configured(NamedTuple):
    """A plugin with its arguments read: what a session opens."""

    name: str
    arguments: msgspec.Struct
    points: frozenset[str]
    """The questions that it is asked: those it answers, less those that are switched off."""

    def open(self, world: World) -> Plugin:
        return PLUGINS[self.name].make(self.arguments, world)


class Unused(NamedTuple):
    """An argument or switch without effect: its key, its value, and what would have one."""

    key: str
    value: object
    message: str


def configure(
    name: str,
    arguments: Mapping[str, object] | None = None,
    switches: Mapping[str, bool] | None = None,
) -> tuple[Configured, tuple[Unused, ...]]:
    """A plugin of `PLUGINS` ready to open, and what of its settings has no effect."""
    entry = PLUGINS[name]
    values: dict[str, Any] = {}
    unused: list[Unused] = []
    switches = switches or {}
    if "hierarchy" in entry.arguments.__struct_fields__:
        values["hierarchy"] = switches.get(HIERARCHY_SWITCH, False)
    for key, value in (arguments or {}).items():
        known = entry.keys.get(key)
        if known is None:
            wanted = ", ".join(sorted(entry.keys)) or "none"
            unused.append(Unused(key, value, f"unknown argument; {name} knows: {wanted}"))
            continue
        try:
            values[known.field] = known.read(value)
        except ArgumentError as error:
            unused.append(Unused(key, value, str(error)))
    points = frozenset(
        point for point in entry.points if point in ALWAYS or switches.get(SWITCHES[point], True)
    )
    return Configured(name, entry.arguments(**values), points), tuple(unused)
