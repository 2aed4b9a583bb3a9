"""The watcher: Kubernetes → facts in the log. It never decides anything."""

import gc
import secrets
import sys
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import anyio
import msgspec

from allotment.adapters import kube
from allotment.adapters.kube_watch import (
    Added,
    Deleted,
    Modified,
    Reflector,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.recorder import Recorder
from allotment.adapters.service import ServiceContext, start_service
from allotment.adapters.settings import SettingsError
from allotment.adapters.world import World, full_reporter, open_world, too_large_reporter
from allotment.core.policy import PolicyError
from allotment.core.state import ClusterState
from allotment_proto.facts import Policy
from allotment_watcher import objects
from allotment_watcher.diary import Diary, Fact, subject_of
from allotment_watcher.learner import keep_learning
from allotment_watcher.normalise import depends_on_policy, node_fact, pod_fact, unreadable_pod_fact
from allotment_watcher.policy_source import POLL_S, Loaded, fingerprint, load_policy
from allotment_watcher.settings import WatcherSettings

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
STANDBY_AFTER_S = 3.0
"""Longer than taking a free lease: who still waits then has an active one before it."""

Context = ServiceContext[WatcherSettings]
T = TypeVar("T")


AUDIT_S = 5.0
"""How often the log is compared with what was told; what differs twice in a row is corrected."""


class Watcher:
    """Turns watch events into facts; one per process life."""

    def __init__(self, ctx: Context, policy: Policy, diary: Diary, recorder: Recorder) -> None:
        self.ctx = ctx
        self.policy = policy
        self.diary = diary
        self.recorder = recorder
        self._pods: set[str] = set()
        self._by_policy: dict[str, objects.PodObject] = {}
        """Pods that another policy would read otherwise, whole; all others are facts only."""
        self._nodes: dict[str, str] = {}
        self._unreadable: set[str] = set()
        self._listed: set[str] = set()

    async def on_pod(self, event: WatchEvent[objects.PodObject]) -> None:
        match event:
            case Added() | Modified():
                self._pods.add(event.identity.uid)
                if depends_on_policy(event.object):
                    self._by_policy[event.identity.uid] = event.object
                else:
                    self._by_policy.pop(event.identity.uid, None)
                self.recorder.put(self.diary.pod_seen(pod_fact(event.object, self.policy)))
            case Deleted():
                self._pods.discard(event.identity.uid)
                self._by_policy.pop(event.identity.uid, None)
                self._unreadable.discard(event.identity.uid)
                self.recorder.put(self.diary.pod_gone(event.identity.uid))
            case Undecodable():
                self._unreadable_pod(event)
            case Synced():
                self.recorder.put(self.diary.only_pods([*self._pods, *self._unreadable]))
                self._all_listed("pods")
                self.ctx.ready("pods", True, f"{event.objects} listed")

    async def on_node(self, event: WatchEvent[objects.NodeObject]) -> None:
        match event:
            case Added() | Modified():
                self._nodes[event.identity.name] = event.identity.uid
                self.recorder.put(self.diary.node_seen(node_fact(event.object)))
            case Deleted():
                if self._nodes.get(event.identity.name) == event.identity.uid:
                    del self._nodes[event.identity.name]
                self.recorder.put(self.diary.node_gone(event.identity.name, event.identity.uid))
            case Undecodable():
                self._nodes.setdefault(event.name, event.uid)  # it is there, as it was last read
                self.ctx.log.warning("node cannot be read", node=event.name, reason=event.error)
            case Synced():
                self.recorder.put(self.diary.only_nodes(self._nodes))
                self._all_listed("nodes")
                self.ctx.ready("nodes", True, f"{event.objects} listed")

    def _all_listed(self, kind: str) -> None:
        """What a large list left in memory stays: the collector need not look at it for ever."""
        if kind not in self._listed:
            self._listed.add(kind)
            gc.freeze()

    def _unreadable_pod(self, event: Undecodable) -> None:
        """The pod stays known and is refused with the reason; nothing else is held up."""
        self._unreadable.add(event.uid)
        seen = objects.PodGlimpse()
        try:
            spec = msgspec.json.decode(event.raw, type=objects.Glimpse).spec
            seen = msgspec.json.decode(spec, type=objects.PodGlimpse)
        except msgspec.DecodeError as error:
            self.ctx.log.warning("pod cannot even be glimpsed", pod=event.name, reason=str(error))
        self.ctx.log.warning(
            "pod cannot be read", namespace=event.namespace, pod=event.name, reason=event.error
        )
        self.recorder.put(
            self.diary.pod_seen(
                unreadable_pod_fact(
                    event.namespace,
                    event.name,
                    event.uid,
                    seen.scheduler_name or "",
                    seen.node_name or "",
                    event.error,
                )
            )
        )

    async def audit(self, state: ClusterState) -> None:
        """Set right, for ever and again, what the log believes and the cluster does not show."""
        before: frozenset[Fact] = frozenset()
        while True:
            await anyio.sleep(AUDIT_S)
            if len(self._listed) < 2 or self.recorder.waiting:
                continue
            found = self.diary.corrections(state)
            twice = [fact for fact in found if fact in before]
            for fact in twice:
                self.ctx.log.warning("the log believed what is not so", correction=fact)
            self.recorder.put(twice)
            before = frozenset(found)

    def use(self, policy: Policy) -> None:
        """Read again what another policy reads otherwise."""
        self.policy = policy
        for pod in self._by_policy.values():
            self.recorder.put(self.diary.pod_seen(pod_fact(pod, policy)))


async def run(ctx: Context) -> None:
    for condition in ("kubernetes", "pods", "nodes"):
        ctx.ready(condition, False, "not listed yet")
    loaded = await _first_policy(ctx)
    async with (
        open_world(ctx) as world,
        kube.connect(
            ctx.settings.kubeconfig,
            ctx.settings.kube_context,
            concurrency=ctx.settings.kube_concurrency,
        ) as client,
    ):
        with ctx.until_stop():
            await _watch(ctx, world, client, loaded)


async def _watch(ctx: Context, world: World, client: kube.KubeClient, loaded: Loaded) -> None:
    await world.fold.caught_up.wait()
    ctx.ready("kubernetes", True, client.address.url)
    while True:
        await _active(ctx, world)
        loaded = await _current_policy(ctx, world.fold.state, loaded)
        async with anyio.create_task_group() as group:
            diary = Diary()
            diary.begin(world.fold.state)
            by = f"watcher/{ctx.settings.instance}"
            recorder = Recorder(
                world.log, by, subject_of, full_reporter(ctx), too_large_reporter(ctx)
            )
            watcher = Watcher(ctx, loaded.event.policy, diary, recorder)
            state = world.fold.state
            if state.policy_seq == 0 or as_in_file(state.policy) != loaded.event.policy:
                recorder.put([loaded.event])
            world.fold.listeners[:] = [diary.took_effect]  # and no longer an earlier turn's
            group.start_soon(recorder.run)
            group.start_soon(watcher.audit, state)
            group.start_soon(_reload_policy, ctx, watcher, loaded)
            group.start_soon(keep_learning, state, recorder.put)
            group.start_soon(_reflect, ctx, client, NODES, objects.NodeObject, watcher.on_node)
            group.start_soon(_reflect, ctx, client, PODS, objects.PodObject, watcher.on_pod)
            await world.lease.lost()
            ctx.log.warning("lease lost, another watcher takes over")
            group.cancel_scope.cancel()


async def _reflect(
    ctx: Context,
    client: kube.KubeClient,
    path: str,
    kind: type[T],
    on_event: Callable[[WatchEvent[T]], Awaitable[None]],
) -> None:
    """Never from the server's cache: the log may know more than it, and what an old list lacks
    would be told as gone while it runs.
    """
    await Reflector(
        client,
        path,
        msgspec.json.Decoder(kind),
        on_event,
        random=Random(secrets.randbits(64)),
        first_list_from_cache=False,
        on_problem=lambda text: ctx.log.warning("watch interrupted", path=path, reason=text),
    ).run()


async def _active(ctx: Context, world: World) -> None:
    """Wait for this replica's turn. A standby that is caught up is ready without listing."""
    with anyio.move_on_after(STANDBY_AFTER_S) as waiting:
        await world.active()
    if not waiting.cancelled_caught:
        return
    for condition in ("pods", "nodes"):
        ctx.ready(condition, True, "standby: another watcher lists them")
    await world.active()
    for condition in ("pods", "nodes"):
        ctx.ready(condition, False, "not listed yet")


async def _current_policy(ctx: Context, state: ClusterState, earlier: Loaded) -> Loaded:
    """The file as it is now: it may have changed while another watcher was the active one."""
    try:
        return await load_policy(ctx.settings.policy_file, ctx.settings.scheduler_names)
    except PolicyError as error:
        _say_not_loaded(ctx, error)
        policy = as_in_file(state.policy) if state.policy_seq else earlier.event.policy
        event = msgspec.structs.replace(earlier.event, policy=policy)
        return earlier._replace(event=event)


def as_in_file(policy: Policy) -> Policy:
    """The policy without what was learned: as a configuration file says it."""
    return msgspec.structs.replace(policy, mix=())


def _say_not_loaded(ctx: Context, error: PolicyError) -> None:
    for problem in error.problems:
        ctx.log.error("policy not loaded, the old one stays in force", reason=problem)


async def _first_policy(ctx: Context) -> Loaded:
    settings = ctx.settings
    try:
        loaded = await load_policy(settings.policy_file, settings.scheduler_names)
    except PolicyError as error:
        raise SettingsError(error.problems) from error
    for warning in loaded.warnings:
        ctx.log.warning(warning)
    return loaded


async def _reload_policy(ctx: Context, watcher: Watcher, first: Loaded) -> None:
    """Pick up changes of the file; a broken one leaves the policy in force as it is."""
    path = ctx.settings.policy_file
    if path is None:
        return
    seen, in_force = first.seen, first
    while True:
        await anyio.sleep(POLL_S)
        now = await fingerprint(path)
        if now is None or now == seen:
            continue
        seen = now
        try:
            loaded = await load_policy(path, ctx.settings.scheduler_names)
        except PolicyError as error:
            _say_not_loaded(ctx, error)
            continue
        for warning in loaded.warnings:
            ctx.log.warning(warning)
        if loaded.event.policy != in_force.event.policy:
            in_force = loaded
            ctx.log.info("policy loaded", source=loaded.event.source)
            watcher.recorder.put([loaded.event])
            watcher.use(loaded.event.policy)


def main() -> None:
    sys.exit(
        start_service(
            "allotment-watcher", WatcherSettings, run, "Watches Kubernetes and records facts."
        )
    )


if __name__ == "__main__":
    main()
