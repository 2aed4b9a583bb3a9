"""One active replica: taken over when the holder dies, handed over when it leaves, never shared."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import anyio
import anyio.to_thread
import pytest
from tests.contract.proxy import proxy_to
from tests.waiting import patience, until

from allotment.adapters.log import lease as lease_module
from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.lease import RENEW_S, TTL_S, Lease, active_holders
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.logport import LogMisconfigured

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(nats_server: NatsServer) -> AsyncIterator[Connection]:
    async with connect(nats_server.url, "lease") as opened:
        yield opened


def lease_of(connection: Connection, name: str, holder: str) -> Lease:
    return Lease(connection, name=name, holder=holder)


async def test_it_is_held_by_one_and_kept(connection: Connection) -> None:
    name = uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(lease_of(connection, name, "a"))
        with patience():
            epoch = await first.acquired()
        assert epoch > 0
        second = await stack.enter_async_context(lease_of(connection, name, "b"))
        end_s = last_s = anyio.current_time()
        end_s += 1.5 * TTL_S
        while last_s < end_s:  # it is renewed, and the other keeps waiting
            await anyio.sleep(0.1)
            assert not (first.is_held and second.is_held)
            if anyio.current_time() - last_s > RENEW_S:
                return  # this process stood still for so long that the lease may well be lost
            last_s = anyio.current_time()
            assert first.is_held
        assert await first.acquired() == epoch


async def test_anybody_can_see_who_holds_it(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, others = uuid.uuid4().hex, uuid.uuid4().hex
    jetstream = JetStream(connection)
    async with lease_of(connection, name, "a") as lease:
        with patience():
            await lease.acquired()
        assert await active_holders(jetstream, (name,)) == {name: "a"}
        later_ns = time.time_ns() + 3_600_000_000_000  # the clock of who looks is an hour ahead
        with monkeypatch.context() as patched:
            patched.setattr(time, "time_ns", lambda: later_ns)
            assert await active_holders(jetstream, (name,)) == {name: "a"}
        await connection.client.publish(f"allot.lease.{others}", b"junk")
        assert await active_holders(jetstream, (name, others)) == {name: "a", others: ""}
        record = await jetstream.last_on_subject("ALLOTMENT_LEASES", f"allot.lease.{name}")
        assert record is not None
    assert await active_holders(jetstream, (name,)) == {name: ""}  # it was handed back
    await connection.client.publish(f"allot.lease.{name}", record.payload)  # and never forgotten
    await anyio.sleep(TTL_S + RENEW_S)
    assert await active_holders(jetstream, (name,)) == {name: ""}


async def test_leaving_hands_it_over_at_once(connection: Connection) -> None:
    name = uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(lease_of(connection, name, "a"))
        with patience():
            epoch = await first.acquired()
        async with lease_of(connection, name, "b") as second:
            await anyio.sleep(0.1)
            await stack.aclose()
            assert not first.is_held
            with patience():
                assert await second.acquired() > epoch


async def test_a_dead_holder_is_replaced_within_seconds(nats_server: NatsServer) -> None:
    """The holder's network dies without a word: it stops by its own clock, the other takes over."""
    name = uuid.uuid4().hex
    async with (
        proxy_to(nats_server.url) as proxy,
        connect(proxy.url, "a") as cut_off,
        connect(nats_server.url, "b") as healthy,
        lease_of(cut_off, name, "a") as first,
    ):
        with patience():
            epoch = await first.acquired()
        async with lease_of(healthy, name, "b") as second:
            proxy.drops = lambda chunk: True
            proxy.refuses = True
            proxy.cut()
            with patience():
                await first.lost()
                assert not first.is_held
                assert await second.acquired() > epoch
            assert not first.is_held


