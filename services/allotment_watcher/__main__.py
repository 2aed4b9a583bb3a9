"""The watcher: Kubernetes → facts in the log. It never decides anything."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence

import anyio
import msgspec

from allotment.adapters import kube
from allotment.adapters.recorder import Recorder
from allotment.adapters.service import ServiceContext, start_service
from allotment.adapters.settings import SettingsError
from allotment.adapters.world import World, full_reporter, open_world, too_large_reporter
from allotment.core.policy import PolicyError
from allotment.core.state import ClusterState
from allotment_proto.events import SCHEDULER_CONFIG, DevicesConfigured
from allotment_proto.facts import Policy, Problem
from allotment_watcher.batch_watch import READY as BATCH
from allotment_watcher.batch_watch import BatchWatch
from allotment_watcher.config_checks import ConfigChecks, policy_problems
from allotment_watcher.device_source import DeviceTexts, places_of_files
from allotment_watcher.device_watch import READY, DeviceWatch, detail_of
from allotment_watcher.diary import Diary, subject_of
from allotment_watcher.learner import keep_learning
from allotment_watcher.npu_watch import NpuWatch
from allotment_watcher.observer import Observer
from allotment_watcher.policy_source import BUILT_IN, POLL_S, Loaded, fingerprint, load_policy
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.timekeeper import keep_time
from allotment_watcher.volume_watch import VolumeWatch

STANDBY_AFTER_S = 3.0
"""Longer than taking a free lease: who still waits then has an active one before it."""
POLICY = "policy"
CONDITIONS = ("kubernetes", POLICY, READY, BATCH, "pods", "nodes")

Context = ServiceContext[WatcherSettings]


async def run(ctx: Context) -> None:
    for condition in CONDITIONS:
        ctx.ready(condition, False, "not listed yet")
    loaded = await _first_policy(ctx)
    await _check_device_files(ctx)
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
    turn: Turn | None = None
    _expose(ctx, world, lambda: turn.devices.problems if turn else ())
    while True:
        await _active(ctx, world)
        state = world.fold.state
        loaded = await _current_policy(ctx, state, loaded)
        async with anyio.create_task_group() as group:
            turn = Turn(ctx, world, client, loaded)
            group.start_soon(turn.recorder.run)
            group.start_soon(turn.observer.audit, state)
            group.start_soon(_reload_policy, ctx, turn, loaded)
            group.start_soon(keep_learning, state, turn.recorder.put)
            group.start_soon(keep_time, state, turn.recorder.put)
            group.start_soon(turn.devices.run)
            group.start_soon(turn.npu.run)
            group.start_soon(turn.volumes.run)
            group.start_soon(turn.batch.run, client)
            group.start_soon(turn.observe)
            await world.lease.lost()
            ctx.log.warning("lease lost, another watcher takes over")
            group.cancel_scope.cancel()


class Turn:
    """The parts of one turn as the active watcher. It begins with what the log believes."""

    def __init__(self, ctx: Context, world: World, client: kube.KubeClient, loaded: Loaded) -> None:
        self._client = client
        self._ctx = ctx
        state, policy = world.fold.state, loaded.event.policy
        diary = Diary()
        diary.begin(state)
        world.fold.listeners[:] = [diary.took_effect]  # and no longer an earlier turn's
        by = f"watcher/{ctx.settings.instance}"
        self.recorder = Recorder(
            world.log, by, subject_of, full_reporter(ctx), too_large_reporter(ctx)
        )
        self.checks = ConfigChecks(state, self.recorder.put)
        self.batch = BatchWatch(ctx, state, self.recorder)
        self.npu = NpuWatch(ctx, client, policy, lambda nodes: self.observer.told_of(nodes))
        self.volumes = VolumeWatch(
            ctx,
            client,
            lambda: self.observer.volumes_changed(),
            lambda node: self.observer.limits_changed(node),
        )
        self.observer = Observer(ctx, policy, diary, self.recorder, self.npu, self.volumes)
        self.observer.images.begin(state)
        in_force = state.devices if state.devices_seq else None
        self.devices = DeviceWatch(
            ctx, client, policy, in_force, self._configured, self.checks.checked
        )
        if state.policy_seq == 0 or as_in_file(state.policy) != policy:
            self.recorder.put([loaded.event])
        self.policy_checked(loaded.problems)

    async def observe(self) -> None:
        """Nodes and pods, once it is known under which configuration to read them, and all groups
        and queues are told that they may belong to.
        """
        await self.devices.settled.wait()
        await self.batch.settled.wait()
        self.observer.configure(self.devices.config)
        await self.observer.run(self._client)

    def policy_checked(self, problems: Sequence[str]) -> None:
        """The policy's file was read, with these problems."""
        source = str(self._ctx.settings.policy_file or BUILT_IN)
        found = policy_problems(source, problems)
        self.checks.checked(SCHEDULER_CONFIG, source, found)
        self._ctx.ready(POLICY, True, detail_of(found))

    def use(self, loaded: Loaded) -> None:
        """Another policy takes effect."""
        self.recorder.put([loaded.event])
        self.devices.use(loaded.event.policy)
        self.npu.use(loaded.event.policy)
        self.observer.use(loaded.event.policy)

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


