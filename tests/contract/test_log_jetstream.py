"""What only a real server can do to the log: die, hang, stay silent, delete, fill up.

Each test is one trap. All of them end the same way: every record that was acknowledged is there
once, in order, and the follower saw it once.
"""

import asyncio
import io
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from nats.aio.msg import Msg
from tests.contract.proxy import proxy_to
from tests.waiting import patience, until

from allotment.adapters.log import follow
from allotment.adapters.log.connection import Connection, connect
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.follow import Follower, Intake
from allotment.adapters.log.jetstream import Answer, ApiError, Failure, JetStream
from allotment.adapters.log.log import JetStreamLog, _is_final, refusal
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.logport import (
    Landed,
    LogDamaged,
    LogUnavailable,
    Record,
    Refused,
)

pytestmark = pytest.mark.anyio

FACT = "allot.log.node.n1"
DECISION = "allot.log.decision"
BOTH_WAYS = pytest.mark.parametrize("asks", [False, True])
"""With a consumer, and by questions."""


@asynccontextmanager
async def opened(
    server: NatsServer, *, url: str = "", ping_interval_s: float = 2.0, max_bytes: int = -1
) -> AsyncIterator[tuple[Connection, JetStreamLog]]:
    async with connect(
        url or server.url, "test", reconnect_wait_s=0.05, ping_interval_s=ping_interval_s
    ) as connection:
        yield connection, await JetStreamLog.open(connection, max_bytes=max_bytes)


async def collect(follower: Follower | JetStreamLog, count: int) -> list[Record]:
    """The first `count` records a follower hands out."""
    source = follower.batches() if isinstance(follower, Follower) else follower.follow(0)
    records: list[Record] = []
    async with aclosing(source) as batches:
        async for batch in batches:
            records += batch
            if len(records) >= count:
                return records
    raise AssertionError("a follower never ends")


async def append_facts(log: JetStreamLog, first: int, last: int) -> None:
    for n in range(first, last + 1):
        assert isinstance(await log.append(FACT, b"%d" % n, msg_id=f"f/{n}"), Landed)


def assert_each_once(records: list[Record], count: int) -> None:
    assert [record.seq for record in records] == list(range(1, count + 1))
    assert [record.payload for record in records] == [b"%d" % n for n in range(1, count + 1)]


