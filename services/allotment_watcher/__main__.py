"""The watcher: Kubernetes → facts in the log. It never decides anything."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.kept_text import KeptText
from allotment.adapters.kube.watch import tell_silence
from allotment.adapters.log.bus import Message
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.identity import keep_identity, kept_of
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.settings import SettingsError
from allotment.adapters.service.world import World, full_reporter, open_world, refused_reporter
from allotment.core.config.policy import PolicyError
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment_proto import subjects
from allotment_proto.events import SCHEDULER_CONFIG, DevicesConfigured, PolicyLoaded
from allotment_proto.facts import Problem
from allotment_proto.registry import subject_of_facts
from allotment_watcher.batch_watch import READY as BATCH
from allotment_watcher.batch_watch import BatchWatch
from allotment_watcher.config_checks import ConfigChecks
from allotment_watcher.device_source import DeviceTexts, places_of_files
from allotment_watcher.device_watch import READY, DeviceWatch, detail_of
from allotment_watcher.learner import keep_learning
from allotment_watcher.lease_mirror import LeaseMirror
from allotment_watcher.namespace_watch import READY as NAMESPACES
from allotment_watcher.namespace_watch import NamespaceWatch
from allotment_watcher.node_info import NodeInfoWatch
from allotment_watcher.observer import Observer
from allotment_watcher.policy_source import Checked, Loaded, load_policy
from allotment_watcher.policy_watch import PolicyWatch, is_news
from allotment_watcher.reported import Reported, groups_of
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.throttle import Spending, Throttle
from allotment_watcher.timekeeper import keep_time
from allotment_watcher.unrecorded import Unrecorded
from allotment_watcher.variety import Variety
from allotment_watcher.volume_watch import VolumeWatch

STANDBY_AFTER_S = 3.0
"""Longer than taking a free lease: who still waits then has an active one before it."""
POLICY = "policy"
CONDITIONS = ("kubernetes", POLICY, READY, BATCH, NAMESPACES, "pods", "nodes")

Context = ServiceContext[WatcherSettings]


async def run(ctx: Context) -> None:
    for condition in CONDITIONS:
        ctx.ready(condition, False, "not listed yet")
    loaded = await _first_policy(ctx)
    await _check_device_files(ctx)
    async with kube.connect(
        ctx.settings.kubeconfig,
        ctx.settings.kube_context,
        concurrency=ctx.settings.kube_concurrency,
    ) as client:
        kept = kept_of(client, ctx.settings.log_config_map)
        limit = ctx.settings.log_mib_max * 1024 * 1024 or -1
        async with open_world(ctx, kept, makes_log=True, log_bytes_max=limit) as world:
            with ctx.until_stop():
                await _watch(ctx, world, client, loaded, kept)


async def _watch(
    ctx: Context, world: World, client: kube.KubeClient, loaded: Loaded, kept: KeptText | None
) -> None:
    await world.fold.caught_up.wait()
    ctx.task_group.start_soon(tell_silence, client, partial(ctx.ready, "kubernetes"))
    ctx.task_group.start_soon(Unrecorded(ctx, world, client).run)
    turn: Turn | None = None
    _expose(
        ctx,
        world,
        lambda: turn.devices.problems if turn else (),
        lambda: turn.late_by_namespace() if turn else {},
    )

    async def list_again(_: Message) -> None:
        if turn is not None and world.lease.is_held:
            turn.observer.list_again()

    await world.bus.subscribe(subjects.LIST_AGAIN, list_again)
    while True:
        await _active(ctx, world)
        async with anyio.create_task_group() as group:
            policies = PolicyWatch(ctx, client, world.fold.state, loaded)
            group.start_soon(policies.run)
            if kept is not None:
                group.start_soon(keep_identity, ctx, kept, world.log, world.fold)
                mirror = LeaseMirror(client, world.connection, kept.namespace, ctx.log)
                group.start_soon(mirror.run)

            async def take_turn(policies: PolicyWatch = policies) -> None:
                nonlocal turn
                await policies.settled.wait()
                if turn is not None:
                    world.fold.listeners.remove(turn.on_record)
                turn = Turn(ctx, world, client, policies)
                await turn.run()

            group.start_soon(take_turn)
            await world.lease.lost()
            group.cancel_scope.cancel()


class Turn:
    """The parts of one turn as the active watcher. It begins with what the log shows."""

    def __init__(
        self, ctx: Context, world: World, client: kube.KubeClient, policies: PolicyWatch
    ) -> None:
        self._client = client
        self._ctx = ctx
        self._state = state = world.fold.state
        policy = policies.in_force.policy
        reported = Reported(state)
        self.on_record = reported.took_effect
        world.fold.listeners.append(self.on_record)
        by = f"watcher/{ctx.settings.instance}"
        self._full = full_reporter(ctx)
        self.recorder = Recorder(world.log, by, subject_of_facts, self._full, refused_reporter(ctx))
        self.checks = ConfigChecks(state, self.recorder.put)
        spending = Spending()
        variety = Variety((*reported.pods.facts(), *groups_of(state).values()))
        self.batch = BatchWatch(ctx, state, self.recorder, spending, variety)
        self.infos = tuple(
            NodeInfoWatch(
                *(ctx, client, name, family.info, policy), lambda n: self.observer.told_of(n)
            )
            for name, family in FAMILIES.items()
            if family.info is not None
        )
        self.volumes = VolumeWatch(
            ctx,
            client,
            lambda: self.observer.volumes_changed(),
            lambda node: self.observer.limits_changed(node),
        )
        self.namespaces = NamespaceWatch(ctx, lambda name: self.observer.namespace_changed(name))
        self.observer = Observer(
            *(ctx, policy, reported, self.recorder, self.infos, self.volumes),
            throttle=Throttle(spending=spending),
            namespaces=self.namespaces,
            variety=variety,
        )
        self.observer.images.begin(state)
        in_force = state.devices if state.devices_seq else None
        self.devices = DeviceWatch(
            ctx, client, policy, in_force, self._configured, self.checks.checked
        )
        if is_news(policies.in_force, state):
            self.recorder.put([policies.in_force])
        policies.listen(self._use, self._policy_checked)

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self._full("")  # from now on another watcher knows

    async def _run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.recorder.run)
            group.start_soon(self.observer.audit, self._state)
            group.start_soon(keep_learning, self._state, self.recorder.put)
            group.start_soon(keep_time, self._state, self.recorder.put)
            group.start_soon(self.devices.run)
            for info in self.infos:
                group.start_soon(info.run)
            group.start_soon(self.volumes.run)
            group.start_soon(self.batch.run, self._client)
            group.start_soon(self.namespaces.run, self._client)
            group.start_soon(self.observe)

    def late_by_namespace(self) -> Counter[tuple[str, ...]]:
        """How many objects of each namespace wait to be recorded."""
        return Counter(self.observer.late.by_namespace()) + Counter(self.batch.late.by_namespace())

    async def observe(self) -> None:
        """Nodes and pods, once it is known under which configuration to read them, and once all
        groups and queues that they may belong to are recorded, and the queues of namespaces.
        """
        await self.devices.settled.wait()
        await self.batch.settled.wait()
        await self.namespaces.settled.wait()
        self.observer.configure(self.devices.config)
        await self.observer.run(self._client)

    def _policy_checked(self, found: Checked) -> None:
        self.checks.checked(SCHEDULER_CONFIG, found.source, found.problems, found.warnings)
        self._ctx.ready(POLICY, True, detail_of(found.source, found.problems, found.warnings))

    def _use(self, event: PolicyLoaded) -> None:
        """Another policy takes effect."""
        self.recorder.put([event])
        self.devices.use(event.policy)
        for info in self.infos:
            info.use(event.policy)
        self.observer.use(event.policy)

    def _configured(self, event: DevicesConfigured) -> None:
        self.recorder.put([event])
        self.observer.configure(event.config)


async def _active(ctx: Context, world: World) -> None:
    """Wait for this replica's turn. A standby that is caught up is ready without listing."""
    with anyio.move_on_after(STANDBY_AFTER_S) as waiting:
        await world.active()
    if not waiting.cancelled_caught:
        return
    for condition in CONDITIONS[1:]:
        ctx.ready(condition, True, "standby: another watcher lists them")
    await world.active()
    for condition in CONDITIONS[1:]:
        ctx.ready(condition, False, "not listed yet")


