"""One active life of the controller: what is watched, and which work each event asks for."""

import secrets
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import anyio

from allotment.adapters.kube.client import KubeClient
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
from allotment.core.jobs import keys
from allotment.core.jobs.groups import queue_name
from allotment.core.jobs.model import Command, Job, Meta, Notice, PodGroup, Queue
from allotment_controller import objects
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.jobs import Jobs
from allotment_controller.objects import (
    PartialObject,
    PodObject,
    PriorityClass,
    is_of_interest,
    kept,
)
from allotment_controller.pod_groups import PodGroups
from allotment_controller.queues import COMMAND, FIRST_QUEUES, Queues, enqueue_waiting
from allotment_controller.reporting import EventReporter
from allotment_controller.settings import ControllerSettings
from allotment_controller.state import GROUP, JOB, POD, QUEUE, ControllerContext, Known, WorkKey
from allotment_controller.work import Again, Work

ERROR_CHARS_MAX = 300
ABSENT_RETRY_S = 5.0
"""How often to look whether a resource that the server does not know was installed."""

Context = ServiceContext[ControllerSettings]
T = TypeVar("T")
REPORTED_KINDS = {
    objects.JOBS: (keys.BATCH, "Job"),
    objects.GROUPS: (keys.SCHEDULING, "PodGroup"),
    objects.QUEUES: (keys.SCHEDULING, "Queue"),
    objects.COMMANDS: (keys.BUS, "Command"),
}
"""Kinds on which an Event says that an object cannot be read."""


