"""Follows PodGroups, Queues and PriorityClasses, where the cluster knows such things.

Their definitions may be missing, or come and go: then there are none of them, and pods are placed
one by one. Existing ones are reported before the first pod, so that no member of a group is placed
as if it stood alone, and none beyond its queue's quota.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
import msgspec

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.watch import KUBERNETES
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
from allotment_proto.events import GroupObserved, QueueObserved
from allotment_watcher.auditing import keep_right
from allotment_watcher.batch_objects import GroupObject, PriorityClassObject, QueueObject
from allotment_watcher.late import Late
from allotment_watcher.normalise.batch import class_fact, group_fact, queue_fact
from allotment_watcher.normalise.bounds import queue_excess
from allotment_watcher.reported import (
    Fact,
    Observed,
    ReportedCache,
    classes_of,
    groups_of,
    key_of,
    queues_of,
)
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.throttle import Spending, Throttle, namespace_of
from allotment_watcher.variety import Variety

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
        self,
        ctx: ServiceContext[WatcherSettings],
        state: ClusterState,
        recorder: Recorder,
        spending: Spending | None = None,
        variety: Variety | None = None,
    ) -> None:
        self.settled = anyio.Event()
        self.spending = spending or Spending()
        self.variety = variety or Variety()
        self.late = Late(self.spending)
        """Objects that change too often, as they are now: recorded later."""
        self._ctx = ctx
        self._state = state
        self._recorder = recorder
        self._kinds = [_BatchKind(ctx, kind, kind.believed(state), self) for kind in KINDS]

    async def run(self, client: kube.KubeClient) -> None:
        async with anyio.create_task_group() as group:
            for kind in self._kinds:
                group.start_soon(kind.watch.run, client)
            group.start_soon(self.late.run)
            group.start_soon(keep_right, self._ctx, self._recorder, self._corrections)

    def put(self, facts: list[Fact]) -> None:
        for fact in facts:
            self.spending.spend(fact)
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
        self._throttle = Throttle(spending=batch.spending)
        self._ctx = ctx
        self._there: dict[str, str] = {}
        """Key → uid."""

    async def _on_event(self, event: WatchEvent[Any]) -> None:
        match event:
            case Added(identity=identity) | Modified(identity=identity):
                self._there[_key(identity.namespace, identity.name)] = identity.uid
                self._see(event.object)
            case Deleted(identity=identity):
                key = _key(identity.namespace, identity.name)
                if self._there.get(key) == identity.uid:
                    del self._there[key]
                    self._batch.late.drop(self._late_key(key))
                self._forget(identity.uid)
                self._batch.put(self.reported.gone(key, identity.uid))
            case Undecodable():  # it is there, as it was last read
                key = _key(event.namespace, event.name)
                self._there.setdefault(key, event.uid)
                self._unreadable(key, event.uid, event.error)
            case Synced():
                self._throttle.keep_only(self._there.values())
                gone = self.reported.only(self._there)
                for fact in gone:
                    self._forget(fact.uid)
                self._batch.put(gone)
                is_absent = not event.resource_version
                self.standing = f"{self.of.name} " + (
                    "not defined in this cluster"
                    if is_absent
                    else f"listed, {event.objects} at that time"
                )
                self._batch.listed()

    def _see(self, found: Any) -> None:
        fact = self.of.fact(found)
        if isinstance(fact, GroupObserved):
            fact = self._within_variety(fact)
        if isinstance(fact, QueueObserved) and (excess := queue_excess(fact)):
            self._ctx.refusals.refuse(
                KUBERNETES, self.of.name, excess, name=fact.name, uid=fact.uid
            )
            self._unreadable(fact.name, fact.uid, excess)
        else:
            self._record(fact, partial(self._see, found))

    def _record(self, fact: Observed, look: Callable[[], None]) -> None:
        """Record a fact, or look again later if the object changes too often."""
        key = key_of(fact)
        if self._throttle.allows(self.reported.get(key), fact):
            self._batch.late.drop(self._late_key(key))
            self._batch.put(self.reported.seen(fact))
        else:
            self._batch.late.add(self._late_key(key), namespace_of(fact), look)

    def _within_variety(self, fact: GroupObserved) -> GroupObserved:
        """The fact, without a minimum that names too many different resources."""
        excess = self._batch.variety.excess(fact)
        if excess is None:
            return fact
        return msgspec.structs.replace(fact, min_resources=None, problem=excess)

    def _unreadable(self, key: str, uid: str, error: str) -> None:
        fact = self.reported.unreadable(key, uid, error)
        if fact is not None:
            self._record(fact, partial(self._unreadable, key, uid, error))

    def _forget(self, uid: str) -> None:
        self._throttle.forget(uid)
        self._batch.variety.forget(uid)

    def _late_key(self, key: str) -> str:
        return f"{self.of.name} {key}"

    def _on_problem(self, text: str) -> None:
        if not self.watch.is_listed:
            self.standing = f"{self.of.name}: {text}"
            self._batch.listed()


def _key(namespace: str, name: str) -> str:
    """As `reported.key_of`."""
    return f"{namespace}/{name}" if namespace else name
