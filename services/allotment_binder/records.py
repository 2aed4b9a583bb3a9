"""What stands in the way of the next Binding of a node and question: other pods' records.

A kubelet may reject a bound pod before it asks the device plugin for anything. The pod fails, its
annotations stay, and the plugin looks at annotations alone: it would serve the next pod of the node
that asks for as many devices with the dead pod's cards, that pod's record would serve the one after
it, and so on. So such a record is erased first, and so is that of a pod that runs although its
record still stands: it was served with another one's.

A pod that is deleted by force while it waits for its turn has no record any more, but its node's
kubelet admits it all the same: the plugin would serve it with the next pod's record. So nobody
takes its place before the kubelet has come past it.

The record of a pod that the plugin gave up itself comes last in its choice, so nobody waits for
it; it is erased as well, once.
"""

import time
from collections import Counter
from collections.abc import Callable

import anyio
import msgspec

from allotment.adapters.kube import MERGE_PATCH, KubeClient, Ok, Refused, pod_path
from allotment.core.acknowledgement import LATE_AFTER_S, Place, standing
from allotment.core.quantities import natural
from allotment.core.state import ENDED, ClusterState
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys, vgpu

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 10.0
GONE = (404, 409)
"""The pod is not there any more, or another one has its name."""
HOLDS_MAX = 3
"""How often others wait until a pod's record is erased: its owner can write it anew for ever."""
PASSED_AFTER_S = 5.0
"""When all that a kubelet admits before a deleted pod are through, so long after it is past it."""


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Pod(msgspec.Struct):
    metadata: _Meta


_decode_pod = msgspec.json.Decoder(_Pod).decode


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
        self.pods: dict[str, frozenset[Place]] = {}
        self.given_up: dict[str, None] = {}
        """Pods whose records are still to be erased although nobody waits for it."""
        self._marked: set[str] = set()
        self._version: dict[str, int] = {}
        """The version of each pod whose record was erased: what is older tells nothing new."""
        self._times: Counter[str] = Counter()

    def begin(self, state: ClusterState) -> None:
        self.pods.clear()
        self.given_up.clear()
        for uid in state.pods:
            self.look(state, uid)

    def look(self, state: ClusterState, uid: str, decided: Place | None = None) -> None:
        """Take note of a pod as the log shows it now.

        `decided` is where its plugin had to serve it until now: what its annotations say now may
        be its owner's.
        """
        pod = state.pods.get(uid)
        if pod is None:
            self._forget(uid)
            return
        place = standing(pod.fact)
        if place is None or pod.fact.rv <= self._version.get(uid, -1):
            self.pods.pop(uid, None)
        else:
            places = {place} if decided is None else {place, decided}
            self.pods[uid] = self.pods.get(uid, frozenset()) | places
        if uid not in self._marked and given_up(state, pod.fact):
            self.given_up[uid] = None

    def _forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.given_up.pop(uid, None)
        self._marked.discard(uid)
        self._version.pop(uid, None)
        del self._times[uid]

    def erased(self, state: ClusterState, uid: str, version: int) -> None:
        """The record of a pod is erased: what its annotations say at that version is ours."""
        self.pods.pop(uid, None)
        self.given_up.pop(uid, None)
        pod = state.pods.get(uid)
        if pod is not None:
            self._times[uid] += 1
            self._version[uid] = version
            if _mark_of(pod.fact) == keys.PHASE_FAILED:
                self._marked.add(uid)

    def is_marked(self, uid: str) -> bool:
        """Whether we said that a pod has failed."""
        return uid in self._marked

    def places(self) -> frozenset[Place]:
        held = (places for uid, places in self.pods.items() if self._times[uid] < HOLDS_MAX)
        return frozenset(place for places in held for place in places)


class _Hold(msgspec.Struct):
    place: Place
    ahead: frozenset[str]
    until_s: float
    is_next: bool = False


class Deleted:
    """Places of pods that were deleted before their turn, until their kubelets are past them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._holds: list[_Hold] = []

    def hold(self, place: Place, ahead: frozenset[str]) -> None:
        """A pod is gone that a plugin had still to serve, after those `ahead` of it."""
        self._holds.append(_Hold(place, ahead, self._clock() + LATE_AFTER_S))

    def places(self, is_served: Callable[[str], bool]) -> frozenset[Place]:
        """`is_served` tells of a pod whether its plugin still has to serve it."""
        now_s = self._clock()
        for hold in self._holds:
            if not hold.is_next and not any(map(is_served, hold.ahead)):
                hold.is_next, hold.until_s = True, min(hold.until_s, now_s + PASSED_AFTER_S)
        self._holds = [hold for hold in self._holds if hold.until_s > now_s]
        return frozenset(hold.place for hold in self._holds)

    def left_s(self) -> float:
        """How long until a place is free, if nothing happens before."""
        ends = (hold.until_s for hold in self._holds)
        return max(min(ends, default=float("inf")) - self._clock(), 0.0)


async def erase(client: KubeClient, fact: PodObserved, on_problem: Callable[[str], None]) -> int:
    """Make the plugin pass over a pod's record; tries until that is done or the pod is gone.

    Returns the version of the pod that has no record any more, 0 if there is none.
    """
    path = pod_path(fact.namespace, fact.name, "status")
    annotations = {keys.DEVICES_TO_ALLOCATE: "", keys.BIND_PHASE: _mark_of(fact)}
    body = {"metadata": {"uid": fact.uid, "annotations": annotations}}
    wait_s = RETRY_FIRST_S
    while True:
        answer = await client.patch(path, body, MERGE_PATCH)
        if isinstance(answer, Ok):
            return _version_in(answer.body)
        if isinstance(answer, Refused) and answer.status in GONE:
            return 0
        on_problem(answer.message)
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)


def _mark_of(fact: PodObserved) -> str:
    """What is true of a pod whose record is erased: a pod that runs has not failed."""
    has_failed = fact.phase in ENDED or fact.bind_phase == keys.PHASE_FAILED
    return keys.PHASE_FAILED if has_failed else keys.PHASE_SUCCESS


def _version_in(body: bytes) -> int:
    try:
        text = _decode_pod(body).metadata.resource_version
    except UNREADABLE:
        return 0
    return natural(text) or 0
