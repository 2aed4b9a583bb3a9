"""Everything that stands between a pod and each node, the nearest nodes first.

`fits` charges a node to the first check that it fails. Here that obstacle is removed and the node
is asked again, until it takes the pod or an obstacle cannot be removed: a cordoned node is opened,
the pod tolerates the taint, all pods of the node end, any card model will do. A node is as near as
its hardest obstacle is easy to remove, so a cordon on the only node with a fitting card comes
before the card models of all others.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.rules.bounds import OPEN, bounds_of, by_itself
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import CORDON_TAINT, fits
from allotment_proto.events import NodeObserved
from allotment_proto.facts import ALONE, PodRequest, Toleration

FITS = "fits"
_SAMPLED = 64
"""How many nodes with the same first obstacle are asked for their other obstacles; if these agree,
the rest counts as equal.
"""


class Gap(NamedTuple):
    """Nodes that have the same obstacles, as reason codes in the order in which they were found."""

    codes: tuple[str, ...]
    nodes: tuple[Node, ...]
    is_final: bool
    """Whether the last one cannot be removed: no such device, or more than any card has."""
    lasting: frozenset[str] = frozenset()
    """Those that would remain if no pod ran in the cluster."""


def present(state: ClusterState) -> list[Node]:
    """The nodes that are there, by name: a state that was read from a snapshot, which has them in
    another order, gets the same words.
    """
    there = (node for node in state.nodes.values() if node.fact is not None)
    return sorted(there, key=lambda node: node.name)


def emptied(node: Node) -> Node:
    """The node as it would be if it was empty, ready and not cordoned."""
    fact = node.fact
    assert fact is not None
    twin = Node(node.name, node.row)
    twin.rebuild(_in_use(fact))
    return twin


def reopened(node: Node) -> Node | None:
    """The node as it would be if it was ready and not cordoned."""
    if node.fact is None:
        return None
    twin = node.fork()
    twin.fact = _in_use(node.fact)
    return twin


def _in_use(fact: NodeObserved) -> NodeObserved:
    taints = tuple(taint for taint in fact.taints if taint.key not in _OUT_OF_USE)
    return msgspec.structs.replace(fact, ready=True, unschedulable=False, taints=taints)


_OUT_OF_USE = frozenset(
    (CORDON_TAINT, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)
"""Taints that disappear when a node is uncordoned, or is ready again."""


class Emptied:
    """The cluster as if no pod ran in it, every node ready and open: what fits not even there will
    never fit."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._twins: dict[str, Node] = {}
        self._around: dict[PodRequest, Around] = {}

    def twin(self, node: Node) -> Node:
        """One of its nodes."""
        if node.name not in self._twins:
            self._twins[node.name] = emptied(node)
        return self._twins[node.name]

    def refuses(self, node: Node, request: PodRequest) -> str | None:
        """The reason code with which the emptied node refuses; None if it takes the request."""
        around = None if request.company == ALONE else self._look(request)
        alone = _unkept(request)
        answer = fits(self.twin(node), alone, self._state.policy, around=around)
        return answer if isinstance(answer, str) else None

    def takes(self, request: PodRequest) -> bool | None:
        """Whether some node takes the request; None if the cluster has no node."""
        there = present(self._state)
        return any(self.refuses(node, request) is None for node in there) if there else None

    def _look(self, request: PodRequest) -> Around:
        """What rules about other pods find: no pods to keep away from, and the running pods to be
        near to, because they are no obstacle.
        """
        if request not in self._around:
            there = present(self._state)
            around = look_around([self.twin(node) for node in there], request)
            if request.company.near:
                around = around._replace(near=look_around(there, request).near)
            self._around[request] = around
        return self._around[request]


def _unkept(request: PodRequest) -> PodRequest:
    """The request where nothing is kept for others and no pod has failed anywhere."""
    return msgspec.structs.replace(by_itself(request), company=request.company)


def gaps(state: ClusterState, request: PodRequest, answers: Sequence[str]) -> list[Gap]:
    """What stands between the request and the nodes that refuse it, the nearest nodes first.

    `answers` are the first obstacles of the present nodes in their order, or `FITS`.
    """
    by_first: dict[str, list[Node]] = defaultdict(list)
    for node, code in zip(present(state), answers, strict=True):
        if code != FITS:
            by_first[code].append(node)
    asked = _Asked(state)
    found: dict[tuple[tuple[str, ...], bool, frozenset[str]], list[Node]] = defaultdict(list)
    for nodes in by_first.values():
        sample = {node.name: asked.gap(node, request) for node in nodes[:_SAMPLED]}
        alike = set(sample.values())
        for node in nodes if len(alike) == 1 else nodes[:_SAMPLED]:
            found[sample[node.name] if node.name in sample else next(iter(alike))].append(node)
    gaps = [
        Gap(codes, tuple(nodes), final, lasting) for (codes, final, lasting), nodes in found.items()
    ]
    return sorted(gaps, key=_distance)


def _distance(gap: Gap) -> tuple[int, int, int, tuple[str, ...]]:
    """By the hardest obstacle, then by their number; of equals the most nodes."""
    hardest = max(_hardness(code, gap) for code in gap.codes)
    return hardest, len(gap.codes), -len(gap.nodes), gap.codes