class Controller:
    """See the module. Create one for each life: what an earlier one knew may be outdated."""

    def __init__(self, ctx: Context, client: KubeClient, metrics: JobMetrics) -> None:
        self.ctx = ctx
        self.known = Known()
        self.work: Work[WorkKey] = Work(
            Random(secrets.randbits(64)), self._failed, lambda key: key[1]
        )
        self.reporter = EventReporter(client, ctx.settings.instance)
        random = Random(secrets.randbits(64))
        self.context = ControllerContext(
            client, ctx.settings, self.known, self.work, self.reporter, random
        )
        self.jobs = Jobs(self.context, metrics)
        self.groups = PodGroups(self.context)
        self.queues = Queues(self.context, self.jobs)
        self._client = client
        self._watches: tuple[KindWatch[Any], ...] = (
            self._watch(objects.QUEUES, Queue, self.on_queue),
            self._watch(objects.PRIORITY_CLASSES, PriorityClass, self.on_priority_class),
            self._watch(objects.NAMESPACES, PartialObject, self.on_namespace),
            self._watch(objects.GROUPS, PodGroup, self.on_group),
            self._watch(objects.PODS, PodObject, self.on_pod),
            self._watch(objects.JOBS, Job, self.on_job),
            self._watch(objects.COMMANDS, Command, self.on_command),
        )
        self._listed = anyio.Event()
        self._admits: dict[str, tuple[str, str]] = {}
        """By queue, as the watch reported it: our own writes are in `known` before that."""

    async def run(self) -> None:
        """Watch and work until cancelled. Nothing is done before everything was listed."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.reporter.run)
            for watch in self._watches:
                group.start_soon(watch.run, self._client)
            await self._listed.wait()
            self.ctx.ready("objects", True, "everything is listed")
            self.queues.make_first_queues()
            await self.work.run(self._do, self.ctx.settings.job_workers)

    async def _do(self, key: WorkKey) -> None:
        kind, namespace, name = key
        if kind == JOB:
            await self.jobs.work(namespace, name)
        elif kind == GROUP:
            await self.groups.work_group(namespace, name)
        elif kind == POD:
            await self.groups.work_pod(namespace, name)
        elif kind == QUEUE:
            await self.queues.work_queue(name)
        elif kind == COMMAND:
            await self.queues.work_command(namespace, name)
        else:
            assert kind == FIRST_QUEUES, kind
            await self.queues.work_first_queues()

    def _failed(self, key: WorkKey, why: Exception) -> None:
        kind, namespace, name = key
        place = {"kind": kind, "namespace": namespace, "name": name}
        if isinstance(why, Again):
            self.ctx.log.info("will be retried", **place, reason=str(why))
        else:
            self.ctx.log.error("defect; the object is left for a while", error=why, **place)

    # What is reported

    async def on_queue(self, event: WatchEvent[Queue]) -> None:
        match event:
            case Added() | Modified():
                name = event.identity.name
                self.known.queues.observe(event.object)
                self.context.enqueue_queue(name)
                before, after = self._admits.get(name), _admits(event.object)
                self._admits[name] = after
                if before == after:
                    return  # schedulers write what is allocated every second
            case Deleted():
                self._admits.pop(event.identity.name, None)
                self.known.queues.forget("", event.identity.name, event.identity.uid)
                self.queues.make_first_queues()
            case _:
                return
        if self._listed.is_set():
            enqueue_waiting(self.context)

    async def on_priority_class(self, event: WatchEvent[PriorityClass]) -> None:
        match event:
            case Added() | Modified():
                self.known.classes.observe(event.object)
            case Deleted():
                self.known.classes.forget("", event.identity.name, event.identity.uid)
            case _:
                pass

    async def on_namespace(self, event: WatchEvent[PartialObject]) -> None:
        match event:
            case Added() | Modified():
                before = self.known.namespaces.get("", event.identity.name)
                if not self.known.namespaces.observe(event.object):
                    return
                queue = queue_name(event.object.metadata.annotations or {})
                if before is None or queue_name(before.metadata.annotations or {}) != queue:
                    self.groups.on_namespace(event.identity.name)
            case Deleted():
                self.known.namespaces.forget("", event.identity.name, event.identity.uid)
            case _:
                pass

    async def on_group(self, event: WatchEvent[PodGroup]) -> None:
        match event:
            case Added() | Modified():
                self.known.groups.observe(event.object)
                self.groups.on_group(event.object)
                group: PodGroup | None = event.object
            case Deleted(identity=who):
                group = self.known.groups.forget(who.namespace, who.name, who.uid)
            case _:
                return
        if group is None:
            return
        namespace = group.metadata.namespace
        self.context.enqueue_group(namespace, group.metadata.name)
        self.context.enqueue_queue(group.spec.queue or keys.DEFAULT_QUEUE)
        for owner in group.metadata.owner_references or ():
            if (owner.api_version, owner.kind) == (keys.BATCH, "Job"):
                self.context.enqueue_job(namespace, owner.name)

    async def on_pod(self, event: WatchEvent[PodObject]) -> None:
        match event:
            case Added() | Modified():
                self.groups.on_pod(event.object)
                if not is_of_interest(event.object.metadata):
                    return
                pod = kept(event.object)
                self.known.observe_pod(pod)
            case Deleted(identity=who):
                self.groups.on_pod_gone(who.namespace, who.name)
                gone = self.known.forget_pod(who.namespace, who.name, who.uid)
                if gone is None:
                    return
                pod = gone
                if pod.job_uid:
                    self.jobs.on_pod_gone(pod)
            case _:
                return
        namespace = pod.metadata.namespace
        if pod.job_uid:
            siblings = self.known.count_of_job(pod.job_uid)
            self.context.enqueue_job(namespace, pod.job_name, siblings)
        if pod.group:
            self.context.enqueue_group(namespace, pod.group)

    async def on_job(self, event: WatchEvent[Job]) -> None:
        match event:
            case Added() | Modified():
                self.known.jobs.observe(event.object)
                self.jobs.on_job(event.object)
            case Deleted(identity=who):
                self.known.jobs.forget(who.namespace, who.name, who.uid)
                self.jobs.on_job_gone(who.uid)
            case _:
                pass

    async def on_command(self, event: WatchEvent[Command]) -> None:
        match event:
            case Added() | Modified():
                self.queues.on_command(event.object)
            case Deleted(identity=who):
                self.queues.on_command_gone(who.namespace, who.name)
            case _:
                pass

    # Watching

    def _report_unreadable(self, path: str, event: Undecodable) -> None:
        """An Event on the object itself, where its author looks. Pods have their scheduler's
        word for it.
        """
        if path not in REPORTED_KINDS or not event.name:
            return
        reason = "InvalidJob" if path == objects.JOBS else "UnreadableObject"
        about = Meta(event.name, event.namespace, event.uid)
        text = f"it cannot be read, so it is ignored: {event.error[:ERROR_CHARS_MAX]}"
        self.reporter.report(*REPORTED_KINDS[path], about, Notice("Warning", reason, text))

    def _watch(
        self, path: str, kind: type[T], on_event: Callable[[WatchEvent[T]], Awaitable[None]]
    ) -> KindWatch[T]:
        async def take(event: WatchEvent[T]) -> None:
            if isinstance(event, Undecodable):
                self._report_unreadable(path, event)
            await on_event(event)
            if isinstance(event, Synced) and all(watch.is_listed for watch in self._watches):
                self._listed.set()

        return KindWatch(
            path,
            kind,
            take,
            self.ctx.refusals,
            on_problem=lambda text: self.ctx.log.warning("watch interrupted", reason=text),
            absent_ok=True,
            absent_retry_s=ABSENT_RETRY_S,
        )


def _admits(queue: Queue) -> tuple[str, str]:
    """What of a queue decides who may enter it."""
    return queue.status.state, queue.spec.parent
