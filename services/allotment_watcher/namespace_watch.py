"""Follows namespaces: each can name the queue of the pods in it that name none.

They are listed before the first pod is reported, and a pod whose namespace is not known yet is
reported once it is, so that none is placed in another queue than its PodGroup will have.
"""

from collections.abc import Callable

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.watch_events import (
    Added,
    Deleted,
    Modified,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.service.service import ServiceContext
from allotment.core.jobs.groups import queue_name
from allotment_watcher.objects import NamespaceObject
from allotment_watcher.settings import WatcherSettings

NAMESPACES = "/api/v1/namespaces"
READY = "namespaces"
"""The readiness condition: it is known which queues namespaces name."""
REMEDY = "apply deploy/base/rbac.yaml if the watcher has no right to list and watch them"


class NamespaceWatch:
    """One turn's watch. `settled` is set once all were listed; `changed` hears the name of each
    that is new, or names another queue than before.
    """

    def __init__(
        self, ctx: ServiceContext[WatcherSettings], changed: Callable[[str], None]
    ) -> None:
        self.settled = anyio.Event()
        self._ctx = ctx
        self._changed = changed
        self._queues: dict[str, str] = {}
        """By name; empty where a namespace names none."""

    def queue_of(self, name: str) -> str | None:
        """The queue that a namespace names, empty without one; None while it is not known."""
        return self._queues.get(name)

    async def run(self, client: kube.KubeClient) -> None:
        await KindWatch(
            NAMESPACES,
            NamespaceObject,
            self.on_event,
            self._ctx.refusals,
            on_problem=self._on_problem,
            warn=lambda text: self._ctx.log.warning(
                "watch interrupted", reason=text, remedy=REMEDY
            ),
        ).run(client)

    async def on_event(self, event: WatchEvent[NamespaceObject]) -> None:
        match event:
            case Added(identity=identity) | Modified(identity=identity):
                annotations = event.object.metadata.annotations or {}
                self._see(identity.name, queue_name(annotations))
            case Deleted(identity=identity):
                self._queues.pop(identity.name, None)
            case Undecodable(name=name):  # it is there, as it was last read
                self._see(name, self._queues.get(name, ""))
            case Synced():
                self._ctx.ready(READY, True, f"listed, {event.objects} at that time")
                self.settled.set()

    def _see(self, name: str, queue: str) -> None:
        if self._queues.get(name) != queue:
            self._queues[name] = queue
            self._changed(name)

    def _on_problem(self, text: str) -> None:
        if not self.settled.is_set():
            self._ctx.ready(READY, False, text)
