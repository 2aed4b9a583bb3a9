"""PodGroups: made for pods that have none, admitted and kept in phase unless another controller is.

Admission here asks no quota: a PodGroup of an open queue may have its pods. Where a scheduler
enqueues by its queue plugins' votes, the controller runs with --no-admit and only reads phases.
"""

import anyio
import msgspec

from allotment.adapters.kube.client import pod_path
from allotment.adapters.kube.result import Ok, Refused
from allotment.core.jobs import groups, keys
from allotment.core.jobs.model import (
    GROUP_INQUEUE,
    GROUP_PENDING,
    JsonObject,
    Meta,
    Notice,
    PodGroup,
)
from allotment.core.queues.plugins import task_topology
from allotment_controller.backlog import Backlog
from allotment_controller.objects import NAMES, PartialObject, PodObject, members_of, path_of
from allotment_controller.state import POD, ControllerContext
from allotment_controller.work import Again
from allotment_controller.writes import EXISTS, create, delete, patch_object, patch_status
from allotment_proto.codec import UNREADABLE

OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")
"""Kinds of owners whose annotations are asked for; others hand nothing down."""


class PodGroups:
    """The part of the controller that keeps PodGroups."""

    def __init__(self, context: ControllerContext) -> None:
        self.made = 0
        self.admitted = 0
        self._context = context
        self._wanting: dict[tuple[str, str], PodObject] = {}
        self._alone: dict[tuple[str, str], PodObject] = {}
        """Lone pods that are to have none, until they have a node: their namespace may come to name
        a queue, and then they are to have one."""
        self._backlog = Backlog()

    # Pods that have none

    def on_pod(self, pod: PodObject) -> None:
        """Remember a pod that needs a PodGroup, until it has one."""
        metadata = pod.metadata
        place = (metadata.namespace, metadata.name)
        settings = self._context.settings
        if not settings.group_pods or not groups.is_wanting(metadata, pod.status.phase):
            self._forget(place)
            return
        glimpse = pod.glimpse()
        if (glimpse.scheduler_name or "") not in settings.scheduler_names:
            self._forget(place)
            return
        is_lone = self._is_lone(metadata)
        if is_lone and not settings.group_lone_pods:
            self._forget(place)
            if not glimpse.node_name:
                self._alone[place] = _of_lone(pod)
            return
        self._alone.pop(place, None)
        now_s = anyio.current_time()
        self._wanting[place] = pod
        if is_lone:
            self._backlog.observe(place, pod, glimpse, now_s)
        else:
            self._backlog.forget(place)
        self._context.work.add((POD, *place), self._backlog.delay_s(place, now_s))

    def _is_lone(self, pod: Meta) -> bool:
        namespace = self._context.known.namespaces.get("", pod.namespace)
        annotations = namespace.metadata.annotations if namespace else None
        return groups.is_lone(
            pod.annotations or {},
            pod.labels or {},
            is_owned=pod.controller() is not None,
            of_namespace=groups.queue_name(annotations or {}),
        )

    def on_namespace(self, name: str) -> None:
        """A namespace names another queue than before, or is new."""
        waiting = (*self._wanting.items(), *self._alone.items())
        for pod in [pod for (namespace, _), pod in waiting if namespace == name]:
            self.on_pod(pod)

    def on_pod_gone(self, namespace: str, name: str) -> None:
        self._forget((namespace, name))

    def _forget(self, place: tuple[str, str]) -> None:
        self._wanting.pop(place, None)
        self._alone.pop(place, None)
        self._backlog.forget(place)

    async def work_pod(self, namespace: str, name: str) -> None:
        """Make the PodGroup of one pod, unless its siblings have it, and tie the pod to it."""
        pod = self._wanting.get((namespace, name))
        if pod is None:
            return
        delay_s = self._backlog.delay_s((namespace, name), anyio.current_time())
        if delay_s:
            self._context.work.add((POD, namespace, name), delay_s)
            return
        group = groups.name_for_pod(pod.metadata)
        known = self._context.known.groups.get(namespace, group)
        if known is None or pod.metadata.controller() is not None:
            await self._make(pod, known)
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {keys.GROUP_NAME: group}}}
        answer = await self._context.client.patch(pod_path(namespace, name), body)
        if not isinstance(answer, Ok | Refused):
            raise Again(f"pod {name}: {answer.message}")
        if isinstance(answer, Refused) and answer.status in (404, 409):
            await self._unmake(pod.metadata, group)
        if self._wanting.get((namespace, name)) is pod:  # or another one of its name wants one now
            self._forget((namespace, name))

    async def _unmake(self, pod: Meta, name: str) -> None:
        """Take back the PodGroup of a pod that was gone before it was tied to it. Where pods share
        theirs by an owner, it is the owner's.
        """
        group = self._context.known.groups.get(pod.namespace, name)
        if pod.controller() is None and group is not None:
            await delete(self._context.client, keys.SCHEDULING, "PodGroup", group.metadata)

    async def _make(self, pod: PodObject, known: PodGroup | None) -> None:
        """Make the PodGroup of a pod, or bring the one that its siblings have in line with it, if
        its owner can be read: pods of other kinds of owners may differ from each other.
        """
        try:
            spec = pod.whole_spec()
        except UNREADABLE as error:
            raise Again(f"pod {pod.metadata.name}: its spec cannot be read: {error}") from error
        owner = await self._owner(pod.metadata)
        if owner is None and known is not None:
            return
        of_namespace = self._context.known.queue_of_namespace(pod.metadata.namespace)
        body = groups.for_pod(pod.metadata, spec, owner, of_namespace)
        if known is not None:
            if changes := groups.made_changes(known, body):
                changed = await patch_object(
                    self._context.client,
                    *(keys.SCHEDULING, "PodGroup", known.metadata),
                    changes,
                    PodGroup,
                )
                if changed is not None:
                    self._context.known.groups.observe(changed)
                    self._context.enqueue_group(known.metadata.namespace, known.metadata.name)
            return
        answer = await create(self._context.client, body)
        if isinstance(answer, Ok):
            self.made += 1
            made = msgspec.json.decode(answer.body, type=PodGroup)
            self._context.known.groups.observe(made)
            self._context.enqueue_group(made.metadata.namespace, made.metadata.name)
        elif not (isinstance(answer, Refused) and answer.reason == EXISTS):
            raise Again(f"PodGroup {body['metadata']['name']}: {answer.message}")

    async def _owner(self, pod: Meta) -> Meta | None:
        """The metadata of the pod's creator; None without one, or if it is of another kind."""
        owner = pod.controller()
        if (
            owner is None
            or owner.kind not in OWNERS
            or (owner.api_version, owner.kind) not in NAMES
        ):
            return None
        path = path_of(owner.api_version, owner.kind, pod.namespace, owner.name)
        answer = await self._context.client.get(path)
        if isinstance(answer, Ok):
            return msgspec.json.decode(answer.body, type=PartialObject).metadata
        if isinstance(answer, Refused):
            return None
        raise Again(f"{owner.kind} {owner.name}: {answer.message}")

    # PodGroups that users wrote

    def on_group(self, group: PodGroup) -> None:
        """Say what of a PodGroup has no effect; of a Job's the Job itself says it."""
        owner = group.metadata.controller()
        is_of_job = owner is not None and (owner.api_version, owner.kind) == (keys.BATCH, "Job")
        if is_of_job:
            return
        topology = task_topology.without_effect(group.metadata.annotations or {})
        for text in filter(None, (groups.without_effect(group), topology)):
            notice = Notice("Warning", "NoEffect", text)
            self._context.reporter.report(keys.SCHEDULING, "PodGroup", group.metadata, notice)

    # Phases

    async def work_group(self, namespace: str, name: str) -> None:
        """Bring the phase of one PodGroup in line with its pods and its queue. Raises Again."""
        context = self._context
        group = context.known.groups.get(namespace, name)
        if (
            group is None
            or group.metadata.deletion_timestamp is not None
            or not context.settings.admit
        ):
            return
        wanted = self._status(group)
        if not wanted:
            return
        written = await patch_status(
            context.client, keys.SCHEDULING, "PodGroup", group.metadata, wanted, PodGroup
        )
        if written is None:
            return
        context.known.groups.observe(written)
        self.admitted += wanted.get("phase") == GROUP_INQUEUE
        for owner in written.metadata.owner_references or ():
            if (owner.api_version, owner.kind) == (keys.BATCH, "Job"):
                context.enqueue_job(namespace, owner.name)

    def _status(self, group: PodGroup) -> JsonObject:
        """What to change in its status; empty: nothing."""
        known = self._context.known
        metadata, status = group.metadata, group.status
        members = members_of(known.pods_of_group(metadata.namespace, metadata.name))
        phase = groups.phase_of(
            status.phase, group.spec.min_member, members, is_unschedulable=False
        )
        queue = known.queues.get("", group.spec.queue or keys.DEFAULT_QUEUE)
        if phase == GROUP_PENDING and groups.may_enqueue(phase, queue):
            phase = GROUP_INQUEUE
        wanted: JsonObject = {
            "phase": phase,
            "running": members.running,
            "succeeded": members.succeeded,
            "failed": members.failed,
        }
        return {name: value for name, value in wanted.items() if getattr(status, name) != value}


def _of_lone(pod: PodObject) -> PodObject:
    """What can be asked of a lone pod later, in memory of its own: no code reads a label or an
    annotation that it has, and its spec as it came keeps all that was read with it."""
    metadata = msgspec.structs.replace(pod.metadata, labels=None, annotations=None)
    return PodObject(metadata, pod.spec.copy(), pod.status)