async def test_a_killed_server_loses_and_doubles_nothing(own_nats_server: NatsServer) -> None:
    """kill -9 twice, amid pipelined facts and a chain of decisions, followed both ways."""
    server, decided, decisions_due, facts = own_nats_server, [0], 400, 800

    async with opened(server) as (connection, log):
        seen: list[Record] = []
        asked: list[Record] = []
        asking = Follower(JetStream(connection), log.stream, 0, asks=True)

        async def decide() -> None:
            for n in range(1, decisions_due + 1):
                result = await log.compare_and_append(
                    DECISION, b"d%d" % n, msg_id=f"d/{n}", expected_seq=decided[-1]
                )
                assert isinstance(result, Landed)
                decided.append(result.seq)

        async def state(first: int) -> None:
            await append_facts(log, first, first + facts // 4 - 1)

        async def follow() -> None:
            seen.extend(await collect(log, decisions_due + facts))

        async def ask() -> None:
            asked.extend(await collect(asking, decisions_due + facts))

        with patience():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                tasks.start_soon(ask)
                tasks.start_soon(decide)
                for first in range(1, facts, facts // 4):
                    tasks.start_soon(state, first)
                for due in (decisions_due // 4, decisions_due // 2):
                    await until(lambda due=due: len(decided) > due)  # type: ignore[misc]
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.to_thread.run_sync(server.start)

        assert [record.seq for record in seen] == list(range(1, decisions_due + facts + 1))
        assert asked == seen
        decisions = [record for record in seen if record.subject == DECISION]
        payloads = [record.payload for record in decisions]
        assert payloads == [b"d%d" % n for n in range(1, decisions_due + 1)]
        assert [record.seq for record in decisions] == decided[1:]
        assert len({record.msg_id for record in seen}) == decisions_due + facts


async def test_a_hung_server_is_noticed_and_left(own_nats_server: NatsServer) -> None:
    """SIGSTOP with our socket buffer full: the client alone would wait for ever."""
    server = own_nats_server
    async with opened(server, ping_interval_s=0.25) as (connection, log):
        await append_facts(log, 1, 5)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with patience():
                sent = 0
                while await connection.send("elsewhere", b"x" * 65536):
                    sent += 1
                    await anyio.lowlevel.checkpoint()
                assert sent < 1000, "what is outstanding is bounded"
                await until(lambda: not connection.connected)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        with patience():
            await append_facts(log, 6, 10)
        assert_each_once(await collect(log, 10), 10)


async def test_leaving_a_hung_server_takes_seconds_not_for_ever(
    own_nats_server: NatsServer,
) -> None:
    server = own_nats_server
    try:
        with patience():
            async with connect(server.url, "test") as connection:
                os.kill(server.pid, signal.SIGSTOP)
                while await connection.send("elsewhere", b"x" * 65536):
                    await anyio.lowlevel.checkpoint()
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_an_append_into_a_hung_server_lands_once_it_wakes(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_nats_server
    async with opened(server) as (connection, log):
        send, sent, is_given_up = connection.send, 0, False

        async def counted(*given: Any, **more: Any) -> bool:
            nonlocal sent
            sent += 1
            return await send(*given, **more)

        monkeypatch.setattr(connection, "send", counted)
        os.kill(server.pid, signal.SIGSTOP)

        async def wake() -> None:
            nonlocal is_given_up
            try:
                # a process that stood still may find the connection given up before it sends again,
                # or at all
                await until(lambda: sent > 1 or not connection.connected)
                is_given_up = not connection.connected
            finally:
                os.kill(server.pid, signal.SIGCONT)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wake)
            result = await log.compare_and_append(DECISION, b"1", msg_id="d/1", expected_seq=0)
        assert isinstance(result, Landed)
        assert log.resends >= 1 or is_given_up
        assert await log.last_seq() == 1


async def test_acknowledgements_that_never_come_are_settled_by_resending(
    own_nats_server: NatsServer,
) -> None:
    async with (
        proxy_to(own_nats_server.url) as proxy,
        opened(own_nats_server, url=proxy.url) as (_, log),
    ):
        proxy.drops = lambda chunk: b'"seq":' in chunk and proxy.dropped < 2
        result = await log.compare_and_append(DECISION, b"1", msg_id="d/1", expected_seq=0)
        assert result == Landed(1, duplicate=True)
        assert proxy.dropped == 2
        proxy.drops = lambda chunk: b'"seq":' in chunk and proxy.dropped < 4
        assert await log.append(FACT, b"2", msg_id="f/2") == Landed(2, duplicate=True)
        assert_each_once(await collect(log, 2), 2)


async def test_a_cut_network_during_an_append_is_settled(own_nats_server: NatsServer) -> None:
    async with (
        proxy_to(own_nats_server.url) as proxy,
        opened(own_nats_server, url=proxy.url) as (connection, log),
    ):
        proxy.drops = lambda chunk: True
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                await anyio.sleep(0.1)
                proxy.drops = lambda chunk: False
                proxy.cut()

            tasks.start_soon(cut)
            result = await log.compare_and_append(DECISION, b"1", msg_id="d/1", expected_seq=0)
        assert result == Landed(1, duplicate=True)
        assert connection.reconnects >= 1


async def test_a_refused_resend_of_what_landed_is_ours(own_nats_server: NatsServer) -> None:
    """Once the id is forgotten the server refuses the resend; only the record itself can tell."""
    async with connect(own_nats_server.url, "test") as connection:
        jetstream = JetStream(connection)
        window = {"duplicate_window": 100_000_000}
        await jetstream.request("STREAM.CREATE.L", {"name": "L", "subjects": ["l.>"], **window})
        log = JetStreamLog(jetstream, "L", identity="L")
        assert await log.compare_and_append("l.d", b"1", msg_id="1", expected_seq=0) == Landed(1)
        assert await log.compare_and_append("l.d", b"2", msg_id="2", expected_seq=1) == Landed(2)
        await anyio.sleep(0.3)
        again = await log.compare_and_append("l.d", b"1", msg_id="1", expected_seq=0)
        assert again == Landed(1, duplicate=True)
        other = await log.compare_and_append("l.d", b"3", msg_id="1", expected_seq=0)
        assert isinstance(other, Refused)
        assert other.last_subject_seq == 2


async def test_the_budget_ends_in_unavailable_never_in_a_guess(
    own_nats_server: NatsServer,
) -> None:
    async with connect(own_nats_server.url, "test") as connection:
        log = await JetStreamLog.open(connection)  # a stream may take its time to be created
        log._budget_s = 0.5
        await anyio.to_thread.run_sync(own_nats_server.kill)
        with pytest.raises(LogUnavailable, match="not connected"):
            await log.compare_and_append(DECISION, b"1", msg_id="1", expected_seq=0)
        with pytest.raises(LogUnavailable):
            await log.append(FACT, b"1", msg_id="1")


async def test_a_cancelled_flush_does_not_deafen_the_connection(nats_server: NatsServer) -> None:
    async with connect(nats_server.url, "test") as connection:
        for _ in range(5):
            flush = asyncio.create_task(connection.client.flush())
            await asyncio.sleep(0)
            flush.cancel()
            await asyncio.wait([flush])
        heard = anyio.Event()

        async def hear(message: object) -> None:
            heard.set()

        await connection.client.subscribe("flush.test", cb=hear)
        await connection.send("flush.test", b"")
        with patience():
            await heard.wait()
        assert connection.reconnects == 0


async def test_a_slow_reader_notices_the_gap_and_follows_anew(
    own_nats_server: NatsServer,
) -> None:
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 100)
        follower = Follower(JetStream(connection), log.stream, 0, pending_msgs_max=16)
        with patience():
            assert_each_once(await collect(follower, 100), 100)
        assert follower.refollows >= 1
        assert sum(connection.slow_consumer_drops.values()) >= 1


async def test_a_reader_that_pauses_is_not_sent_more_than_it_can_hold(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.adapters.log.follow.UNREAD_BYTES_MAX", 100_000)
    async with opened(own_nats_server) as (connection, log):
        for n in range(1000):
            await log.append(FACT, b"x" * 20_000, msg_id=f"f/{n}")
        follower = Follower(JetStream(connection), log.stream, 0)
        seqs: list[int] = []
        received_at_first = connection.client.stats["in_bytes"]
        with patience():
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    if not seqs:
                        await anyio.sleep(0.7)
                        held = connection.client.stats["in_bytes"] - received_at_first
                        assert held < 10_000_000, (
                            "the server goes on sending to a reader that sleeps"
                        )
                    seqs += [record.seq for record in batch]
                    if len(seqs) == 1000:
                        break
        assert seqs == list(range(1, 1001))
        assert follower.refollows == 0


async def test_a_deleted_consumer_is_replaced(own_nats_server: NatsServer) -> None:
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 10)
        jetstream = JetStream(connection)
        follower = Follower(jetstream, log.stream, 0)
        seen: list[Record] = []
        with patience():
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    seen += batch
                    if len(seen) == 10:
                        await jetstream.request(f"CONSUMER.DELETE.{log.stream}.{follower.consumer}")
                        await append_facts(log, 11, 20)
                    if len(seen) == 20:
                        break
        assert_each_once(seen, 20)
        assert follower.refollows >= 1


async def test_a_consumer_that_its_server_begins_again_is_replaced(
    own_nats_server: NatsServer,
) -> None:
    """A server of a cluster that restarts makes its consumers anew: they begin where they once
    began, for the same inbox. That is no hole in the log.
    """
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 5)
        jetstream = JetStream(connection)
        follower = Follower(jetstream, log.stream, 0)
        async with aclosing(follower.batches()) as batches:
            got = [record.seq for record in await anext(batches)]
            while len(got) < 5:
                got += [record.seq for record in await anext(batches)]
            at = f"{log.stream}.{follower.consumer}"
            config = (await jetstream.request(f"CONSUMER.INFO.{at}"))["config"]
            await jetstream.request(f"CONSUMER.DELETE.{at}")
            wanted = {"stream_name": log.stream, "config": config, "action": "create"}
            await jetstream.request(f"CONSUMER.CREATE.{at}", wanted)
            await append_facts(log, 6, 7)
            with patience():
                while len(got) < 7:
                    got += [record.seq for record in await anext(batches)]
        assert got == list(range(1, 8))


class _Behind(JetStream):
    """A server whose copy ends early: a consumer begins there, not at the record asked for."""

    behind = False

    async def request(
        self, verb: str, body: dict[str, Any] | None = None, **given: Any
    ) -> dict[str, Any]:
        if self.behind and body and verb.startswith("CONSUMER.CREATE"):
            self.behind = False
            body["config"]["opt_start_seq"] = 2
        return await super().request(verb, body, **given)


async def test_a_consumer_of_a_copy_that_is_behind_is_replaced(own_nats_server: NatsServer) -> None:
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 5)
        jetstream = _Behind(connection)
        follower = Follower(jetstream, log.stream, 0)
        got: list[int] = []
        with patience():
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    got += [record.seq for record in batch]
                    if len(got) == 5:
                        jetstream.behind = True
                        at = f"CONSUMER.DELETE.{log.stream}.{follower.consumer}"
                        await jetstream.request(at)
                        await append_facts(log, 6, 7)
                    if len(got) == 7:
                        break
        assert got == list(range(1, 8))
        assert not jetstream.behind


