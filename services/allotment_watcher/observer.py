"""Nodes and pods as Kubernetes shows them → facts for the log's queue."""

import gc
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

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
from allotment.adapters.kube.wire import read_leniently, shallow
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment.core.ledger.model import ENDED, ClusterState
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Policy, Problem
from allotment_proto.volcano.exclusive import group_name
from allotment_watcher import objects
from allotment_watcher.auditing import keep_right
from allotment_watcher.awaited import is_awaited
from allotment_watcher.late import Late
from allotment_watcher.namespace_watch import NamespaceWatch
from allotment_watcher.node_info import NodeInfoWatch
from allotment_watcher.normalise import (
    Lens,
    node_fact,
    pod_through,
    unreadable_pod_fact,
)
from allotment_watcher.normalise.bounds import cut_pod
from allotment_watcher.normalise.images import WantedImages
from allotment_watcher.normalise.volumes import NOTHING as NO_VOLUMES
from allotment_watcher.normalise.volumes import Wanted, claims_of
from allotment_watcher.reported import Fact, Reported
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.throttle import CUT, Throttle
from allotment_watcher.variety import Variety, without_excess
from allotment_watcher.volume_watch import VolumeWatch

T = TypeVar("T")
AGAIN_AT_ONCE = 256
"""Pods of a namespace that are read again at a time."""
ASKED_EVERY_S = 10.0
"""Every reader of the log may ask for a list. Requests are ignored while nodes or pods are being
listed, and for this long after both requested lists have arrived: so they end no list that is under
way, and cost the API server no more than a list every so often."""
GLIMPSE_LEVELS = 2
"""How deep is read what can still be said of a pod: its spec's and status's own fields."""
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"


