"""One active replica: taken over when the holder dies, handed over when it leaves, never shared."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest
from tests.contract.proxy import proxy_to
from tests.waiting import patience

from allotment.adapters.connection import Connection, connect
from allotment.adapters.jetstream import JetStream
from allotment.adapters.lease import Lease
from allotment.adapters.nats_server import NatsServer
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
    async with lease_of(connection, name, "a") as first, lease_of(connection, name, "b") as second:
        with patience():
            epoch = await first.acquired()
        assert epoch > 0
        for _ in range(30):  # longer than the TTL: it is renewed, and the other keeps waiting
            await anyio.sleep(0.1)
            assert first.is_held
            assert not second.is_held
        assert await first.acquired() == epoch


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