async def test_what_another_sends_to_a_follower_is_refused_and_counted(
    own_nats_server: NatsServer,
) -> None:
    """The records of another consumer, and whatever else: no gap, no damage, no fresh start."""
    said = io.StringIO()
    refusals = Refusals(Logger(LogSink("watcher", "0", stream=said)))
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 20)
        follower = Follower(JetStream(connection), log.stream, 0, refusals=refusals)
        seen: list[Record] = []
        with patience():
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    seen += batch
                    if len(seen) == 20:
                        await inject(connection, log.stream, follower)
                        await until(lambda: refusals.total["log", "message"] >= 20 + len(STRANGE))
                        await append_facts(log, 21, 40)
                    if len(seen) == 40:
                        break
        assert_each_once(seen, 40)
        assert follower.refollows == 0
        assert "names no delivery of follow-" in said.getvalue()


ACK = "$JS.ACK.ALLOTMENT_LOG"
STRANGE: tuple[tuple[str, dict[str, str]], ...] = (
    ("", {}),
    ("allot.log.decision", {}),
    (f"{ACK}.other.1.7.1.1.0", {}),
    (f"{ACK}.other.1.x.y.z.0", {}),
    ("$JS.ACK.d.a.ALLOTMENT_LOG.other.1.7.1.1.0.r", {}),
    ("$JS.FC.ALLOTMENT_LOG.other.x", {"Status": "100"}),
    ("", {"Status": "100", "Nats-Consumer-Stalled": "allot.log.decision"}),
)
"""Replies and headers of messages that are not the follower's."""


