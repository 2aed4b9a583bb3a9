"""Events about Jobs, PodGroups and Queues. They never delay what they report.

The same warning about the same object is reported once: a state that stays is no news. What was
done is reported each time.
"""

import secrets
import time
from collections import deque
from typing import Never

import anyio

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.events import create_event, pod_event
from allotment.adapters.kube.result import Unknown
from allotment.core.jobs import keys
from allotment.core.jobs.model import JsonObject, Meta, Notice

CONTROLLER = "allotment.dev/controller"
WAITING_MAX = 10_000
REMEMBERED_MAX = 20_000
TRIES = 3
RETRY_S = 1.0


class EventReporter:
    """A bounded queue of Events and the task that sends them. `lost` counts those given up."""

    def __init__(self, client: KubeClient, instance: str) -> None:
        self.lost = 0
        self._client = client
        self._instance = instance
        self._said: dict[tuple[str, str], str] = {}
        self._waiting: deque[JsonObject] = deque()
        self._stirred = anyio.Event()

    def report(self, api_version: str, kind: str, about: Meta, notice: Notice) -> None:
        """Queue an Event, unless it is a warning and the last one of its reason said the same."""
        if notice.kind == "Warning" and not self._is_news(about.uid, notice):
            return
        if len(self._waiting) >= WAITING_MAX:
            self.lost += 1
            return
        event = pod_event(
            namespace=about.namespace or "default",
            pod=about.name,
            uid=about.uid,
            kind="Warning" if notice.kind == "Warning" else "Normal",
            reason=notice.reason,
            action="Syncing",
            note=notice.message,
            time_ns=time.time_ns(),
            unique=secrets.randbits(64),
            controller=CONTROLLER,
            instance=self._instance,
        )
        regarding = {"apiVersion": api_version, "kind": kind}
        event["regarding"] = {**event["regarding"], **regarding}
        if not about.namespace:
            del event["regarding"]["namespace"]
        self._waiting.append(event)
        self._stirred.set()

    def _is_news(self, uid: str, notice: Notice) -> bool:
        place = (uid, notice.reason)
        if self._said.pop(place, None) == notice.message:
            self._said[place] = notice.message
            return False
        self._said[place] = notice.message
        if len(self._said) > REMEMBERED_MAX:
            del self._said[next(iter(self._said))]
        return True

    def job(self, about: Meta, *notices: Notice) -> None:
        for notice in notices:
            self.report(keys.BATCH, "Job", about, notice)

    def queue(self, about: Meta, notice: Notice) -> None:
        self.report(keys.SCHEDULING, "Queue", about, notice)

    async def run(self) -> Never:
        """Send what is queued, one after the other, for ever."""
        while True:
            while self._waiting:
                await self._send(self._waiting.popleft())
            self._stirred = anyio.Event()
            await self._stirred.wait()

    async def _send(self, event: JsonObject) -> None:
        for attempt in range(TRIES):
            if not isinstance(await create_event(self._client, event), Unknown):
                return
            await anyio.sleep(RETRY_S * (attempt + 1))
        self.lost += 1
