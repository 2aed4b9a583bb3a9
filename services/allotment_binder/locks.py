"""Node locks for device plugins of the older protocol (`deviceshare.NodeLockEnable`).

Such a plugin serves the oldest pod of its node whatever it is asked, so there may be one at a time
on the node. The lock is an annotation on the node: the scheduler that binds writes the time there,
the plugin deletes it when it is done with the pod. It is written by compare-and-set on the node's
resourceVersion, so that of two binders one gets it, and only for a pod that is just being bound.
While another scheduler holds it the pod waits; after five minutes it is taken over. It is given
back here when the pod was not bound, ended, is gone, or was acknowledged by a plugin that left it.

A second annotation names the holder (`holder_key`: the lock's value and the reservation). That
makes taking it repeatable after an answer that was lost, lets a new binder find the locks of the
one before, and protects the locks of others from being deleted. It goes with the lock; where the
plugin deleted that, or another scheduler has the lock now, it is removed alone. What a binder that
died left of it goes with the next pod of the node.

The handshake annotation (`volcano.sh/node-vgpu-handshake`) is not answered. Plugins up to v1.12
write it every 30 s and never read it; it was how schedulers noticed a plugin that had died. Here
that is seen from `status.allocatable`, which kubelet drives to 0 for plugins of either generation.
An answer would be a useless write to every node every 30 s, and would change what an older
Volcano in the same cluster concludes from the annotation.
"""

import time
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import quote

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.objects import AnnotatedObject
from allotment.adapters.kube.result import KubeResult, Ok, Refused, Unknown
from allotment.core import reasons
from allotment.core.ledger.model import ENDED, Allocation, ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.reasons import problem_text
from allotment_binder.bindings import Obstacle, Target
from allotment_proto.codec import UNREADABLE
from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import keys, node_lock

POLL_FIRST_S = 0.2
POLL_MAX_S = 2.0
TOLD_AFTER_S = 30.0
PLUGIN_DELETES_WITHIN_S = 2.0
"""How long after it marked a pod the plugin may take to delete the lock by itself."""
GIVE_UP_AFTER_S = float(node_lock.EXPIRES_AFTER_S)
"""A lock that cannot be given back for so long may be taken over by anybody anyway."""


_decode_node = msgspec.json.Decoder(AnnotatedObject).decode


def lock_keys(holdings: Collection[Holding]) -> tuple[str, ...]:
    """The locks that a pod with these holdings is bound under, in the order of taking them."""
    found = {FAMILIES[h.family].lock_key(h) for h in holdings if h.family in FAMILIES}
    return tuple(sorted(found - {""}))


def holder_key(lock_key: str) -> str:
    """The annotation that says for which pod a lock was taken."""
    return f"allotment.dev/lock-{lock_key.rpartition('/')[2]}"


class Held(NamedTuple):
    """The locks of one reservation, which it has or may have."""

    node: str
    keys: tuple[str, ...]
    uid: str
    seq: int

    @classmethod
    def of(cls, allocation: Allocation) -> "Held":
        keys = lock_keys(allocation.holdings)
        return cls(allocation.node, keys, allocation.uid, allocation.seq)

    def mark(self, stamp: str) -> str:
        """What `holder_key` says of a lock that was taken for it."""
        return f"{stamp} {self.uid}/{self.seq}"


