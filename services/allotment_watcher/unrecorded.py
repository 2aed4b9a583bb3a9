"""Tells the owners of waiting pods that the log takes no records.

Why a pod waits follows from a decision, and the binder reports it. Without room in the log there is
no decision, and a new pod is not even recorded, so its owner would learn nothing. The watcher knows
both: the pods, and that its records are refused. It writes to pods that have no PodScheduled
condition, and takes its own condition back once the pod is recorded: the binder's word is never
overwritten, and nothing has to be remembered over a restart.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.events import (
    SCHEDULER,
    create_event,
    pod_event,
    refuse_pod,
    unschedulable_patch,
    withdrawing_patch,
)
from allotment.adapters.kube.result import Ok
from allotment.adapters.kube.wire import Unreadable, read_leniently, read_page
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import LOG_SPACE, NATS_WRITES, World
from allotment.core.units import bytes_text
from allotment_watcher.objects import Meta
from allotment_watcher.settings import WatcherSettings

PODS = "/api/v1/pods"
WAITING = {"fieldSelector": "spec.nodeName=,status.phase=Pending", "resourceVersion": "0"}
LOOK_S = 2.0
PODS_A_LOOK_MAX = 50
"""A look writes to so many pods at most, the rest follows: each costs the API server two writes."""
REASON = "SchedulerError"
"""Kubernetes' word for a scheduler that cannot work. `Unschedulable` would add nodes to a cluster
that is scaled by its pods."""
_OPENING = "The allocation log "
_ENDING = "No pod is scheduled until it has room again. Ask your platform team."

Context = ServiceContext[WatcherSettings]


class _Condition(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""


class WaitingPod(msgspec.Struct):
    """What there is to know about a pod that waits."""

    metadata: Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def scheduled(self) -> str | None:
        """The message of its PodScheduled condition; None without one."""
        conditions = self.status.conditions or ()
        return next((c.message for c in conditions if c.type == "PodScheduled"), None)


class Unrecorded:
    """Tells pods while the log takes no records, and takes it back afterwards."""

    def __init__(self, ctx: Context, world: World, client: KubeClient) -> None:
        self._ctx = ctx
        self._world = world
        self._client = client
        self._said = ""
        self._may_be_left = True
        """Whether pods may have such a condition, from this process or one before it."""

    async def run(self) -> None:
        """Look at the log, for ever."""
        while True:
            await anyio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Write to the pods that it concerns now."""
        if trouble := self._trouble():
            self._may_be_left = True
            await self._some(lambda pod: pod.scheduled is None, self._tell, trouble)
        elif self._may_be_left and self._world.lease.is_held:
            self._may_be_left = await self._some(self._is_outdated, self._withdraw, "")

    def _trouble(self) -> str:
        """Why the log takes no records, for people who cannot mend it; empty while it does."""
        reasons, log = self._ctx.readiness.reasons(), self._world.log
        if LOG_SPACE in reasons:
            most = f" of {bytes_text(log.bytes_limit)}" if log.bytes_limit else ""
            return f"{_OPENING}is full ({bytes_text(log.bytes)}{most}). {_ENDING}"
        if NATS_WRITES in reasons:
            return f"{_OPENING}cannot be written, as with a full disk. {_ENDING}"
        return ""

    def _is_outdated(self, pod: WaitingPod) -> bool:
        return (pod.scheduled or "").startswith(_OPENING)

    async def _some(
        self,
        concerns: Callable[[WaitingPod], bool],
        write: Callable[[WaitingPod, str], Awaitable[None]],
        text: str,
    ) -> bool:
        """Write to some of the pods that it concerns; whether there were any, or may be."""
        answer = await self._client.list(PODS, WAITING)
        try:
            pods = list(self._ours(answer.body)) if isinstance(answer, Ok) else None
        except Unreadable:
            pods = None
        if pods is None:
            self._report(
                "waiting pods cannot be listed",
                "no list came" if isinstance(answer, Ok) else answer.message,
            )
            return True
        concerned = [pod for pod in pods if concerns(pod)]
        for pod in concerned[:PODS_A_LOOK_MAX]:
            await write(pod, text)
        return bool(concerned)

    def _ours(self, body: bytes) -> Iterator[WaitingPod]:
        names = self._ctx.settings.scheduler_names
        for item in read_page(body).items or ():
            pod: WaitingPod | None = read_leniently(item, WaitingPod)
            if pod is None or pod.metadata.deletion_timestamp:
                continue
            if pod.spec.scheduler_name in names:
                yield pod

    async def _tell(self, pod: WaitingPod, text: str) -> None:
        meta, now_ns = pod.metadata, time.time_ns()
        patch = unschedulable_patch(meta.uid, REASON, text, now_ns)
        patch["metadata"]["resourceVersion"] = meta.resource_version  # no other service said more
        answer = await refuse_pod(self._client, meta.namespace, meta.name, patch)
        if not isinstance(answer, Ok):
            self._report(
                "the status of a waiting pod could not be written",
                answer.message,
            )
            return
        event = pod_event(
            namespace=meta.namespace,
            pod=meta.name,
            uid=meta.uid,
            kind="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=text,
            time_ns=now_ns,
            unique=_number_of(meta.uid),
            controller=SCHEDULER,
            instance=self._ctx.settings.instance,
        )
        await create_event(self._client, event)

    async def _withdraw(self, pod: WaitingPod, _: str) -> None:
        meta = pod.metadata
        if meta.uid in self._world.fold.state.pods:
            patch = withdrawing_patch(meta.uid, meta.resource_version)
            await refuse_pod(self._client, meta.namespace, meta.name, patch)

    def _report(self, what: str, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._ctx.log.warning(what, reason=reason)


def _number_of(uid: str) -> int:
    """The same for the same pod: a second Event about it has the first one's name and is refused,
    whichever replica sends it.
    """
    return int.from_bytes(hashlib.sha256(f"log {uid}".encode()).digest()[:8])
