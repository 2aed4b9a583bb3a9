"""Plugin `conformance`: pods of the system are never victims."""

from collections.abc import Sequence
from typing import ClassVar

from allotment.core.queues.model import Task
from allotment.core.queues.plugins.base import NoArguments, Plugin
from allotment.core.queues.work import World

_CRITICAL_CLASSES = frozenset(("system-cluster-critical", "system-node-critical"))
_SYSTEM_NAMESPACE = "kube-system"


def _may_be_evicted(task: Task) -> bool:
    return task.priority_class not in _CRITICAL_CLASSES and task.namespace != _SYSTEM_NAMESPACE


class Conformance(Plugin):
    name: ClassVar[str] = "conformance"
    points: ClassVar[frozenset[str]] = frozenset(("preemptable", "reclaimable"))

    def __init__(self, _: NoArguments, world: World) -> None:
        pass

    def preemptable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        return [task for task in candidates if _may_be_evicted(task)]

    def reclaimable(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        return [task for task in candidates if _may_be_evicted(task)]