async def test_a_holder_that_was_frozen_knows_by_its_own_clock_before_it_hears_anything(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it ran for longer than the server keeps its record: another one may be active."""
    ahead_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr(lease_module, "time", clock)
    async with lease_of(connection, uuid.uuid4().hex, "a") as lease:
        with patience():
            epoch = await lease.acquired()
        assert lease.is_held
        ahead_s = float(lease_module.TTL_S)
        assert not lease.is_held
        with patience():
            await lease.lost()
            assert await lease.acquired() > epoch


async def test_who_is_renewed_after_it_ran_out_loses_it_and_gets_it_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binder that saw it run out ended its life, and waited to hear of that for ever."""
    ahead_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr(lease_module, "time", clock)
    async with lease_of(connection, uuid.uuid4().hex, "a") as lease:
        with patience():
            epoch = await lease.acquired()
        write = lease._write

        async def late(*said: Any, **more: Any) -> bool:
            nonlocal ahead_s
            landed = await write(*said, **more)
            ahead_s = TTL_S - RENEW_S + 0.1  # answered late, so that it had run out
            return landed

        monkeypatch.setattr(lease, "_write", late)
        ahead_s = TTL_S / 2  # and sent late, so that the next one comes in time
        with anyio.fail_after(20):
            await lease.lost()
            assert await lease.acquired() > epoch


async def test_a_restarted_server_keeps_or_returns_the_lease(own_nats_server: NatsServer) -> None:
    async with (
        connect(own_nats_server.url, "a", reconnect_wait_s=0.05) as connection,
        lease_of(connection, "filter", "a") as lease,
    ):
        with patience():
            epoch = await lease.acquired()
        await anyio.to_thread.run_sync(own_nats_server.kill)
        with patience():
            await lease.lost()
        assert not lease.is_held
        await anyio.to_thread.run_sync(own_nats_server.start)
        with patience():
            assert await lease.acquired() > epoch


async def test_a_lost_answer_does_not_lose_the_lease(nats_server: NatsServer) -> None:
    name = uuid.uuid4().hex
    async with (
        proxy_to(nats_server.url) as proxy,
        connect(proxy.url, "a") as connection,
        lease_of(connection, name, "a") as lease,
    ):
        with patience():
            epoch = await lease.acquired()
        proxy.drops = lambda chunk: b'"seq":' in chunk and proxy.dropped < 2
        await anyio.sleep(2.5)
        assert proxy.dropped == 2
        assert lease.is_held
        assert lease.epoch == epoch


async def test_a_stream_that_never_forgets_is_refused(own_nats_server: NatsServer) -> None:
    async with connect(own_nats_server.url, "a") as connection:
        await JetStream(connection).request(
            "STREAM.CREATE.ALLOTMENT_LEASES",
            {"name": "ALLOTMENT_LEASES", "subjects": ["allot.lease.>"]},
        )
        with pytest.raises(LogMisconfigured, match="allow_msg_ttl is False, must be True"):
            async with lease_of(connection, "filter", "a"):
                raise AssertionError("must not be entered")


@pytest.mark.parametrize(("ttl_s", "renew_s"), [(0, 0.1), (1, 0.6)])
async def test_nonsense_times_are_refused(
    connection: Connection, ttl_s: int, renew_s: float
) -> None:
    with pytest.raises(ValueError, match="ttl_s"):
        Lease(connection, name="filter", holder="a", ttl_s=ttl_s, renew_s=renew_s)


JUNK = {
    file.name: file.read_bytes()
    for file in sorted((Path(__file__).parents[1] / "corpus" / "lease").iterdir())
}


@pytest.mark.parametrize("kind", JUNK)
async def test_junk_is_written_over_by_the_holder(connection: Connection, kind: str) -> None:
    """A record that is no claim, and that the server never forgets, came to end every holder."""
    name, refusals = uuid.uuid4().hex, Refusals(MagicMock())
    lease = Lease(connection, name=name, holder="a", refusals=refusals)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(lease)
        with patience():
            epoch = await first.acquired()
        second = await stack.enter_async_context(lease_of(connection, name, "b"))
        assert await connection.send(f"allot.lease.{name}", JUNK[kind])
        await until(lambda: refusals.total == {("lease", "Claim"): 1})
        newest = JetStream(connection)
        record = None
        with patience():
            while record is None or record.payload == JUNK[kind]:
                record = await newest.last_on_subject("ALLOTMENT_LEASES", f"allot.lease.{name}")
        assert b'"holder":"a"' in record.payload
        assert first.is_held
        assert not second.is_held
        assert await first.acquired() == epoch


@pytest.mark.parametrize("left", [b"junk", b'{"holder":"x","token":"y"}'])
async def test_what_nobody_renews_holds_nobody_up(connection: Connection, left: bytes) -> None:
    """Junk, or a claim without a TTL, is the newest record when services start."""
    name = uuid.uuid4().hex
    async with lease_of(connection, uuid.uuid4().hex, "z"):  # the stream is there
        assert await connection.send(f"allot.lease.{name}", left)
    async with lease_of(connection, name, "a") as lease:
        with patience():
            assert await lease.acquired() > 0


async def test_a_loop_that_dies_gives_the_lease_up(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode(_: Lease) -> None:
        await anyio.sleep(0.1)
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Lease, "_hold", explode)
    lease = lease_of(connection, uuid.uuid4().hex, "a")
    with patience():
        await lease.__aenter__()
        await lease.acquired()
        await lease.lost()
        assert not lease.is_held
        with pytest.raises(ZeroDivisionError):
            await lease.acquired()
        with pytest.raises(ZeroDivisionError):
            await lease.__aexit__(None, None, None)