async def inject(connection: Connection, stream: str, follower: Follower) -> None:
    assert isinstance(follower._intake, Intake)
    assert follower._intake._subscription is not None
    inbox = follower._intake._subscription.subject
    for reply, headers in STRANGE:  # a server forbids to send some of them
        message = Msg(connection.client, inbox, reply, b"7", headers or None)
        await follower._intake._on_message(message)
    config = {"name": "other", "deliver_subject": inbox, "ack_policy": "none"}
    await JetStream(connection).request(
        f"CONSUMER.CREATE.{stream}.other", {"stream_name": stream, "config": config}
    )


async def test_inboxes_cannot_be_guessed(nats_server: NatsServer) -> None:
    """The client library's own differ in their last characters only."""
    async with connect(nats_server.url, "test", inbox_prefix="_INBOX_test") as connection:
        names = [connection.new_inbox_subject() for _ in range(100)]
    assert all(name.startswith("_INBOX_test.") for name in names)
    assert len({name[:28] for name in names}) == 100, "16 characters of chance"


async def test_a_consumer_that_beats_and_delivers_nothing_is_left(
    own_nats_server: NatsServer,
) -> None:
    """Paused by the API its heartbeats go on, as they do when a server's copy is damaged."""
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 10)
        jetstream = JetStream(connection)
        seen: list[Record] = []
        async with aclosing(log.follow(0)) as batches:
            while len(seen) < 10:
                seen += await anext(batches)
            (follower,) = log.followers
            paused = follower.consumer
            await jetstream.request(
                f"CONSUMER.PAUSE.{log.stream}.{paused}", {"pause_until": "2199-01-01T00:00:00Z"}
            )
            await append_facts(log, 11, 20)
            with patience():
                while len(seen) < 20:
                    seen += await anext(batches)
        assert_each_once(seen, 20)
        assert follower.consumer != paused
        assert log.end_seq == 20
        assert connection.reconnects == 0


