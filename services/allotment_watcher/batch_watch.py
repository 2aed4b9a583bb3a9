"""Follows PodGroups, Queues and PriorityClasses, where the cluster knows such things.

Their definitions may be missing, or come and go: then there are none of them, and pods are placed
one by one. What is there is told before the first pod is, so that no member of a group is placed as
if it stood alone, and none beyond its queue's quota.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec

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
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment.core.jobs.keys import SCHEDULING
from allotment.core.ledger.model import ClusterState
from allotment_watcher.auditing import keep_right
from allotment_watcher.batch_objects import GroupObject, PriorityClassObject, QueueObject
from allotment_watcher.normalise.batch import class_fact, group_fact, queue_fact
from allotment_watcher.reported import (
    Fact,
    Observed,
    ReportedCache,
    classes_of,
    groups_of,
    queues_of,
)
from allotment_watcher.settings import WatcherSettings

GROUPS = f"/apis/{SCHEDULING}/podgroups"
QUEUES = f"/apis/{SCHEDULING}/queues"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
READY = "batch"
"""The readiness condition: it is known which groups, queues and classes there are, if any."""
ABSENT_RETRY_S = 5.0
"""How often to look whether what the server does not know was installed."""
REMEDY = "apply deploy/base/rbac.yaml if the watcher has no right to list and watch them"


class Kind(msgspec.Struct, frozen=True):
    """One kind of object: where it is, how it is read, and where the fold keeps it."""

    name: str
    path: str
    type: Any
    fact: Callable[[Any], Observed]
    believed: Callable[[ClusterState], Mapping[str, Observed]]


KINDS = (
    Kind("PodGroups", GROUPS, GroupObject, group_fact, groups_of),
    Kind("Queues", QUEUES, QueueObject, queue_fact, queues_of),
    Kind("PriorityClasses", CLASSES, PriorityClassObject, class_fact, classes_of),
)


class BatchWatch:
    """One turn's watch of all `KINDS`. `settled` is set once each was listed or found absent."""

    def __init__(
        self, ctx: ServiceContext[WatcherSettings], state: ClusterState, recorder: Recorder
    ) -> None:
        self.settled = anyio.Event()
        self._ctx = ctx
        self._state = state
        self._recorder = recorder
        self._kinds = [_BatchKind(ctx, kind, kind.believed(state), self) for kind in KINDS]

    async def run(self, client: kube.KubeClient) -> None:
        async with anyio.create_task_group() as group:
            for kind in self._kinds:
                group.start_soon(kind.watch.run, client)
            group.start_soon(keep_right, self._ctx, self._recorder, self._corrections)

    def put(self, facts: list[Fact]) -> None:
        self._recorder.put(facts)

    def listed(self) -> None:
        """A kind was listed, found absent, or is refused: say how all of them stand."""
        kinds = self._kinds
        is_known = all(kind.watch.is_listed for kind in kinds)
        self._ctx.ready(READY, is_known, ", ".join(kind.standing for kind in kinds))
        if is_known:
            self.settled.set()

    def _corrections(self) -> list[Fact]:
        if not self.settled.is_set():
            return []
        return [
            fact
            for kind in self._kinds
            for fact in kind.reported.corrections(kind.of.believed(self._state))
        ]


class _BatchKind:
    """What is there and what was reported of one kind."""

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        kind: Kind,
        believed: Mapping[str, Observed],
        batch: BatchWatch,
    ) -> None:
        self.of = kind
        self.reported = ReportedCache(believed)
        self.watch: KindWatch[Any] = KindWatch(
            kind.path,
            kind.type,
            self._on_event,
            ctx.refusals,
            on_problem=self._on_problem,
            warn=lambda text: ctx.log.warning("watch interrupted", reason=text, remedy=REMEDY),
            absent_ok=True,
            absent_retry_s=ABSENT_RETRY_S,
        )
        self.standing = f"{kind.name} not listed yet"
        self._batch = batch
        self._there: dict[str, str] = {}
        """Key → uid."""

    async def _on_event(self, event: WatchEvent[Any]) -> None:
        match event:
            case Added(identity=identity) | Modified(identity=identity):
                self._there[_key(identity.namespace, identity.name)] = identity.uid
                self._batch.put(self.reported.seen(self.of.fact(event.object)))
            case Deleted(identity=identity):
                key = _key(identity.namespace, identity.name)
                if self._there.get(key) == identity.uid:
                    del self._there[key]
                self._batch.put(self.reported.gone(key, identity.uid))
            case Undecodable():  # it is there, as it was last read
                key = _key(event.namespace, event.name)
                self._there.setdefault(key, event.uid)
                self._batch.put(self.reported.unreadable(key, event.uid, event.error))
            case Synced():
                self._batch.put(self.reported.only(self._there))
                is_absent = not event.resource_version
                self.standing = f"{self.of.name} " + (
                    "not defined in this cluster"
                    if is_absent
                    else f"listed, {event.objects} at that time"
                )
                self._batch.listed()

    def _on_problem(self, text: str) -> None:
        if not self.watch.is_listed:
            self.standing = f"{self.of.name}: {text}"
            self._batch.listed()


def _key(namespace: str, name: str) -> str:
    """As `reported.key_of`."""
    return f"{namespace}/{name}" if namespace else name
