"""Everything the controller knows while it holds the lease, and what its parts share."""

from collections.abc import Iterator
from random import Random
from typing import TypeVar

from allotment.adapters.kube.client import KubeClient
from allotment.core.jobs.groups import queue_name
from allotment.core.jobs.model import Job, Meta, PodGroup, Priorities, Queue
from allotment_controller.cache import Cache, Key
from allotment_controller.objects import PartialObject, Pod, PriorityClass
from allotment_controller.reporting import EventReporter
from allotment_controller.settings import ControllerSettings
from allotment_controller.work import Again, Work

WorkKey = tuple[str, str, str]
"""What is to be worked on: its kind (`JOB` …), namespace and name."""
P = TypeVar("P")
JOB = "job"
GROUP = "group"
QUEUE = "queue"
POD = "pod"
SETTLE_S = 0.02
"""Events come in bursts; one sync serves them all."""
SETTLE_PER_POD_S = 0.0001


class Known:
    """The caches, with pods by Job and by PodGroup."""

    def __init__(self) -> None:
        self.jobs: Cache[Job] = Cache()
        self.groups: Cache[PodGroup] = Cache()
        self.queues: Cache[Queue] = Cache()
        self.pods: Cache[Pod] = Cache()
        self.classes: Cache[PriorityClass] = Cache()
        self.namespaces: Cache[PartialObject] = Cache()
        self._of_job: dict[str, dict[Key, None]] = {}
        self._of_group: dict[Key, dict[Key, None]] = {}

    def observe_pod(self, pod: Pod) -> None:
        """Take in a version of a pod."""
        key = (pod.metadata.namespace, pod.metadata.name)
        before = self.pods.get(*key)
        if not self.pods.observe(pod):
            return
        if before is not None:
            self._unfile(key, before)
        if pod.job_uid:
            self._of_job.setdefault(pod.job_uid, {})[key] = None
        if pod.group:
            self._of_group.setdefault((key[0], pod.group), {})[key] = None

    def forget_pod(self, namespace: str, name: str, uid: str) -> Pod | None:
        gone = self.pods.forget(namespace, name, uid)
        if gone is not None:
            self._unfile((namespace, name), gone)
        return gone

    def _unfile(self, key: Key, pod: Pod) -> None:
        _discard(self._of_job, pod.job_uid, key)
        _discard(self._of_group, (key[0], pod.group), key)

    def pods_of_job(self, uid: str) -> list[Pod]:
        return list(self._listed(self._of_job.get(uid, {})))

    def count_of_job(self, uid: str) -> int:
        """How many pods of a Job are known: asked for every change of any of them."""
        return len(self._of_job.get(uid, ()))

    def pods_of_group(self, namespace: str, name: str) -> list[Pod]:
        return list(self._listed(self._of_group.get((namespace, name), {})))

    def _listed(self, found: dict[Key, None]) -> Iterator[Pod]:
        for key in sorted(found):
            pod = self.pods.get(*key)
            if pod is not None:
                yield pod

    def queue_of_namespace(self, name: str) -> str:
        """The queue that a namespace names; empty where it names none. Raises Again while nothing
        is known of the namespace: it exists, and its first object arrived before it did.
        """
        found = self.namespaces.get("", name)
        if found is None:
            raise Again(f"nothing is known of namespace {name} yet")
        return queue_name(found.metadata.annotations or {})

    @property
    def priorities(self) -> Priorities:
        return {found.metadata.name: found.value for found in self.classes}

    @property
    def queues_by_name(self) -> dict[str, Queue]:
        return {queue.metadata.name: queue for queue in self.queues}


def _discard(index: dict[P, dict[Key, None]], place: P, key: Key) -> None:
    pods = index.get(place, {})
    pods.pop(key, None)
    if not pods:
        index.pop(place, None)


class ControllerContext:
    """What all parts of the controller share: client, settings, caches, work queue and Events."""

    def __init__(
        self,
        client: KubeClient,
        settings: ControllerSettings,
        known: Known,
        work: Work[WorkKey],
        reporter: EventReporter,
        random: Random,
    ) -> None:
        self.client = client
        self.settings = settings
        self.known = known
        self.work = work
        self.reporter = reporter
        self.random = random

    def enqueue_job(self, namespace: str, name: str, pods: int = 0) -> None:
        """Sync a Job soon; one with many pods somewhat later, as their events come in bursts."""
        self.work.add((JOB, namespace, name), SETTLE_S + pods * SETTLE_PER_POD_S)

    def enqueue_group(self, namespace: str, name: str) -> None:
        self.work.add((GROUP, namespace, name), SETTLE_S)

    def enqueue_queue(self, name: str) -> None:
        self.work.add((QUEUE, "", name), SETTLE_S)


def place_of(metadata: Meta) -> Key:
    return (metadata.namespace, metadata.name)