async def test_a_server_on_which_one_consumer_after_the_other_stalls_is_left(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are paused from their first moment, as on a server whose copy is damaged."""
    monkeypatch.setattr("allotment.adapters.log.follow.LOOK_S", 0.1)
    monkeypatch.setattr("allotment.adapters.log.follow.STALLED_S", 0.3)
    made: list[str] = []

    class Stalling(JetStream):
        async def request(
            self, verb: str, body: dict[str, Any] | None = None, **more: Any
        ) -> dict[str, Any]:
            if verb.startswith("CONSUMER.CREATE"):
                made.append(verb)
                if len(made) <= 2:
                    assert body is not None
                    body["config"]["pause_until"] = "2199-01-01T00:00:00Z"
            return await super().request(verb, body, **more)

    url = own_nats_server.url
    async with connect([url, url.replace("127.0.0.1", "localhost")], "test") as connection:
        log = await JetStreamLog.open(connection)
        await append_facts(log, 1, 10)
        with patience():
            assert_each_once(await collect(Follower(Stalling(connection), log.stream, 0), 10), 10)
            await until(lambda: connection.leaves == 1)
        assert len(made) >= 3


async def test_a_reader_that_takes_its_time_is_not_taken_for_a_stalled_consumer(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.adapters.log.follow.UNREAD_BYTES_MAX", 100)
    monkeypatch.setattr("allotment.adapters.log.follow.LOOK_S", 0.05)
    monkeypatch.setattr("allotment.adapters.log.follow.STALLED_S", 0.2)
    async with opened(own_nats_server) as (_, log):
        await append_facts(log, 1, 3000)
        seen: list[Record] = []
        async with aclosing(log.follow(0)) as batches:
            async for batch in batches:
                seen += batch
                await anyio.sleep(0.5)
                if len(seen) == 3000:
                    break
            assert_each_once(seen, 3000)
            assert log.refollows == 0


async def test_a_full_log_refuses_and_keeps_what_it_has(own_nats_server: NatsServer) -> None:
    async with opened(own_nats_server, max_bytes=4096) as (_, log):
        results = [await log.append(FACT, b"x" * 500, msg_id=f"f/{n}") for n in range(10)]
        landed = [result for result in results if isinstance(result, Landed)]
        refused = [result for result in results if isinstance(result, Refused)]
        assert landed
        assert {result.reason for result in refused} == {"full"}
        decision = await log.compare_and_append(DECISION, b"x" * 500, msg_id="d", expected_seq=0)
        assert isinstance(decision, Refused)
        assert decision.reason == "full"
        assert len(await collect(log, len(landed))) == len(landed)


async def test_a_record_too_large_for_the_server_is_refused_here(
    own_nats_server: NatsServer,
) -> None:
    async with opened(own_nats_server) as (connection, log):
        for size in (connection.max_payload_bytes - 10, connection.max_payload_bytes + 1):
            refused = await log.append(FACT, b"x" * size, msg_id=f"f/{size}")
            assert isinstance(refused, Refused)
            assert refused.reason == "too_large"
        assert connection.connected
        assert await log.append(FACT, b"1", msg_id="f/1") == Landed(1)


@BOTH_WAYS
async def test_a_missing_record_is_damage(own_nats_server: NatsServer, asks: bool) -> None:
    async with connect(own_nats_server.url, "test") as connection:
        jetstream = JetStream(connection)
        await jetstream.request("STREAM.CREATE.L", {"name": "L", "subjects": ["l.>"]})
        log = JetStreamLog(jetstream, "L", identity="L")
        for n in range(1, 6):
            await log.append("l.f", b"%d" % n, msg_id=f"{n}")
        await jetstream.request("STREAM.MSG.DELETE.L", {"seq": 3})
        with patience(), pytest.raises(LogDamaged, match="after 2 comes 4"):
            await collect(Follower(jetstream, "L", 0, asks=asks), 5)


@BOTH_WAYS
async def test_a_log_that_was_replaced_is_damage(own_nats_server: NatsServer, asks: bool) -> None:
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 5)
        follower = Follower(JetStream(connection), log.stream, 0, asks=asks)
        async with aclosing(follower.batches()) as batches:
            assert len(await anext(batches)) == 5
            await JetStream(connection).request(f"STREAM.DELETE.{log.stream}")
            replaced = await JetStreamLog.open(connection)
            assert replaced.identity != log.identity
            with patience(), pytest.raises(LogDamaged, match="ends at 0"):
                await anext(batches)


@BOTH_WAYS
async def test_a_log_that_was_replaced_and_has_grown_past_what_was_read_is_damage(
    own_nats_server: NatsServer, asks: bool
) -> None:
    """As after a restore from an older copy: its end is far enough, its records are others."""
    async with opened(own_nats_server) as (connection, log):
        await append_facts(log, 1, 5)
        follower = Follower(JetStream(connection), log.stream, 0, asks=asks)
        async with aclosing(follower.batches()) as batches:
            assert len(await anext(batches)) == 5
            await JetStream(connection).request(f"STREAM.DELETE.{log.stream}")
            replaced = await JetStreamLog.open(connection)
            for n in range(1, 9):
                await replaced.append(FACT, b"other %d" % n, msg_id=f"o/{n}")
            with patience(), pytest.raises(LogDamaged, match="at 5 stands another"):
                await anext(batches)


def test_an_earlier_send_that_is_still_on_its_way_settles_nothing() -> None:
    """As three copies say of a resend while the leader is cut off: to be asked again."""
    for code in (10158, 10164):
        answer = {"error": {"code": 409, "err_code": code, "description": "in process"}}
        assert not _is_final(json.dumps(answer).encode())


@pytest.mark.anyio
async def test_a_cluster_without_a_leader_is_unavailable_and_no_error(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question in a message ended scorer and binder, and the inspector did not wait for it."""
    failure = {"code": 503, "err_code": 10008, "description": "temporarily unavailable"}

    async def answered(*_: Any, **__: Any) -> Answer:
        return Answer(json.dumps({"error": failure}).encode(), 1)

    async with connect(nats_server.url, "leaderless") as connection:
        log = await JetStreamLog.open(
            connection, stream="LEADERLESS", subjects=("leaderless.>",), allow_unsynced=True
        )
        monkeypatch.setattr("allotment.adapters.log.jetstream.ask", answered)
        for question in (log.last_seq(), log.last_on("leaderless.a"), log.record(1)):
            with pytest.raises(LogUnavailable, match="temporarily unavailable"):
                await question
        fold = Fold(log, Logger(LogSink("scorer", "s-0", stream=io.StringIO())))
        monkeypatch.setattr("allotment.adapters.log.fold.REACH_S", 0.01)
        assert not await fold.reach(1)


def test_only_refusals_of_the_record_itself_are_refusals() -> None:
    full = refusal(Failure(503, 10077, "maximum bytes exceeded"))
    assert full is not None
    assert full.reason == "full"
    stale = refusal(Failure(400, 10071, "wrong last sequence: 12"))
    assert stale is not None
    assert (stale.reason, stale.last_subject_seq) == ("wrong_last_sequence", 12)
    assert refusal(Failure(503, 10077, "some passing trouble")) is None
    assert refusal(Failure(400, 10164, "wrong last sequence")) is None


@pytest.mark.parametrize("how", ["unanswered", "refused"])
async def test_a_server_that_makes_no_consumer_is_asked_for_records_meanwhile(
    own_nats_server: NatsServer, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster makes none while it elects its leader; the log's own leader answers."""
    monkeypatch.setattr(follow, "ASKS_FOR_S", 0.5)
    request, made = JetStream.request, anyio.Event()

    async def without(self: JetStream, verb: str, *args: Any, **named: Any) -> dict[str, Any]:
        if not verb.startswith("CONSUMER.CREATE"):
            return await request(self, verb, *args, **named)
        if is_able:
            made.set()
            return await request(self, verb, *args, **named)
        if how == "refused":
            raise ApiError(verb, Failure(500, 10026, "maximum consumers limit reached"))
        raise LogUnavailable(f"{verb}: no answer")

    is_able = False
    monkeypatch.setattr(JetStream, "request", without)
    async with opened(own_nats_server) as (connection, log):
        follower = Follower(JetStream(connection), log.stream, 0)
        for number in range(5):
            await log.append(FACT, b"%d" % number, msg_id=f"a{number}")
        seen: list[int] = []

        async def read() -> None:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    seen.extend(record.seq for record in batch)

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await until(lambda: seen == [1, 2, 3, 4, 5])
            assert not follower.consumer
            is_able = True
            number = 5
            with patience():
                while not made.is_set():
                    await log.append(FACT, b"more", msg_id=f"a{number}")
                    number += 1
                    await anyio.sleep(0.1)
            await log.append(FACT, b"last", msg_id="last")
            await until(lambda: seen == list(range(1, number + 2)))
            assert follower.consumer
            group.cancel_scope.cancel()


@pytest.mark.parametrize(("resends", "wanted"), [(True, range(2, 9)), (False, range(1, 2))])
async def test_a_request_whose_repeat_would_be_refused_is_sent_once(
    nats_server: NatsServer, resends: bool, wanted: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    async def lose(self: Connection, subject: str, *args: Any, **named: Any) -> bool:
        sent.append(subject)
        return True

    monkeypatch.setattr(Connection, "send", lose)
    async with connect(nats_server.url, "test") as connection:
        with pytest.raises(LogUnavailable):
            await JetStream(connection, budget_s=1.0).request("STREAM.RESTORE.L", resends=resends)
    assert len(sent) in wanted
