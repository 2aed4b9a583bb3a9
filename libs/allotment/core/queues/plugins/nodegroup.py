"""Plugin `nodegroup`: queues keep to groups of nodes.

A node's group is its label `volcano.sh/nodegroup-name`. A queue may use the groups that it requires
or prefers, except those that it must avoid. A group that it prefers to avoid is allowed as a last
resort, and that outweighs a required avoidance. With `enableHierarchy` a queue without affinity
uses that of the nearest queue above.

With `strict` (the default) a queue without any affinity may use no node; otherwise it may use the
nodes without a group.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from allotment.core.plugin_arguments import Arguments, boolean
from allotment.core.queues.limits import NodePoints, NodeRule
from allotment.core.queues.model import NodeGroups, QueueView
from allotment.core.queues.plugins.base import Plugin
from allotment.core.queues.work import World
from allotment.core.reasons import NODE_GROUP

LABEL = "volcano.sh/nodegroup-name"
_POINT_MICRO = 1_000_000
_REQUIRED_POINTS_MICRO = 100 * _POINT_MICRO
_PREFERRED_POINTS_MICRO = 50 * _POINT_MICRO
_AVOIDED_POINTS_MICRO = -_POINT_MICRO


class Settings(msgspec.Struct, frozen=True):
    """`strict`, and whether queues inherit the groups of those above them (`enableHierarchy`)."""

    strict: bool
    hierarchy: bool


def is_allowed(groups: NodeGroups, group: str) -> bool:
    if group in groups.anti_preferred:
        return True
    wanted = group in groups.required or group in groups.preferred
    return wanted and group not in groups.anti_required


def points_micro(groups: NodeGroups, group: str) -> int:
    if group in groups.anti_preferred:
        return _AVOIDED_POINTS_MICRO
    required = _REQUIRED_POINTS_MICRO if group in groups.required else 0
    return required + (_PREFERRED_POINTS_MICRO if group in groups.preferred else 0)


def _named(groups: NodeGroups) -> list[str]:
    """All groups that an affinity names, sorted."""
    return sorted(groups.required | groups.preferred | groups.anti_required | groups.anti_preferred)


class NodeGroup(Plugin):
    name: ClassVar[str] = "nodegroup"
    points: ClassVar[frozenset[str]] = frozenset(("predicate", "node_order"))
    declared: ClassVar[Arguments] = {
        "strict": boolean(True, field="strict"),
        "enablePreferredOrder": boolean(False, is_used=False),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._strict = arguments.strict
        self._groups = {
            name: next(
                (
                    groups
                    for above in (world.chain(name) if arguments.hierarchy else [name])
                    if (groups := world.queues[above].node_groups) is not None
                ),
                None,
            )
            for name in world.queues
        }

    def node_rule(self, queue: QueueView) -> NodeRule | None:
        groups = self._groups[queue.name]
        if groups is None:
            but = "" if self._strict else ", and may use only nodes without one"
            text = f"queue {queue.name} has no affinity to any node group{but}"
            return NodeRule(NODE_GROUP, LABEL, (), not self._strict, text)
        allowed = tuple(group for group in _named(groups) if is_allowed(groups, group))
        text = f"queue {queue.name} may use {_node_groups(allowed)}"
        return NodeRule(NODE_GROUP, LABEL, allowed, False, text)

    def node_points(self, queue: QueueView) -> NodePoints | None:
        groups = self._groups[queue.name]
        if groups is None:
            return None
        return NodePoints(
            self.name, LABEL, tuple((g, points_micro(groups, g)) for g in _named(groups))
        )


def _node_groups(names: Sequence[str]) -> str:
    if not names:
        return "no node group"
    return f"only node group{'s' * (len(names) > 1)} {', '.join(names)}"
