"""Services that share a process share one world, from its first record until the last has left."""

import io
from collections import defaultdict
from pathlib import Path

import anyio
import pytest
from tests.build import node
from tests.waiting import until

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.settings import CommonSettings, SettingsError, load
from allotment.adapters.service.world import Part, Together, World, open_world
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.adapters.telemetry.traces import start_tracing
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import Envelope
from allotment_scheduler.settings import PARTS, SchedulerSettings, settings_of

NAMES = ("allotment-early", "allotment-late")
LATE_S = 0.3


async def append(server: NatsServer) -> None:
    async with connect(server.url, "test") as connection:
        log = await JetStreamLog.open(connection)
        payload = encode(Envelope(at_ms=1, by="test", events=(node(),)))
        await log.append(subjects.FACTS, payload, msg_id="1")


@pytest.mark.anyio
async def test_each_part_hears_the_first_record_and_has_the_world_until_it_leaves(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    await append(own_nats_server)
    heard, worlds = defaultdict[str, list[int]](list), dict[str, World]()
    connected_at_end = dict[str, bool]()

    async def live(part: Part[CommonSettings]) -> None:
        pause_s = LATE_S * NAMES.index(part.name)
        await anyio.sleep(pause_s)
        async with open_world(part, makes_log=pause_s > 0) as world:
            worlds[part.name] = world
            world.fold.listeners.append(lambda record, _: heard[part.name].append(record.seq))
            with part.until_stop():
                await anyio.sleep_forever()
            await anyio.sleep(pause_s)
            connected_at_end[part.name] = world.connection.connected

    tracer = start_tracing("test", "0", {"OTEL_SDK_DISABLED": "true"})
    logger = Logger(LogSink("test", "0", stream=io.StringIO()))
    settings = CommonSettings(nats_url=own_nats_server.url, snapshot_dir=tmp_path)
    async with anyio.create_task_group() as group:
        metrics = ServiceMetrics("allotment-scheduler")
        ctx = ServiceContext("allotment-scheduler", settings, logger, metrics, tracer, group)
        together = Together(ctx, NAMES)
        for name in NAMES:
            group.start_soon(live, Part(together, ctx, name, settings))
        group.start_soon(together.run)
        await until(lambda: ctx.readiness.is_ready and "log" in ctx.readiness.figures)
        assert heard == {name: [1] for name in NAMES}
        early, late = worlds.values()
        assert early is late
        ctx.request_stop()
    assert connected_at_end == dict.fromkeys(NAMES, True)
    assert list((tmp_path / "scheduler").iterdir()), "a snapshot of the one state"


def test_the_scheduler_has_the_settings_of_all_its_parts() -> None:
    argv = ("--roles", "binder,filter,scorer", "--no-bind", "--batch-max", "7", "--http-port", "1")
    whole = load(SchedulerSettings, argv, {"ALLOT_CARD_METRICS": "no"}, "x", "y")
    parts = {role: settings_of(role, whole) for role in PARTS}
    changed = {
        (role, name)
        for role, part in parts.items()
        for name in part.__struct_fields__
        if name != "instance" and getattr(part, name) != getattr(PARTS[role](), name)
    }
    own = {("binder", "bind"), ("filter", "batch_max"), ("scorer", "card_metrics")}
    assert changed == own | {(role, "http_port") for role in PARTS}


WRONG = ("filter,scorer", "watcher,binder", "filter,scorer,binder,binder", "controller", ",")


@pytest.mark.parametrize("roles", WRONG)
def test_filter_scorer_and_binder_share_a_process_or_run_apart(roles: str) -> None:
    with pytest.raises(SettingsError, match="roles"):
        load(SchedulerSettings, ("--roles", roles), {}, "x", "y")
