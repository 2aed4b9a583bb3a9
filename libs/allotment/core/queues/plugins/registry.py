"""Order and quota plugins by name, and how a policy's use of one becomes a plugin to open.

A new plugin is a file beside this one with its class, and a line in `PLUGINS`.
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
"""The one switch that is off unless said otherwise, and changes how a plugin works."""
HIERARCHY = "hierarchy"
"""The field that it sets, of plugins that have one."""

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
"""The order and quota plugins. Others (predicates, scores) are not asked here."""


class Configured(NamedTuple):
    """A plugin with its arguments read: what a session opens."""

    name: str
    arguments: msgspec.Struct
    points: frozenset[str]
    """The questions that it is asked: those it answers, less those that are switched off."""

    def open(self, world: World) -> Plugin:
        return PLUGINS[self.name](self.arguments, world)


def configure(use: PluginUse) -> Configured:
    """A plugin of `PLUGINS` as a policy uses it."""
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
    """As the plugin reads it: a policy has decimals as thousandths, and 0 for no such time. What is
    not of the argument's type or below its bound, in a log, counts as the default.
    """
    is_right = type(given) is type(argument.default) and (
        isinstance(given, bool) or int(given) >= argument.least
    )
    value = given if is_right else argument.default
    if argument.kind is Kind.DECIMAL:
        return Fraction(int(value), 1000)
    return (value or None) if argument.kind is Kind.DURATION else value
