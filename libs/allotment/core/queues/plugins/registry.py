"""Order and quota plugins by name, and how a policy configures them.

A new plugin is a file in this folder with its class, and an entry in `PLUGINS`.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from allotment.core.plugin_arguments import Argument, Kind, is_on
from allotment.core.queues.plugins.base import ALWAYS, SWITCHES, Plugin
from allotment.core.queues.plugins.capacity import Capacity
from allotment.core.queues.plugins.card import CapacityCard
from allotment.core.queues.plugins.conformance import Conformance
from allotment.core.queues.plugins.drf import Drf
from allotment.core.queues.plugins.gang import Gang
from allotment.core.queues.plugins.nodegroup import NodeGroup
from allotment.core.queues.plugins.overcommit import Overcommit
from allotment.core.queues.plugins.priority import Priority
from allotment.core.queues.plugins.proportion import Proportion
from allotment.core.queues.plugins.sla import Sla
from allotment.core.queues.plugins.task_topology import Topology
from allotment.core.queues.work import World
from allotment_proto.facts import PluginUse

_HIERARCHY_SWITCH = "enableHierarchy"
"""The only switch that is off by default; it changes how a plugin works."""
HIERARCHY = "hierarchy"
"""The setting that it turns on, in plugins that have it."""

PLUGINS: dict[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Priority,
        Gang,
        Conformance,
        Drf,
        Proportion,
        Capacity,
        CapacityCard,
        Overcommit,
        NodeGroup,
        Sla,
        Topology,
    )
}
"""The order and quota plugins. Predicates and scores are elsewhere."""


class Configured(NamedTuple):
    """A plugin with its arguments read, ready for a session to open."""

    name: str
    arguments: msgspec.Struct
    points: frozenset[str]
    """The questions that the session asks it: those that it answers and no switch turns off."""

    def open(self, world: World) -> Plugin:
        return PLUGINS[self.name](self.arguments, world)


def configure(use: PluginUse) -> Configured:
    """A plugin of `PLUGINS` with the arguments of a policy."""
    plugin, given = PLUGINS[use.name], dict(use.arguments)
    values: dict[str, Any] = {
        argument.field: _value(argument, given.get(key, argument.default))
        for key, argument in plugin.declared.items()
        if argument.field and (key in given or not argument.is_recorded)
    }
    if HIERARCHY in plugin.settings.__struct_fields__:
        values[HIERARCHY] = is_on(use, _HIERARCHY_SWITCH)
    asked = (p for p in plugin.points if p in ALWAYS or is_on(use, SWITCHES[p]))
    return Configured(use.name, plugin.settings(**values), frozenset(asked))


def _value(argument: Argument, given: int | bool | str) -> Any:
    """The value as the plugin reads it: a policy has decimals as thousandths, and 0 for "no such
    time". For a value in the log of the wrong type or below its bound, the default.
    """
    is_right = type(given) is type(argument.default) and (
        isinstance(given, bool) or int(given) >= argument.least
    )
    value = given if is_right else argument.default
    if argument.kind is Kind.DECIMAL:
        return Fraction(int(value), 1000)
    return (value or None) if argument.kind is Kind.DURATION else value