async def _first_policy(ctx: Context) -> Loaded:
    settings = ctx.settings
    try:
        return await load_policy(settings.policy_file, settings.scheduler_names)
    except PolicyError as error:
        raise SettingsError(error.problems) from error


async def _check_device_files(ctx: Context) -> None:
    """Broken at the start, a file of the device configuration is an error of start-up."""
    settings = ctx.settings
    texts = DeviceTexts(places_of_files(settings.device_config_file, settings.node_config_file))
    for place in texts.places.all:
        await texts.read_file(place)
    if problems := texts.read(None).problems:
        raise SettingsError([f"{problem.place} {problem.message}" for problem in problems])


def _expose(
    ctx: Context,
    world: World,
    problems: Callable[[], Sequence[Problem]],
    late_by_namespace: Callable[[], Mapping[tuple[str, ...], int]],
) -> None:
    ctx.metrics.expose(
        "allot_objects_recorded_late",
        "objects whose owners change them, or make new ones, too often: recorded later",
        late_by_namespace,
        ("namespace",),
    )
    ctx.metrics.expose(
        "allot_device_config_problems",
        "problems of the newest device configuration, which is not active because of them",
        lambda: len(problems()),
    )
    ctx.metrics.expose(
        "allot_policy_problems",
        "problems of the newest scheduler configuration, which is not active because of them",
        lambda: policy_problem_count(world.fold.state),
    )
    ctx.metrics.expose(
        "allot_node_device_problems",
        "what is wrong with what a node says of its devices, for nodes with problems",
        lambda: node_device_problems(world.fold.state),
        ("node", "code"),
    )
    ctx.metrics.expose(
        "allot_held_back",
        "nodes and cards that are held back because pods did not start there",
        lambda: held_back(world.fold.state),
        ("node", "part"),
    )


def policy_problem_count(state: ClusterState) -> int:
    """How many problems the log tells of the newest scheduler configuration."""
    refused = state.config_checks.get(SCHEDULER_CONFIG)
    return 0 if refused is None else len(refused[1].problems)


def node_device_problems(state: ClusterState) -> Counter[tuple[str, ...]]:
    """How many problems each node has of each code."""
    return Counter(
        (name, problem.code)
        for name, node in state.nodes.items()
        if node.fact is not None
        for problem in node.fact.problems
    )


def held_back(state: ClusterState) -> Counter[tuple[str, ...]]:
    """For each node whether it is held back as a whole (``node``), and how many of its cards. Where
    pods of one or two namespaces died, it is held back for these only and may be well.
    """
    return Counter(
        (node, "card" if family else "node")
        for (node, family, _), health in state.health.items()
        if health.since and (health.concerns("") or not all(s.has_died for s in health.counted))
    )


def main() -> None:
    sys.exit(
        start_service(
            "allotment-watcher", WatcherSettings, run, "Watches Kubernetes and records facts."
        )
    )


if __name__ == "__main__":
    main()
