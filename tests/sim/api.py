"""The API server as a stub: pods, nodes, one Binding per pod, and what runs where in truth."""

from typing import NamedTuple

import msgspec

from allotment.core.explain.rows.acknowledgement import recorded
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import keys

ENDED = ("Succeeded", "Failed")
UNREADABLE = Problem("InvalidRequest", "the pod object", "cannot be read")
"""Of a pod of which nobody can read what it asks for either."""


class Record(NamedTuple):
    """The annotations by which a node's device plugin serves a pod."""

    node: str
    devices: int
    stamp_s: int


class Api:
    """Objects as they are now. Every write raises the resource version of what it touched."""

    def __init__(self, *, refuses_second_binding: bool = True) -> None:
        self.nodes: dict[str, NodeObserved] = {}
        self.pods: dict[str, PodObserved] = {}
        self.rv = 0
        self.denied: set[tuple[str, str]] = set()
        """(pod, node) pairs whose Binding an admission rule refuses, for as long as they stand."""
        self.started: dict[str, set[str]] = {}
        """Where a kubelet started each pod: what once runs on a node is not undone by a Binding."""
        self.excused: set[tuple[str, str]] = set()
        """(node, card) that may run too much: it shrank, or a stranger put something there."""
        self.given: dict[str, tuple[Holding, ...]] = {}
        """What each pod's device plugin handed out: what was annotated when the pod was bound,
        whatever its owner makes of the annotations later."""
        self.strangers: set[str] = set()
        """Pods that somebody else bound."""
        self.records: dict[str, Record] = {}
        """What device plugins would serve pods with: of every pod that was bound by us, until a
        plugin has served somebody with it, it is erased, or the pod is gone."""
        self._refuses_second_binding = refuses_second_binding

    def put_node(self, fact: NodeObserved) -> None:
        self.rv += 1
        self.nodes[fact.name] = msgspec.structs.replace(fact, rv=self.rv)

    def put_pod(self, fact: PodObserved) -> None:
        self.rv += 1
        self.pods[fact.uid] = msgspec.structs.replace(fact, rv=self.rv)

    def delete_pod(self, uid: str) -> None:
        self.rv += 1
        self.pods.pop(uid, None)
        self.records.pop(uid, None)

    def delete_node(self, name: str) -> None:
        self.rv += 1
        self.nodes.pop(name, None)

    def edit(self, uid: str, holdings: tuple[Holding, ...], broken: Problem | None = None) -> None:
        """The owner of a bound pod makes its annotations say something else."""
        self.put_pod(msgspec.structs.replace(self.pods[uid], holdings=holdings, broken=broken))

    def bind(
        self, uid: str, node: str, holdings: tuple[Holding, ...], stamp_s: int | None = None
    ) -> str:
        """POST …/binding: ``ok``, ``gone`` (404), ``conflict`` (409) or ``denied`` (403).

        With a stamp the node's device plugin still has to serve the pod. Pods that others bound are
        served at once; on a node that is gone no kubelet is, and nobody is served.
        """
        pod = self.pods.get(uid)
        if pod is None:
            return "gone"
        if pod.node and self._refuses_second_binding:
            return "conflict"
        if (uid, node) in self.denied:
            return "denied"
        self.started.setdefault(uid, set()).add(node)
        self.given[uid] = holdings
        phase = keys.PHASE_SUCCESS
        if stamp_s is not None and recorded(holdings) and node in self.nodes:
            self.records[uid] = Record(node, len(holdings), stamp_s)
            phase = keys.PHASE_ALLOCATING
        self.put_pod(msgspec.structs.replace(pod, node=node, holdings=holdings, bind_phase=phase))
        return "ok"

    def allocate(self, uid: str, node: str) -> str:
        """A node's device plugin is asked for a pod: it takes the smallest stamp with the right
        number of devices, whatever became of that pod. Whose record that was; empty for none.
        """
        standing = [
            (record.stamp_s, other)
            for other, record in self.records.items()
            if (record.node, record.devices) == (node, len(self.given[uid]))
        ]
        taken = min(standing)[1] if standing else ""
        if taken:
            del self.records[taken]
            self.put_pod(msgspec.structs.replace(self.pods[taken], bind_phase=keys.PHASE_SUCCESS))
        return taken

    def fail(self, uid: str) -> None:
        """A pod's kubelet does not admit it; its record stays unless it was served."""
        pod = self.pods.get(uid)
        if pod is not None and pod.phase not in ENDED:
            self.put_pod(msgspec.structs.replace(pod, phase="Failed"))

    def erase(self, uid: str) -> int:
        """Make plugins pass over a pod's record; the pod's version then, 0 if it is gone."""
        pod = self.pods.get(uid)
        if pod is None:
            return 0
        if self.records.pop(uid, None) is not None:
            self.put_pod(msgspec.structs.replace(pod, bind_phase=keys.PHASE_FAILED))
        return self.pods[uid].rv

    def running(self) -> dict[str, tuple[str, tuple[Holding, ...]]]:
        """The pods that hold something, bound and not ended, with their node and what they got."""
        return {
            uid: (pod.node, self.given[uid])
            for uid, pod in self.pods.items()
            if pod.node and pod.phase not in ENDED
        }

    def doubled(self) -> list[str]:
        """Pods that run on more than one node."""
        return sorted(uid for uid, nodes in self.started.items() if len(nodes) > 1)

    def oversold(self) -> list[str]:
        """Cards on which more runs than they have, though nobody but us put it there."""
        found: list[str] = []
        for node in self.nodes.values():
            for inventory in node.inventories:
                for card in inventory.cards:
                    held = [
                        h
                        for name, holdings in self.running().values()
                        if name == node.name
                        for h in holdings
                        if h.card == card.id
                    ]
                    if (node.name, card.id) not in self.excused and (
                        len(held) > card.slots
                        or sum(h.memory_mib for h in held) > card.memory_mib
                        or sum(h.cores_pct for h in held) > card.cores_pct
                    ):
                        found.append(f"{node.name}/{card.id}")
        return found


def as_annotated(holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """What the pod's annotations will say: whole shared cards are listed by index alone."""
    return tuple(
        Holding(h.family, h.container, h.card, 0, h.cores_pct)
        if h.family == "gpushare" and h.cores_pct
        else h
        for h in holdings
    )
