"""What the users of refused and bound pods see: PodScheduled=False and Events.

Notices never hold up a decision: they wait in a bounded queue of their own, the newest word about a
pod replaces an older one, and what the API server does not take after a few tries is counted. One
pod's notices go one after the other, and a refusal that is no longer true is not sent again.

An Event costs the API server as much as a Binding. So while Bindings are under way, or were a
moment ago, bound pods get theirs one by one, with pauses that are the longer the more the API
server has to do; the rest is caught up with afterwards.
"""

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import anyio

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.events import (
    SCHEDULER,
    create_event,
    pod_event,
    refuse_pod,
    unschedulable_patch,
)
from allotment.adapters.kube.result import Unknown
from allotment.core.jobs.keys import SCHEDULING
from allotment.core.queues import texts
from allotment.core.reasons import UNSCHEDULABLE
from allotment_binder.readers import Readers

WORKERS = 4
TRIES = 4
RETRY_S = 0.5
GIVE_WAY_TIMES = 3
"""While Bindings are under way an Event is followed by a pause so many times as long as it took."""
GIVE_WAY_S_MAX = 1.0
LULL_S = 0.05
"""So long after the last Binding another one may come: between two decisions, or when a device
plugin has served a pod for which others wait."""
EVENTS_WAITING_MAX = 20_000


class Refused(NamedTuple):
    """The notice that a pod does not fit. `is_news`: with an Event besides the condition.

    `nominated` is the node that it waits for; empty takes that back, None leaves it as it is.
    """

    uid: str
    namespace: str
    name: str
    message: str
    is_news: bool
    reason: str = UNSCHEDULABLE
    nominated: str | None = None


class Scheduled(NamedTuple):
    """Tell that a pod was bound."""

    uid: str
    namespace: str
    name: str
    node: str


class Warned(NamedTuple):
    """Tell that something about a pod, a PodGroup or a Queue is not as it should be.

    A Queue has no namespace.
    """

    uid: str
    namespace: str
    name: str
    reason: str
    action: str
    message: str
    kind: str = "Pod"


Notice = Refused | Scheduled | Warned