class Observer:
    """Turns watch events into facts; one per turn of the watcher.

    It keeps facts and no objects. What another policy or device configuration reads otherwise is
    listed again.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        policy: Policy,
        reported: Reported,
        recorder: Recorder,
        infos: Sequence[NodeInfoWatch] = (),
        volumes: VolumeWatch | None = None,
        throttle: Throttle | None = None,
        namespaces: NamespaceWatch | None = None,
        variety: Variety | None = None,
        node_throttle: Throttle | None = None,
    ) -> None:
        self.ctx = ctx
        self.throttle = throttle or Throttle()
        self.node_throttle = node_throttle or Throttle()
        self.late = Late(self.throttle.spending)
        """Pods and nodes that change too often, as they are now: recorded later."""
        self.variety = variety or Variety(reported.pods.facts())
        self._over: dict[str, dict[str, objects.PodObject]] = {}
        """By namespace and uid, whole: pods that ask for more different things than their namespace
        may, to read them again when others of it are gone."""
        self.reported = reported
        self.recorder = recorder
        self.infos = infos
        """Without, nodes have no device information."""
        self.volumes = volumes
        """Without it, pods are reported as if they had no volumes."""
        self.namespaces = namespaces
        """Without, no namespace names a queue."""
        self.images = WantedImages()
        """What pods of ours asked for, of the images that nodes have."""
        self._waiting: dict[str, objects.PodObject] = {}
        """Pods of ours that wait and have claims, and others whose claims are not known, whole, to
        read them again when those change."""
        self._ungrouped: dict[str, dict[str, objects.PodObject]] = {}
        """By namespace and uid, whole: pods of ours that wait and name no PodGroup, to read them
        again when their namespace names another queue."""
        self._lens = Lens(policy, has_groups_made=ctx.settings.group_pods)
        self._pods: set[str] = set()
        self._nodes: dict[str, str] = {}
        self._informed: dict[str, objects.NodeObject] = {}
        """Nodes of which ConfigMaps tell, whole, to read them again when those change."""
        self._unreadable: set[str] = set()
        self._listed: set[str] = set()
        self._scope: anyio.CancelScope | None = None
        self._synced: set[str] = set()
        """Of nodes and pods what is listed since both were last begun."""
        self._is_asked = False
        """Whether the lists that are under way were requested."""
        self._asked_listed_s = -math.inf

    def list_again(self) -> None:
        """List again on request: what is in the log and no longer in the cluster is reported as
        gone, and what is not in the log is reported. Any client may ask, so requests are
        rate-limited and not logged.
        """
        if not self._is_synced():
            self.ctx.log.debug("asked to list again, and a list is under way")
            return
        if time.monotonic() - self._asked_listed_s < ASKED_EVERY_S:
            self.ctx.log.debug("asked to list again, and did so just now")
            return
        self.ctx.log.info("asked to list again")
        self._is_asked = True
        self._again()

    def _is_synced(self) -> bool:
        return len(self._synced) == len((NODES, PODS))

    def _again(self) -> None:
        if self._scope is not None:
            self._synced.clear()
            self._scope.cancel()

    async def run(self, client: kube.KubeClient) -> None:
        """List and watch, for ever; again after `use` and `configure`."""
        while True:
            with anyio.CancelScope() as self._scope:
                self._synced.clear()
                self._pods.clear()
                self._nodes.clear()
                self._informed.clear()
                self._waiting.clear()
                self._ungrouped.clear()
                self._over.clear()
                self.late.clear()
                self._unreadable.clear()
                async with anyio.create_task_group() as group:
                    group.start_soon(
                        self._watch(NODES, objects.NodeObject, self.on_node).run, client
                    )
                    group.start_soon(self._watch(PODS, objects.PodObject, self.on_pod).run, client)
                    group.start_soon(self.late.run, self.see_freed)

    def _watch(
        self, path: str, kind: type[T], on_event: Callable[[WatchEvent[T]], Awaitable[None]]
    ) -> KindWatch[T]:
        return KindWatch(path, kind, on_event, self.ctx.refusals, on_problem=self._problem)

    def use(self, policy: Policy) -> None:
        """Read what comes under another policy, and what is there again if need be."""
        is_same = self._lens.reads_as(policy)
        self._lens = Lens(policy, self._lens.config, has_groups_made=self._lens.has_groups_made)
        if not is_same:
            self._again()

    def configure(self, config: DeviceConfig) -> None:
        """Read everything under another device configuration."""
        if config != self._lens.config:
            self._lens = Lens(self._lens.policy, config, has_groups_made=self._lens.has_groups_made)
            self._again()

    async def on_pod(self, event: WatchEvent[objects.PodObject]) -> None:
        match event:
            case Added() | Modified():
                self._pods.add(event.identity.uid)
                self._see_pod(event.object)
            case Deleted():
                self._pods.discard(event.identity.uid)
                self._waiting.pop(event.identity.uid, None)
                self._drop(self._ungrouped, event.identity.namespace, event.identity.uid)
                self.late.drop(event.identity.uid)
                self.throttle.forget(event.identity.uid)
                self.variety.forget(event.identity.uid)
                self._drop(self._over, event.identity.namespace, event.identity.uid)
                self._unreadable.discard(event.identity.uid)
                self._put(self.reported.pods.gone(event.identity.uid, event.identity.uid))
            case Undecodable():
                self._unreadable_pod(event)
            case Synced():
                self.throttle.keep_only(self._pods)
                gone = self.reported.pods.only([*self._pods, *self._unreadable])
                for fact in gone:
                    self.variety.forget(fact.uid)
                self._put(gone)
                self._all_listed("pods")
                self.ctx.ready("pods", True, f"listed, {event.objects} at that time")

    async def on_node(self, event: WatchEvent[objects.NodeObject]) -> None:
        match event:
            case Added() | Modified():
                self._nodes[event.identity.name] = event.identity.uid
                self._see(event.object)
            case Deleted():
                if self._nodes.get(event.identity.name) == event.identity.uid:
                    del self._nodes[event.identity.name]
                    self._informed.pop(event.identity.name, None)
                    self.late.drop(event.identity.name)
                self.recorder.put(self.reported.nodes.gone(event.identity.name, event.identity.uid))
            case Undecodable():
                self._nodes.setdefault(event.name, event.uid)  # it is there, as it was last read
            case Synced():
                self.node_throttle.keep_only(self._nodes.values())
                self.recorder.put(self.reported.nodes.only(self._nodes))
                self._all_listed("nodes")
                self.ctx.ready("nodes", True, f"listed, {event.objects} at that time")

    def told_of(self, nodes: Iterable[str] | None) -> None:
        """ConfigMaps tell something else of these nodes (None: perhaps of all)."""
        for name in sorted(self._informed if nodes is None else nodes):
            if name in self._informed:
                self._see(self._informed[name])

    def volumes_changed(self) -> None:
        """What claims of waiting pods can have may be something else now."""
        for pod in list(self._waiting.values()):
            self._see_pod(pod)

    def namespace_changed(self, name: str) -> None:
        """A namespace is new, or names another queue."""
        for pod in list(self._ungrouped.get(name, {}).values()):
            self._see_pod(pod)

    def limits_changed(self, name: str | None) -> None:
        """A node can have other numbers of volumes attached; None: others count now, everywhere."""
        if name is None:
            self._again()
        elif (last := self.reported.nodes.get(name)) is not None:
            self.recorder.put(self.reported.nodes.seen(self._with_limits(last)))

    def _with_limits(self, fact: NodeObserved) -> NodeObserved:
        """The node with its volume limits; while they are unknown, with those reported last."""
        limits = None if self.volumes is None else self.volumes.limits_of(fact.name)
        if limits is None:
            last = self.reported.nodes.get(fact.name)
            limits = () if last is None or last.uid != fact.uid else last.volume_limits
        return msgspec.structs.replace(fact, volume_limits=limits)

    def _see_pod(self, pod: objects.PodObject) -> None:
        uid, claims = pod.metadata.uid, claims_of(pod)
        scheduler = pod.spec.scheduler_name or ""
        is_ours = scheduler in self._lens.policy.scheduler_names and not pod.spec.node_name
        of_namespace = self._queue_of_namespace(pod, is_waiting=is_ours)
        if of_namespace is None:
            return  # it is reported once that is known, so that it is not placed in another queue
        wanted: Wanted | Problem = NO_VOLUMES
        if claims and is_ours and self.volumes is not None:
            self._waiting[uid] = pod
            if not self.volumes.has_answered():
                return  # it is reported once that is known, so that it is not placed out of reach
            wanted = self.volumes.wanted(pod.metadata.namespace, claims)
        elif claims and pod.spec.node_name and self.volumes is not None:
            wanted = self._attached(pod, claims, self.volumes)
        else:
            self._waiting.pop(uid, None)
        on = self.reported.nodes.get(pod.spec.node_name or "")
        listed = () if on is None else [name for name, _ in on.extended]
        fact = pod_through(self._lens, pod, wanted, of_namespace, listed)
        fact = self._within_variety(fact, pod, listed)
        if is_ours:
            self.images.add(fact.request.images)
        last = self.reported.pods.get(uid)
        is_cut = self.throttle.cuts(last, fact)
        if is_cut:
            fact = cut_pod(fact, CUT)
        is_allowed = self.throttle.allows(last, fact)
        if is_cut or not is_allowed:
            self.late.add(uid, fact.namespace, partial(self._see_pod, pod))
        else:
            self.late.drop(uid)
        if not is_allowed:
            return
        awaited = is_awaited(last, fact, self._lens.policy.scheduler_names)
        self._put(self.reported.pods.seen(fact), awaited=awaited)

    def _within_variety(
        self, fact: PodObserved, pod: objects.PodObject, listed: Collection[str]
    ) -> PodObserved:
        """The fact, or the rejection of a pod that asks for too many different things."""
        if fact.phase in ENDED or (fact.problem is not None and not fact.node):
            self.variety.forget(fact.uid)
            excess = None
        else:
            excess = self.variety.excess(fact)
        if excess is None:
            self._drop(self._over, fact.namespace, fact.uid)
            return fact
        self._over.setdefault(fact.namespace, {})[fact.uid] = pod
        return without_excess(fact, excess, listed)

    def see_freed(self) -> None:
        """Read pods again that asked for too many different things, where there is room now."""
        for namespace in self.variety.take_shrunk():
            for pod in list(self._over.get(namespace, {}).values())[:AGAIN_AT_ONCE]:
                self._see_pod(pod)

    def _put(self, facts: Sequence[Fact], *, awaited: bool = True) -> None:
        """Record facts about pods, for which their namespaces pay."""
        for fact in facts:
            self.throttle.spending.spend(fact)
        self.recorder.put(facts, awaited=awaited)

    def _queue_of_namespace(self, pod: objects.PodObject, *, is_waiting: bool) -> str | None:
        """The queue that a pod's namespace names for it, empty without one; None: not known yet.

        One that has a node stays in the queue in which it was placed there.
        """
        meta = pod.metadata
        names_group = bool(group_name(meta.annotations or {}))
        if self.namespaces is None or names_group or not is_waiting:
            self._drop(self._ungrouped, meta.namespace, meta.uid)
        if self.namespaces is None or names_group:
            return ""
        queue = self.namespaces.queue_of(meta.namespace)
        if is_waiting:
            self._ungrouped.setdefault(meta.namespace, {})[meta.uid] = pod
            return queue
        last = self.reported.pods.get(meta.uid)
        return (queue or "") if last is None else last.queue

    @staticmethod
    def _drop(found: dict[str, dict[str, objects.PodObject]], namespace: str, uid: str) -> None:
        pods = found.get(namespace, {})
        if pods.pop(uid, None) is not None and not pods:
            del found[namespace]

    def _attached(
        self, pod: objects.PodObject, claims: tuple[str, ...], volumes: VolumeWatch
    ) -> Wanted:
        """What is attached for a pod that has a node; while unknown, as reported last."""
        uid = pod.metadata.uid
        found, is_complete = volumes.attached(pod.metadata.namespace, claims)
        sole = volumes.sole(pod.metadata.namespace, claims)
        if not volumes.knows_limits():
            last = self.reported.pods.get(uid)
            found = () if last is None else last.request.attachments
            sole = () if last is None else last.request.company.sole
        if is_complete or not volumes.knows_limits():
            self._waiting.pop(uid, None)  # once limits are known everything is listed again
        else:
            self._waiting[uid] = pod
        return Wanted(attachments=found, sole=sole)

    def _see(self, node: objects.NodeObject) -> None:
        name, info = node.metadata.name, dict[str, str]()
        watches = [watch for watch in self.infos if watch.concerns(node)]
        if watches:
            self._informed[name] = node
            waiting = [watch for watch in watches if not watch.has_answered()]  # asking starts it
            if waiting:
                return  # it is reported once that is known, so that its cards do not come and go
            for watch in watches:
                info |= watch.info.of(name)
        else:
            self._informed.pop(name, None)
        images = self.images if self._lens.weighs_images else ()
        fact = self._with_limits(node_fact(node, self._lens.config, info, images))
        if not self.node_throttle.allows(self.reported.nodes.get(name), fact):
            self.late.add(name, "", partial(self._see, node))
            return
        self.late.drop(name)
        self.recorder.put(self.reported.nodes.seen(fact))

    def _all_listed(self, kind: str) -> None:
        """A list is there. What a large one left in memory stays: the collector need not look at it
        for ever."""
        if kind not in self._listed:
            self._listed.add(kind)
            gc.freeze()
        self._synced.add(kind)
        if self._is_asked and self._is_synced():
            self._is_asked = False
            self._asked_listed_s = time.monotonic()

    def _problem(self, text: str) -> None:
        self.ctx.log.warning("watch interrupted", reason=text)

    def _unreadable_pod(self, event: Undecodable) -> None:
        """The pod stays known and is refused with the reason; nothing else is held up."""
        self._unreadable.add(event.uid)
        seen = read_leniently(shallow(event.raw, GLIMPSE_LEVELS), objects.PodGlimpse)
        who = (event.namespace, event.name, event.uid)
        fact = unreadable_pod_fact(*who, seen or objects.PodGlimpse(), event.error)
        if not self.throttle.allows(self.reported.pods.get(event.uid), fact):
            self.late.add(event.uid, event.namespace, partial(self._unreadable_pod, event))
            return
        self.late.drop(event.uid)  # what it was before must not be reported after this
        self._put(self.reported.pods.seen(fact))

    async def audit(self, state: ClusterState) -> None:
        """Correct, again and again, what the log shows and the cluster does not."""
        await keep_right(
            self.ctx,
            self.recorder,
            lambda: self.reported.corrections(state) if len(self._listed) == 2 else [],
        )
