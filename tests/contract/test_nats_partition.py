"""A server that is cut off from its cluster answers pings and does no work: its clients leave it.

Each test is bounded: a server that is left at all is left within seconds.
"""

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from tests.contract.nats_cluster import nats_cluster
from tests.contract.proxy import proxy_to
from tests.waiting import patience

from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.core.logport import Landed, LogMisconfigured, LogUnavailable, Record

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

FACT = "allot.log.node.n1"


async def opened(connection: Connection) -> JetStreamLog:
    """The log, once the cluster has a leader."""
    with patience():
        while True:
            try:
                return await JetStreamLog.open(connection, replicas=3, budget_s=5)
            except (LogMisconfigured, LogUnavailable):
                await anyio.sleep(0.2)


async def append(log: JetStreamLog, first: int, last: int) -> None:
    for n in range(first, last + 1):
        while True:
            try:
                answer = await log.append(FACT, b"%d" % n, msg_id=f"f/{n}")
            except LogUnavailable:
                continue  # sent again with the same id: it lands once
            assert isinstance(answer, Landed)
            break


async def test_a_server_that_is_cut_off_is_left_for_another(tmp_path: Path) -> None:
    """Its clients keep their connection to it; nobody else can be told of the trouble there."""
    seen: list[Record] = []
    all_seen = anyio.Event()
    async with (
        nats_cluster(tmp_path) as cluster,
        connect(cluster.urls, "test") as connection,
    ):
        log = await opened(connection)

        async def follow() -> None:
            async with aclosing(log.follow(0)) as batches:
                async for batch in batches:
                    seen.extend(batch)
                    if len(seen) == 40:
                        all_seen.set()

        async with (
            Lease(connection, name="role", holder="a", replicas=3) as lease,
            anyio.create_task_group() as group,
        ):
            group.start_soon(follow)
            with patience():
                await lease.acquired()
                await append(log, 1, 20)
            server = connection.server
            cluster.cut_off(server)
            begun_s = anyio.current_time()
            with patience():
                await append(log, 21, 40)
                await lease.acquired()
            print(f"{anyio.current_time() - begun_s:.1f} s after the cut")
            assert connection.server != server
            assert connection.leaves >= 1
            with patience():
                await all_seen.wait()
            group.cancel_scope.cancel()
    assert [record.seq for record in seen] == list(range(1, 41))
    assert [record.payload for record in seen] == [b"%d" % n for n in range(1, 41)]


async def test_a_server_without_another_to_go_to_is_kept(own_nats_server: NatsServer) -> None:
    """Answers get lost for longer than patience lasts: no reconnect, and the trouble is told."""
    async with proxy_to(own_nats_server.url) as proxy, connect(proxy.url, "test") as connection:
        log = await JetStreamLog.open(connection, budget_s=10)
        proxy.drops = lambda chunk: b"stream_info_response" in chunk
        with pytest.raises(LogUnavailable):
            await log.last_seq()
        assert connection.unanswered.seconds()["read"] >= 9
        assert (connection.leaves, connection.reconnects) == (0, 0)
        proxy.drops = lambda chunk: False
        assert await log.last_seq() == 0
        assert connection.unanswered.seconds() == {}


async def test_a_subject_that_is_forbidden_is_no_reason_to_leave(tmp_path: Path) -> None:
    """No other server would allow it."""
    users = 'authorization { users: [ {user: a, password: a, permissions: { publish: "x" } } ] }'
    with NatsServer(tmp_path / "nats", extra_config=users) as server:
        url = server.url.replace("nats://", "nats://a:a@")
        async with connect([url, url.replace("127.0.0.1", "localhost")], "test") as connection:
            with pytest.raises((LogUnavailable, LogMisconfigured)):
                await JetStreamLog.open(connection, budget_s=7)
            assert connection.leaves == 0