async def _current_policy(ctx: Context, state: ClusterState, earlier: Loaded) -> Loaded:
    """The file as it is now: it may have changed while another watcher was the active one."""
    try:
        return await load_policy(ctx.settings.policy_file, ctx.settings.scheduler_names)
    except PolicyError as error:
        _say_not_loaded(ctx, error)
        policy = as_in_file(state.policy) if state.policy_seq else earlier.event.policy
        event = msgspec.structs.replace(earlier.event, policy=policy)
        return earlier._replace(event=event, problems=error.problems)


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


async def _check_device_files(ctx: Context) -> None:
    """Broken at the start, a file of the device configuration is an error of start-up."""
    settings = ctx.settings
    texts = DeviceTexts(places_of_files(settings.device_config_file, settings.node_config_file))
    for place in texts.places.all:
        await texts.read_file(place)
    if problems := texts.read(None).problems:
        raise SettingsError([f"{problem.place} {problem.message}" for problem in problems])


async def _reload_policy(ctx: Context, turn: Turn, first: Loaded) -> None:
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
            turn.policy_checked(error.problems)
            continue
        for warning in loaded.warnings:
            ctx.log.warning(warning)
        if loaded.event.policy != in_force.event.policy:
            in_force = loaded
            ctx.log.info("policy loaded", source=loaded.event.source)
            turn.use(loaded)
        turn.policy_checked(())


def _expose(ctx: Context, world: World, problems: Callable[[], Sequence[Problem]]) -> None:
    ctx.metrics.expose(
        "allot_device_config_problems",
        "what is wrong with the newest device configuration, because of which it is not in force",
        lambda: len(problems()),
    )
    ctx.metrics.expose(
        "allot_policy_problems",
        "what is wrong with the newest scheduler configuration, so that it is not in force",
        lambda: policy_problem_count(world.fold.state),
    )
    ctx.metrics.expose(
        "allot_node_device_problems",
        "what is wrong with what a node says of its devices, for nodes with problems",
        lambda: node_device_problems(world.fold.state),
        ("node", "code"),
    )


def policy_problem_count(state: ClusterState) -> int:
    """How many problems the log tells of the newest scheduler configuration."""
    refused = state.config_refusals.get(SCHEDULER_CONFIG)
    return 0 if refused is None else len(refused[1].problems)


def node_device_problems(state: ClusterState) -> Counter[tuple[str, ...]]:
    """How many problems each node has of each code."""
    return Counter(
        (name, problem.code)
        for name, node in state.nodes.items()
        if node.fact is not None
        for problem in node.fact.problems
    )


def main() -> None:
    sys.exit(
        start_service(
            "allotment-watcher", WatcherSettings, run, "Watches Kubernetes and records facts."
        )
    )


if __name__ == "__main__":
    main()
