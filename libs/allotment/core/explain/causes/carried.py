"""A state as it would be after one change: advice is computed on it.

The twin shares everything with the state that the change does not touch, and is for reading: for
rounds, verdicts and checks, which change nothing.
"""

import copy
from collections.abc import Iterable

import msgspec

from allotment.core.explain.causes.counterfactual import (
    Asks,
    Deed,
    Elsewhere,
    Ended,
    Fewer,
    Ranked,
    Uncordoned,
)
from allotment.core.explain.causes.obstacles import reopened
from allotment.core.ledger.model import ClusterState, Node


def carried_out(state: ClusterState, uids: Iterable[str], deed: Deed) -> ClusterState:
    """The state if the change was made. `uids` are the pods that wait, whose change it is."""
    twin = copy.copy(state)
    match deed:
        case Asks(edit):
            twin.pods = dict(state.pods)
            for uid in uids:
                pod = state.pods[uid]
                request = edit(pod.fact.request)
                fact = msgspec.structs.replace(pod.fact, request=request)
                twin.pods[uid] = msgspec.structs.replace(pod, fact=fact)
        case Ranked(name, value):
            _rank(twin, list(uids), name, value)
        case Uncordoned(name):
            changed = reopened(state.nodes[name])
            if changed is not None:
                _with_nodes(twin, [changed])
        case Ended(gone):
            _end(twin, gone)
        case Elsewhere(queue):
            _move(twin, list(uids), queue)
        case Fewer(least):
            twin.groups = dict(state.groups)
            for key in {state.pods[uid].fact.group for uid in uids}:
                group = twin.groups[key] = copy.copy(state.groups[key])
                assert group.fact is not None
                group.fact = msgspec.structs.replace(group.fact, min_member=least)
    return twin


def _with_nodes(twin: ClusterState, nodes: Iterable[Node]) -> None:
    twin.nodes, twin.rows = dict(twin.nodes), list(twin.rows)
    for node in nodes:
        twin.nodes[node.name] = twin.rows[node.row] = node


def _end(twin: ClusterState, gone: Iterable[str]) -> None:
    pods = twin.pods
    twin.pods, twin.groups = dict(pods), dict(twin.groups)
    twin.singles, twin.reserved = dict(twin.singles), dict(twin.reserved)
    twin.local, twin.evicting = dict(twin.local), dict(twin.evicting)
    nodes: dict[str, Node] = {}
    for uid in gone:
        pod = twin.pods.pop(uid)
        for known in (twin.singles, twin.reserved, twin.local):
            known.pop(uid, None)
        twin.evicting.pop(uid, None)
        held, group = pod.allocation, twin.groups.get(pod.fact.group)
        if group is not None:
            left = twin.groups[pod.fact.group] = copy.copy(group)
            left.members = {member: None for member in group.members if member != uid}
        if held is not None:
            node = nodes.setdefault(held.node, twin.nodes[held.node].fork())
            node.release(node.allocations[uid])
    _with_nodes(twin, nodes.values())


def _rank(twin: ClusterState, uids: list[str], name: str, value: int) -> None:
    twin.pods, twin.groups = dict(twin.pods), dict(twin.groups)
    for uid in uids:
        pod = twin.pods[uid]
        fact = msgspec.structs.replace(
            pod.fact, priority=value, priority_class=name, class_priority=None
        )
        twin.pods[uid] = msgspec.structs.replace(pod, fact=fact)
        group = twin.groups.get(fact.group)
        if group is not None and group.fact is not None and group.fact.priority_class != name:
            ranked = twin.groups[fact.group] = copy.copy(group)
            ranked.fact = msgspec.structs.replace(group.fact, priority_class=name)


def _move(twin: ClusterState, uids: list[str], queue: str) -> None:
    twin.pods, twin.groups = dict(twin.pods), dict(twin.groups)
    for uid in uids:
        pod = twin.pods[uid]
        group = twin.groups.get(pod.fact.group)
        if not pod.fact.group:
            fact = msgspec.structs.replace(pod.fact, queue=queue)
            twin.pods[uid] = msgspec.structs.replace(pod, fact=fact)
        elif group is not None and group.fact is not None and group.fact.queue != queue:
            moved = twin.groups[pod.fact.group] = copy.copy(group)
            moved.fact = msgspec.structs.replace(group.fact, queue=queue)
            moved.queue = queue