class NodeLocks:
    """The locks of one binder. `held` is what pods have, or may have, by their uid."""

    def __init__(
        self, client: KubeClient, on_problem: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self.held: dict[str, Held] = {}
        self._client = client
        self._on_problem = on_problem
        self._clock = clock
        self._due: dict[str, float] = {}

    def begin(self, state: ClusterState) -> None:
        """Take over the locks of an earlier life, as far as there are any."""
        self.held.clear()
        self._due.clear()
        if not state.policy.node_lock:
            return
        for uid, pod in state.pods.items():
            held = pod.allocation
            if held is not None and held.seq and not held.acknowledged:
                locks = Held.of(held)
                if locks.keys:
                    self.held[uid] = locks

    def look(self, state: ClusterState, uid: str) -> None:
        """Take note of a pod as the log shows it now: whether its locks are due to be released."""
        if uid not in self.held:
            return
        pod = state.pods.get(uid)
        if pod is None or pod.fact.phase in ENDED or pod.fact.bind_phase == keys.PHASE_FAILED:
            self._due[uid] = 0.0
        elif pod.allocation is not None and pod.allocation.acknowledged:
            self._due.setdefault(uid, PLUGIN_DELETES_WITHIN_S)

    def due(self) -> list[tuple[Held, float]]:
        """What is to be released now, each with how long to wait before. Told once."""
        due, self._due = self._due, {}
        return [(self.held[uid], wait_s) for uid, wait_s in due.items() if uid in self.held]

    async def take(
        self,
        target: Target,
        is_wanted: Callable[[], bool],
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Obstacle | None:
        """Take what the pod needs, waiting as long as `is_wanted`. An obstacle: it cannot be had.

        What was taken before an obstacle stays until `release`. `on_wait` hears once per lock that
        it has been waited for long.
        """
        held = Held.of(target.allocation)
        for key in held.keys:
            obstacle = await self._take(held, key, is_wanted, on_wait)
            self.held[held.uid] = held  # also if not: an answer may have been lost
            if obstacle is not None:
                return obstacle
        return None

    async def _take(
        self, held: Held, key: str, is_wanted: Callable[[], bool], on_wait: Callable[[str], None]
    ) -> Obstacle | None:
        what = f"lock {key} of node {held.node}"
        wait_s, since_s, is_told = POLL_FIRST_S, time.monotonic(), False
        while is_wanted():
            node = await self._read(held.node)
            answer: KubeResult | None = node if not isinstance(node, AnnotatedObject) else None
            if isinstance(node, AnnotatedObject):
                other = self._other(node, key, held)
                if isinstance(other, Problem):
                    return reasons.API_ERROR, problem_text(other)
                if other == "":
                    answer = await self._write(node, key, held)
                    if isinstance(answer, Ok):
                        return None
                elif other is None:
                    return None
                elif not is_told and time.monotonic() - since_s > TOLD_AFTER_S:
                    is_told = True
                    on_wait(f"waits for {what}, which {other}")
            if isinstance(answer, Refused) and answer.status == 404:
                return reasons.NODE_NOT_READY, f"node {held.node} is gone"
            if isinstance(answer, Refused) and answer.status != 409:
                return reasons.API_ERROR, f"{what}: {answer.status} {answer.message}"
            if isinstance(answer, Unknown):
                self._on_problem(f"{what} cannot be taken, trying again: {answer.message}")
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, POLL_MAX_S)
        return reasons.STALE_LEDGER, f"the reservation ended while it waited for {what}"

    def _other(self, node: AnnotatedObject, key: str, held: Held) -> str | Problem | None:
        """The holder that is in the way, in words, which may be empty; None: the lock is ours."""
        annotations = node.metadata.annotations or {}
        text = annotations.get(key)
        if text is None:
            return ""
        lock = node_lock.parse_lock(text, f"node {held.node}, annotation {key}")
        if isinstance(lock, Problem):
            return lock
        if lock.is_expired(int(self._clock())):
            return ""
        if annotations.get(holder_key(key)) == held.mark(text):
            return None
        return f"is held since {text}" + (f" for {lock.pod}" if lock.pod else "")

    async def _write(self, node: AnnotatedObject, key: str, held: Held) -> KubeResult:
        stamp = node_lock.encode_lock(int(self._clock()))
        return await self._patch(held.node, node, {key: stamp, holder_key(key): held.mark(stamp)})

    async def release(self, held: Held, after_s: float = 0.0) -> None:
        """Give back what a reservation still has, and remove the mark that it had it; what
        another scheduler has by now stays.
        """
        await anyio.sleep(after_s)
        for key in held.keys:
            with anyio.move_on_after(GIVE_UP_AFTER_S):
                await self._release(held, key)
        if self.held.get(held.uid) == held:
            del self.held[held.uid]

    async def _release(self, held: Held, key: str) -> None:
        wait_s = POLL_FIRST_S
        while True:
            node = await self._read(held.node)
            if isinstance(node, AnnotatedObject):
                leftovers = _leftovers(node.metadata.annotations or {}, key, held)
                if not leftovers:
                    return
                answer = await self._patch(held.node, node, dict.fromkeys(leftovers))
            else:
                answer = node
            if isinstance(answer, Ok) or (isinstance(answer, Refused) and answer.status == 404):
                return
            if isinstance(answer, Unknown) or answer.status != 409:
                self._on_problem(
                    f"lock {key} of node {held.node} is not given back: {answer.message}"
                )
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, POLL_MAX_S)

    async def _read(self, name: str) -> AnnotatedObject | Refused | Unknown:
        """The node, or why it could not be read."""
        answer = await self._client.get(_path(name))
        if not isinstance(answer, Ok):
            return answer
        try:
            return _decode_node(answer.body)
        except UNREADABLE as error:
            return Unknown("server", f"the answer is not a node: {error}")

    async def _patch(
        self, name: str, node: AnnotatedObject, annotations: dict[str, str | None]
    ) -> KubeResult:
        """Write annotations if the node did not change since it was read (409 otherwise)."""
        metadata = {
            "resourceVersion": node.metadata.resource_version,
            "annotations": annotations,
        }
        return await self._client.patch(_path(name), {"metadata": metadata})


def _leftovers(annotations: dict[str, str], key: str, held: Held) -> tuple[str, ...]:
    """The annotations that are to go once a reservation is done with a lock.

    A mark that does not begin with the present lock proves nothing: both are always written at
    once.
    """
    lock, mark = annotations.get(key), annotations.get(holder_key(key))
    if mark is None:
        return ()
    if lock is None or not mark.startswith(f"{lock} "):
        return (holder_key(key),)
    return (key, holder_key(key)) if mark == held.mark(lock) else ()


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"