class Notices:
    """The queue and its workers. `lost` counts notices that were given up."""

    def __init__(self, client: KubeClient, instance: str, readers: Readers) -> None:
        self.sent = 0
        self.lost = 0
        self._client = client
        self._instance = instance
        self._readers = readers
        self._refused: dict[str, Refused] = {}
        self._warned: dict[str, Warned] = {}
        self._scheduled: dict[str, Scheduled] = {}
        self._sending: dict[str, Notice] = {}
        self._bindings = 0
        self._bound_s = -math.inf
        """When the last Binding ended."""
        self._stirred = anyio.Event()
        self._is_telling = False
        """Whether the worker that Bindings do not stop has something to do, or pauses after it."""

    def put(self, notice: Notice) -> None:
        """Queue a notice. Refusals always find room; mere events do not beyond the limit."""
        if not isinstance(notice, Scheduled):
            message = self._readers.text(notice.namespace, notice.message)
            notice = notice._replace(message=message)
        if isinstance(notice, Refused):
            self._scheduled.pop(notice.uid, None)
            self._refused[notice.uid] = notice
        elif self._waiting() >= EVENTS_WAITING_MAX:
            self.lost += 1
            return
        elif isinstance(notice, Warned):
            self._warned[notice.uid] = notice
        else:
            self._refused.pop(notice.uid, None)
            self._scheduled[notice.uid] = notice
            if self._is_telling and self.is_binding():
                return  # no other may take it: waking all after every Binding is useless
        self._stirred.set()

    def _waiting(self) -> int:
        return len(self._refused) + len(self._warned) + len(self._scheduled)

    def withdraw(self, uid: str) -> None:
        """Forget a refusal that is no longer true."""
        self._refused.pop(uid, None)
        if isinstance(self._sending.get(uid), Refused):
            del self._sending[uid]

    def is_binding(self) -> bool:
        """Whether Bindings are under way, or were a moment ago."""
        return self._lull_left_s() > 0

    def _lull_left_s(self) -> float:
        """How long Events give way from now on, if nothing else is bound."""
        since_s = 0.0 if self._bindings else anyio.current_time() - self._bound_s
        return LULL_S - since_s

    @contextmanager
    def binding(self) -> Iterator[None]:
        """A Binding is under way for the length of the block: it goes first."""
        self._bindings += 1
        try:
            yield
        finally:
            self._bindings -= 1
            if not self._bindings:
                self._bound_s = anyio.current_time()
                self._stirred.set()

    @contextmanager
    def not_binding(self) -> Iterator[None]:
        """Inside `binding`: for the length of the block nothing is sent, it waits."""
        self._bindings -= 1
        if not self._bindings:
            self._stirred.set()
        try:
            yield
        finally:
            self._bindings += 1

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            for number in range(WORKERS):
                group.start_soon(self._work, number == 0)

    def _next(self, always: bool) -> Notice | None:
        """The next notice for a worker; what is bad first. `always`: Bindings do not stop it."""
        queues: list[dict[str, Refused] | dict[str, Warned] | dict[str, Scheduled]] = [
            self._refused,
            self._warned,
        ]
        if always or not self.is_binding():
            queues.append(self._scheduled)
        for queue in queues:
            for uid in queue:
                if uid not in self._sending:
                    return queue.pop(uid)
        return None

    async def _work(self, always: bool) -> None:
        while True:
            notice = self._next(always)
            if always:
                self._is_telling = notice is not None
            if notice is None:
                if self._stirred.is_set():
                    self._stirred = anyio.Event()
                left_s = self._lull_left_s()  # its end wakes no waiting pod
                with anyio.move_on_after(None if self._bindings or left_s <= 0 else left_s):
                    await self._stirred.wait()
                continue
            uid = notice.uid
            self._sending[uid] = notice
            begun_s = anyio.current_time()
            try:
                done = await self._send(notice)
            finally:
                if self._sending.get(uid) is notice:
                    del self._sending[uid]
                self._stirred.set()
            self.sent += done
            self.lost += not done
            if self.is_binding() and isinstance(notice, Scheduled):
                took_s = anyio.current_time() - begun_s
                await anyio.sleep(min(GIVE_WAY_TIMES * took_s, GIVE_WAY_S_MAX))

    async def _send(self, notice: Notice) -> bool:
        """Whether the API server took it."""
        match notice:
            case Refused():
                return await self._refuse(notice)
            case Warned():
                return await self._event(
                    notice, "Warning", notice.reason, notice.action, notice.message
                )
            case Scheduled():
                return await self._tell(notice)

    async def _refuse(self, notice: Refused) -> bool:
        patch = unschedulable_patch(
            notice.uid, notice.reason, notice.message, time.time_ns() if notice.is_news else None
        )
        if notice.nominated is not None:
            patch["status"]["nominatedNodeName"] = notice.nominated or None
        for attempt in range(TRIES):
            answer = await refuse_pod(self._client, notice.namespace, notice.name, patch)
            if not isinstance(answer, Unknown):
                break
            await anyio.sleep(RETRY_S * (attempt + 1))
            if self._sending.get(notice.uid) is not notice:
                return True  # withdrawn meanwhile
        else:
            return False
        if notice.is_news:
            return await self._event(
                notice, "Warning", "FailedScheduling", "Scheduling", notice.message
            )
        return True

    async def _tell(self, notice: Scheduled) -> bool:
        note = texts.assigned(notice.namespace, notice.name, notice.node)
        return await self._event(notice, "Normal", "Scheduled", "Binding", note)

    async def _event(self, notice: Notice, kind: str, reason: str, action: str, note: str) -> bool:
        event = pod_event(
            namespace=notice.namespace or "default",
            pod=notice.name,
            uid=notice.uid,
            kind="Warning" if kind == "Warning" else "Normal",
            reason=reason,
            action=action,
            note=note,
            time_ns=time.time_ns(),
            unique=secrets.randbits(64),
            controller=SCHEDULER,
            instance=self._instance,
        )
        if isinstance(notice, Warned) and notice.kind != "Pod":
            event["regarding"] |= {"apiVersion": SCHEDULING, "kind": notice.kind}
            if not notice.namespace:
                del event["regarding"]["namespace"]
        return not isinstance(await create_event(self._client, event), Unknown)
