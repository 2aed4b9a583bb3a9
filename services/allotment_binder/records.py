"""Records that a device plugin would still serve although their pod has ended.

A kubelet may reject a bound pod before it asks the device plugin for anything. The pod fails, its
annotations stay, and the plugin looks at annotations alone: it would serve the next pod of the node
that asks for as many devices with the dead pod's cards, that pod's record would serve the one after
it, and so on. So such a record is erased, and until the log shows that it is, no pod that could be
taken for it is bound to the node.

The record of a pod that the plugin gave up itself comes last in that choice, so nobody waits for
it; it is erased as well, once.
"""

from collections.abc import Callable

import anyio

from allotment.adapters.kube import MERGE_PATCH, KubeClient, Ok, Refused, pod_path
from allotment.core.acknowledgement import plugin_question
from allotment.core.state import ENDED, ClusterState
from allotment_binder.pacing import Place
from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys, vgpu

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 10.0
GONE = (404, 409)
"""The pod is not there any more, or another one has its name."""


def unserved(fact: PodObserved) -> Place | None:
    """Where an ended pod's record still waits to be served; None if it does not."""
    if not fact.node or fact.phase not in ENDED or fact.bind_phase != keys.PHASE_ALLOCATING:
        return None
    holdings = tuple(h for h in fact.holdings if h.family == vgpu.FAMILY)
    question = plugin_question(holdings)
    return None if question is None else (fact.node, question)


def given_up(state: ClusterState, fact: PodObserved) -> bool:
    """Whether the plugin of one of our nodes failed to serve a pod and left its record."""
    node = state.nodes.get(fact.node)
    return (
        node is not None
        and node.fact is not None
        and fact.bind_phase == keys.PHASE_FAILED
        and any(held.family == vgpu.FAMILY for held in fact.holdings)
    )


class Unserved:
    """The pods whose records are to be erased, and the places that wait for it."""

    def __init__(self) -> None:
        self.pods: dict[str, Place] = {}
        self.given_up: dict[str, None] = {}
        """Pods whose records are still to be erased although nobody waits for it."""
        self._erased: set[str] = set()

    def begin(self, state: ClusterState) -> None:
        self.pods.clear()
        self.given_up.clear()
        for uid in state.pods:
            self.look(state, uid)

    def look(self, state: ClusterState, uid: str) -> None:
        """Take note of a pod as the log shows it now."""
        pod = state.pods.get(uid)
        place = None if pod is None else unserved(pod.fact)
        if place is None:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = place
        if pod is None:
            self.given_up.pop(uid, None)
            self._erased.discard(uid)
        elif uid not in self._erased and given_up(state, pod.fact):
            self.given_up[uid] = None

    def erased(self, state: ClusterState, uid: str) -> None:
        """The record of a pod is erased: what its annotations say now is ours."""
        self.given_up.pop(uid, None)
        if uid in state.pods:
            self._erased.add(uid)

    def is_erased(self, uid: str) -> bool:
        return uid in self._erased

    def places(self) -> frozenset[Place]:
        return frozenset(self.pods.values())


async def erase(
    client: KubeClient, namespace: str, name: str, uid: str, on_problem: Callable[[str], None]
) -> None:
    """Make the plugin pass over this pod's record; tries until that is done or the pod is gone."""
    path = pod_path(namespace, name, "status")
    annotations = {keys.DEVICES_TO_ALLOCATE: "", keys.BIND_PHASE: keys.PHASE_FAILED}
    body = {"metadata": {"uid": uid, "annotations": annotations}}
    wait_s = RETRY_FIRST_S
    while True:
        answer = await client.patch(path, body, MERGE_PATCH)
        if isinstance(answer, Ok) or (isinstance(answer, Refused) and answer.status in GONE):
            return
        on_problem(answer.message)
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)