_BY_SELECTION = (
    frozenset((reasons.GPU_NOT_SELECTED,)),
    frozenset((reasons.GPU_MODE_MISMATCH,)),
    frozenset((reasons.GPU_MODEL_MISMATCH,)),
)
_RULES_ABOUT_PODS = frozenset(reasons.CODES_AT["otherPods"])
_TO_COME_BY_ITSELF = frozenset(
    code
    for step in ("nominated", "keptForOthers", "nodeHealth", "pluginBacklog")
    for code in reasons.CODES_AT[step]
)
_OF_NODE = frozenset(
    (
        *reasons.CODES_AT["nodeReady"],
        reasons.TAINT_NOT_TOLERATED,
        reasons.GPU_UNHEALTHY,
        reasons.CARD_FAILING,
        reasons.CARDS_QUARANTINED,
        reasons.RECORD_FORGED,
    )
)


def _hardness(code: str, gap: Gap) -> int:
    """How hard an obstacle is to remove: 0 goes by itself, then room, the node, other pods or the
    queue, the amount, the selection of cards, the pod's rules about nodes, and what no node has.
    """
    if code in _TO_COME_BY_ITSELF:
        return 0
    if code in _RULES_ABOUT_PODS:
        return 3 if code in gap.lasting else 1
    if code in reasons.CURED_BY_ROOM:
        return 4 if code in gap.lasting else 1
    if code in _OF_NODE:
        return 2
    if code in reasons.CODES_AT["queueNodes"]:
        return 3
    for number, codes in enumerate(_BY_SELECTION):
        if code in codes:
            return 5 + number
    return 9 if code == reasons.NO_GPU else 8


class _Asked:
    """Asks nodes again and again, each time without the obstacle that they named."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._empty = Emptied(state)
        self._all = list(state.nodes.values())
        self._around: dict[PodRequest, Around] = {}

    def gap(self, node: Node, request: PodRequest) -> tuple[tuple[str, ...], bool, frozenset[str]]:
        """All obstacles of one node, whether the last is final, and those that last."""
        codes: list[str] = []
        lasting: set[str] = set()
        is_emptied = False
        here = node
        while True:
            code = self._answer(here, request, is_emptied=is_emptied)
            if code is None:
                return tuple(codes), False, frozenset(lasting)
            if code not in codes:
                codes.append(code)
            elif code not in _GONE_WITH_PODS or code in lasting:
                return tuple(codes), True, frozenset(lasting)
            if code in _GONE_WITH_PODS:
                if not is_emptied:
                    is_emptied, here = True, self._empty.twin(node)
                    continue
                lasting.add(code)
            if code in (reasons.NODE_CORDONED, reasons.NODE_NOT_READY):
                opened = reopened(here)
                if opened is None:
                    return tuple(codes), True, frozenset(lasting)
                here = opened
                continue
            if code == reasons.GPU_MODE_MISMATCH:
                request = _in_mode_of(here, request)
                continue
            without = _WITHOUT.get(code)
            if without is None:
                is_end = code not in _TO_COME_BY_ITSELF | _OF_NODE
                return tuple(codes), is_end, frozenset(lasting)
            request = without(request)

    def _answer(self, node: Node, request: PodRequest, *, is_emptied: bool) -> str | None:
        if is_emptied:
            return self._empty.refuses(node, request)
        around = None
        if request.company != ALONE:
            if request not in self._around:
                self._around[request] = look_around(self._all, request)
            around = self._around[request]
        answer = fits(node, request, self._state.policy, around=around)
        return answer if isinstance(answer, str) else None


_GONE_WITH_PODS = reasons.CURED_BY_ROOM | {reasons.POD_AFFINITY_MISMATCH}
"""Obstacles that are looked at once more on a cluster in which no pod runs."""


def _unbounded(request: PodRequest) -> PodRequest:
    """The request without what its queue and others' reservations say about nodes."""
    return request if bounds_of(request) == OPEN else msgspec.structs.replace(request, bounds=OPEN)


def _constrained(**fields: object) -> Callable[[PodRequest], PodRequest]:
    return lambda request: msgspec.structs.replace(
        request, constraints=msgspec.structs.replace(request.constraints, **fields)
    )


def _choosing(**fields: object) -> Callable[[PodRequest], PodRequest]:
    return lambda request: msgspec.structs.replace(
        request, selection=msgspec.structs.replace(request.selection, **fields)
    )


def _in_mode_of(node: Node, request: PodRequest) -> PodRequest:
    """The request for the sharing mode of the node's cards."""
    ledgers = (node.ledgers.get(wanted.family) for wanted in request.devices)
    mode = next((ledger.mode for ledger in ledgers if ledger is not None), None)
    return _choosing(mode=mode)(request)


_ALL_TAINTS = (Toleration("", "Exists", "", ""),)
_WITHOUT: dict[str, Callable[[PodRequest], PodRequest]] = {
    reasons.TAINT_NOT_TOLERATED: _constrained(tolerations=_ALL_TAINTS),
    reasons.SELECTOR_MISMATCH: _constrained(node_selector=()),
    reasons.AFFINITY_MISMATCH: _constrained(affinity=()),
    reasons.VOLUME_OUT_OF_REACH: _constrained(volumes=()),
    reasons.NODE_GROUP: _unbounded,
    reasons.CARD_WITHOUT_QUOTA: _unbounded,
    reasons.NOT_NOMINATED: _unbounded,
    reasons.GPU_NOT_SELECTED: _choosing(use_ids=None, nouse_ids=None, indexes=None, avoided=()),
    reasons.GPU_MODEL_MISMATCH: _choosing(use_types=None, nouse_types=None),
    **dict.fromkeys(_RULES_ABOUT_PODS, by_itself),
}
"""By obstacle, the request that does not meet it."""
