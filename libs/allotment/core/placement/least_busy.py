"""Where a pod starts soonest, as long as that costs no pod its place.

kubelet calls the device plugins of a node for one pod after the other, so the tenth pod of a burst
on one node waits ten times as long as the first. Nodes are therefore tried in steps, and the policy
decides among the nodes of a step:

1. nodes whose plugin is idle, for a pod by itself, if the best of them already has pods with
   devices: a start that is sooner by a second is not worth opening a node that could stay whole;
2. nodes on which fewer pods wait than the policy's `plugin_backlog`; for members of a gang, which
   work better side by side, `_GANG_TIMES` as many;
3. if as many wait everywhere, nodes with fewer than twice, four, eight and sixteen times as many,
   and finally all.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.rules.failing import if_possible, without
from allotment.core.placement.rules.interpod import situated
from allotment_proto.events import PodObserved
from allotment_proto.facts import PodRequest

_GANG_TIMES = 4
"""Eight pods of one card each stay on a node with eight cards."""
_MORE_TIMES = (2, 4, 8, 16)
"""With doubling, no node has more than twice as many waiting pods as necessary."""
_T = TypeVar("_T")


class Patience(NamedTuple):
    """How many pods may wait for a device plugin before a pod prefers another node."""

    below: int
    """It prefers nodes on which fewer wait; 0: no preference."""
    idle_first: bool = False
    """It prefers idle plugins even more, unless that opens a node."""


_DOES_NOT_CARE = Patience(0)


def patience(pod: PodObserved, state: ClusterState) -> Patience:
    """The policy's patience for a pod of its kind."""
    most = state.policy.plugin_backlog
    if not most or not pod.request.devices:
        return _DOES_NOT_CARE
    if state.is_gang(pod.group):
        return Patience(_GANG_TIMES * most)
    return Patience(most, idle_first=most > 1)


def least_busy(
    pod: PodObserved,
    state: ClusterState,
    find: Callable[[PodRequest], _T | None],
    node_of: Callable[[_T], str],
) -> _T | None:
    """What `find` finds for the request of a pod: nodes that take it, or None if none does. It is
    called for fewer nodes first, and last for the pod's own request, so that no preference costs
    the pod its place. `node_of` is the best node of what was found.

    Nodes that are on probation after failures come last, and so do nodes and cards on which pods of
    the same owner could not start.
    """
    request, waits = careful(pod, state), patience(pod, state)
    for asked in dict.fromkeys((if_possible(request, pod, state), request, situated(pod, state))):
        found = _least_busy(asked, waits, state, find, node_of)
        if found is not None:
            return found
    return None


def _least_busy(
    request: PodRequest,
    waits: Patience,
    state: ClusterState,
    find: Callable[[PodRequest], _T | None],
    node_of: Callable[[_T], str],
) -> _T | None:
    if not waits.below:
        return find(request)
    if waits.idle_first:
        idle = find(_waiting_below(1, request))
        # Nodes of earlier pods of the batch need no check: they are not idle.
        if idle is not None and is_in_use(state, node_of(idle)):
            return idle
    found = find(_waiting_below(waits.below, request))
    if found is not None:
        return found
    found = find(request)
    if found is None:
        return None
    # If that many wait everywhere, the policy alone would send all new pods to one node.
    for times in _MORE_TIMES:
        elsewhere = find(_waiting_below(waits.below * times, request))
        if elsewhere is not None:
            return elsewhere
    return found


def is_in_use(state: ClusterState, name: str) -> bool:
    """Whether a pod has devices of the node."""
    return any(held.holdings for held in state.nodes[name].allocations.values())


def _waiting_below(most: int, request: PodRequest) -> PodRequest:
    """The request, limited to nodes on which fewer pods wait for device plugins."""
    selection = msgspec.structs.replace(request.selection, backlog_below=most)
    return msgspec.structs.replace(request, selection=selection)


def careful(pod: PodObserved, state: ClusterState) -> PodRequest:
    """The pod's request as `situated`, without the cards on which pods of its owner could not
    start.
    """
    request = situated(pod, state)
    avoided = state.avoided.get(pod.owner) if pod.owner and request.devices else None
    if not avoided:
        return request
    return without(request, (), tuple(avoided))
