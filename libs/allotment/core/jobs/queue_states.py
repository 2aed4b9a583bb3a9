"""The states of a Queue: Open, Closing, Closed. A parent that closes also closes its children."""

from collections.abc import Iterable, Mapping

import msgspec

from allotment.core.jobs import keys
from allotment.core.jobs.model import JsonObject, Queue

OPEN = "Open"
CLOSED = "Closed"
_CLOSING = "Closing"
OPEN_QUEUE = "OpenQueue"
CLOSE_QUEUE = "CloseQueue"
_ACTIONS = (OPEN_QUEUE, CLOSE_QUEUE)


class Change(msgspec.Struct, frozen=True):
    """How a queue changes. `by_parent`: set or remove the mark; None: leave it."""

    queue: str
    state: str
    by_parent: bool | None = None


class Denied(msgspec.Struct, frozen=True):
    """Why a Command for a queue is rejected."""

    reason: str


def settle(state: str, groups: int) -> str:
    """The state that follows from the present one by the number of its PodGroups."""
    if state == "":
        return OPEN
    return CLOSED if state == _CLOSING and groups == 0 else state


def operate(
    name: str, action: str, queues: Mapping[str, Queue], groups: Mapping[str, int]
) -> list[Change] | Denied:
    """What an action does to a queue and its descendants; `groups`: PodGroups by queue."""
    queue = queues.get(name)
    if queue is None:
        return Denied(f"there is no queue {name!r}")
    if action == CLOSE_QUEUE:
        if name in (keys.ROOT_QUEUE, keys.DEFAULT_QUEUE):
            return Denied(f"queue {name!r} is always open")
        return _close(name, queues, groups)
    if action == OPEN_QUEUE:
        parent = queues.get(_parent_of(queue))
        if parent is not None and parent.status.state in (CLOSED, _CLOSING):
            return Denied(f"its parent {parent.metadata.name!r} is {parent.status.state}")
        return _open(name, queues)
    return Denied(f"{action!r} is none of {', '.join(_ACTIONS)}")


def _close(name: str, queues: Mapping[str, Queue], groups: Mapping[str, int]) -> list[Change]:
    changes = [_closing(name, groups, None)]
    waiting = [name]
    seen = {name}
    while waiting:
        for child in _children(waiting.pop(), queues):
            child_name = child.metadata.name
            if child_name not in seen and child.status.state in ("", OPEN):
                seen.add(child_name)
                waiting.append(child_name)
                changes.append(_closing(child_name, groups, True))
    return changes


def _closing(name: str, groups: Mapping[str, int], by_parent: bool | None) -> Change:
    return Change(name, _CLOSING if groups.get(name, 0) else CLOSED, by_parent)


def _open(name: str, queues: Mapping[str, Queue]) -> list[Change]:
    changes = [Change(name, OPEN, False)]
    waiting = [name]
    seen = {name}
    while waiting:
        for child in _children(waiting.pop(), queues):
            child_name = child.metadata.name
            if child_name not in seen and child.metadata.annotation(keys.CLOSED_BY_PARENT):
                seen.add(child_name)
                waiting.append(child_name)
                changes.append(Change(child_name, OPEN, False))
    return changes


def _parent_of(queue: Queue) -> str:
    """The parent queue; the root has none."""
    if queue.metadata.name == keys.ROOT_QUEUE:
        return ""
    return queue.spec.parent or keys.ROOT_QUEUE


def _children(name: str, queues: Mapping[str, Queue]) -> Iterable[Queue]:
    return [queue for queue in queues.values() if _parent_of(queue) == name]


def first_queues() -> list[JsonObject]:
    """The queues that every cluster has."""
    return [
        _queue(keys.ROOT_QUEUE, {"weight": 1, "reclaimable": False}),
        _queue(keys.DEFAULT_QUEUE, {"weight": 1, "parent": keys.ROOT_QUEUE}),
    ]


def _queue(name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": keys.SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
