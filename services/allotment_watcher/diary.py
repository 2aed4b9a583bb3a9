"""What the log was already told, so that only news is told: the watcher's pure part.

An observation whose normalised content equals the last one told is noise. What the log believes to
exist but the cluster does not show any more is gone, and is told as gone.
"""

from collections.abc import Iterable

import msgspec

from allotment.core.ledger.state import ENDED, ClusterState
from allotment.core.logport import Record
from allotment_proto.events import (
    Envelope,
    GroupObserved,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)

Fact = NodeObserved | NodeGone | PodObserved | PodGone
Versioned = Fact | GroupObserved | QueueObserved | PriorityClassObserved


class Diary:
    """Remembers, per object, the content last told; `begin` fills it from the folded log."""

    def __init__(self) -> None:
        self._pods: dict[str, PodObserved] = {}
        self._nodes: dict[str, NodeObserved] = {}

    def begin(self, state: ClusterState) -> None:
        self._pods = {uid: pod.fact for uid, pod in state.pods.items()}
        self._nodes = {
            name: node.fact for name, node in state.nodes.items() if node.fact is not None
        }

    def pod(self, uid: str) -> PodObserved | None:
        """What was last told of a pod."""
        return self._pods.get(uid)

    def node(self, name: str) -> NodeObserved | None:
        """What was last told of a node."""
        return self._nodes.get(name)

    def pod_seen(self, fact: PodObserved) -> list[Fact]:
        """The facts to append for a pod as it is now: one, or none if nothing changed."""
        told = self._pods.get(fact.uid)
        if told is not None and (told.rv > fact.rv > 0 or _tells_nothing(told, fact)):
            return []
        self._pods[fact.uid] = fact
        return [fact]

    def took_effect(self, record: Record, envelope: Envelope) -> None:
        """Hears of every record of the log. A fact that came back from there is remembered as the
        object that the state holds: of a hundred thousand there need not be two copies.
        """
        for event in envelope.events:
            if isinstance(event, PodObserved) and self._pods.get(event.uid) == event:
                self._pods[event.uid] = event

    def pod_gone(self, uid: str, rv: int = 0) -> list[Fact]:
        told = self._pods.pop(uid, None)
        if told is None:
            return []
        return [PodGone(uid=uid, namespace=told.namespace, name=told.name, rv=max(rv, told.rv))]

    def node_seen(self, fact: NodeObserved) -> list[Fact]:
        """As `pod_seen`; a node made anew under its name first ends the old one."""
        told = self._nodes.get(fact.name)
        reborn = told is not None and told.uid != fact.uid
        if told is not None and not reborn:
            is_older = told.rv > fact.rv > 0
            if is_older or same_content(told, fact):
                return []
        self._nodes[fact.name] = fact
        if told is not None and reborn:
            return [NodeGone(name=told.name, uid=told.uid, rv=told.rv), fact]
        return [fact]

    def node_gone(self, name: str, uid: str) -> list[Fact]:
        told = self._nodes.get(name)
        if told is None or told.uid != uid:
            return []
        del self._nodes[name]
        return [NodeGone(name=name, uid=uid, rv=told.rv)]

    def only_pods(self, uids: Iterable[str]) -> list[Fact]:
        """After a full list: every other pod is gone."""
        there = set(uids)
        return [f for uid in sorted(set(self._pods) - there) for f in self.pod_gone(uid)]

    def only_nodes(self, names: Iterable[str]) -> list[Fact]:
        """After a full list: every other node is gone."""
        there = set(names)
        return [
            f
            for name in sorted(set(self._nodes) - there)
            for f in self.node_gone(name, self._nodes[name].uid)
        ]

    def corrections(self, state: ClusterState) -> list[Fact]:
        """Where the log believes something else than it was told here.

        A watcher that lost its lease may have had a fact on its way. Landing after an object's end
        it would stand for ever, because nothing about that object ever comes again; and an end that
        lands late would hide an object until that changes.
        """
        out: list[Fact] = [told for uid, told in self._pods.items() if uid not in state.pods]
        for uid, pod in state.pods.items():
            if uid not in self._pods:
                fact = pod.fact
                out.append(PodGone(uid=uid, namespace=fact.namespace, name=fact.name, rv=fact.rv))
        for name, told in self._nodes.items():
            node = state.nodes.get(name)
            if node is None or node.fact is None or node.fact.uid != told.uid:
                out.append(told)
        for name, node in state.nodes.items():
            if node.fact is not None and name not in self._nodes:
                out.append(NodeGone(name=name, uid=node.fact.uid, rv=node.fact.rv))
        return out


def _tells_nothing(told: PodObserved, seen: PodObserved) -> bool:
    """Whether nothing changed that anybody reads: of a pod that has ended, no rules and no labels
    are asked any more.
    """
    if told.phase in ENDED and seen.phase in ENDED:
        seen = msgspec.structs.replace(
            seen, labels=told.labels, request=told.request, tags=told.tags, holdings=told.holdings
        )
    return same_content(told, seen)


def same_content(told: Versioned, seen: Versioned) -> bool:
    """Whether two observations differ in nothing but their resourceVersion."""
    return told == msgspec.structs.replace(seen, rv=told.rv)
