"""The bus carries hints: it may lose messages, never headers, order or the connection."""

import uuid
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest
from tests.waiting import PATIENCE_S, patience

from allotment.adapters.log.bus import Bus, InsideBus, Message
from allotment.adapters.log.connection import Connection, NatsUnavailable, connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_server import NatsServer
from allotment.core.logport import LogUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(nats_server: NatsServer) -> AsyncIterator[Connection]:
    async with connect(nats_server.url, "bus") as opened:
        yield opened


@pytest.fixture(params=["wire", "inside"])
async def bus(
    connection: Connection, subject: str, request: pytest.FixtureRequest
) -> AsyncIterator[Bus]:
    """Across the wire, and within a process."""
    if request.param == "wire":
        yield Bus(connection)
        return
    async with anyio.create_task_group() as group:
        yield InsideBus(connection, None, [subject], group)
        group.cancel_scope.cancel()


class Inbox:
    """Collects messages, and says when there are enough."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.grown = anyio.Event()

    async def take(self, message: Message) -> None:
        self.messages.append(message)
        self.grown.set()

    async def await_count(self, count: int) -> list[Message]:
        with patience():
            while len(self.messages) < count:
                self.grown = anyio.Event()
                await self.grown.wait()
        return self.messages


@pytest.fixture
def subject() -> str:
    return f"t.{uuid.uuid4().hex}"


async def test_messages_arrive_with_their_headers(connection: Connection, subject: str) -> None:
    bus, inbox = Bus(connection), Inbox()
    await bus.subscribe(f"{subject}.*", inbox.take)
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert await bus.publish(f"{subject}.a", b"\x00\xff", trace) is None
    assert await bus.publish(f"{subject}.b", b"") is None
    first, second = await inbox.await_count(2)
    assert first == Message(f"{subject}.a", b"\x00\xff", trace, "")
    assert second == Message(f"{subject}.b", b"", {}, "")


async def test_messages_arrive_in_order_one_at_a_time(bus: Bus, subject: str) -> None:
    inbox, busy = Inbox(), anyio.Lock()

    async def take(message: Message) -> None:
        busy.acquire_nowait()
        await anyio.lowlevel.checkpoint()
        await inbox.take(message)
        busy.release()

    await bus.subscribe(subject, take)
    sent = [Message(subject, b"%d" % n, {"n": str(n)}, "") for n in range(20)]
    for each in sent:
        assert await bus.publish(subject, each.payload, each.headers) is None
    assert await inbox.await_count(20) == sent


async def test_what_is_not_said_inside_crosses_the_wire(
    connection: Connection, subject: str
) -> None:
    async with anyio.create_task_group() as group:
        bus, other = InsideBus(connection, None, [subject], group), Bus(connection)
        said, overheard = Inbox(), Inbox()
        for one in (subject, f"{subject}.out"):
            await bus.subscribe(one, said.take)
            await other.subscribe(one, overheard.take)
        await bus.publish(subject, b"in")
        await bus.publish(f"{subject}.out", b"out")
        await other.publish(subject, b"from others")
        assert {message.payload for message in await said.await_count(2)} == {b"in", b"out"}
        heard = {message.payload for message in await overheard.await_count(2)}
        assert heard == {b"out", b"from others"}
        assert len(said.messages) == 2
        group.cancel_scope.cancel()


async def test_a_queue_gives_each_message_to_one(connection: Connection, subject: str) -> None:
    bus, one, two = Bus(connection), Inbox(), Inbox()
    await bus.subscribe(subject, one.take, "workers")
    await bus.subscribe(subject, two.take, "workers")
    for n in range(40):
        await bus.publish(subject, b"%d" % n)
    with patience():
        while len(one.messages) + len(two.messages) < 40:
            await anyio.lowlevel.checkpoint()
    payloads = {message.payload for message in one.messages + two.messages}
    assert payloads == {b"%d" % n for n in range(40)}


async def test_a_reply_has_headers_of_its_own(connection: Connection, subject: str) -> None:
    bus = Bus(connection)

    async def answer(message: Message) -> None:
        await bus.reply(message, b"re: " + message.payload, {"traceparent": "theirs"})

    await bus.subscribe(subject, answer)
    got = await bus.request(subject, b"why", timeout_s=5, headers={"traceparent": "ours", "x": "1"})
    assert got is not None
    assert (got.payload, got.headers) == (b"re: why", {"traceparent": "theirs"})


async def test_nobody_to_answer_is_a_value(connection: Connection, subject: str) -> None:
    with patience():
        assert await Bus(connection).request(subject, b"", timeout_s=10 * PATIENCE_S) is None


async def test_a_slow_subscriber_loses_its_own_messages_only(
    bus: Bus, connection: Connection, subject: str
) -> None:
    quick, gate = Inbox(), anyio.Event()

    async def slow(message: Message) -> None:
        await gate.wait()

    stuck = await bus.subscribe(subject, slow, pending_messages_max=10)
    await bus.subscribe(subject, quick.take)
    for n in range(200):
        await bus.publish(subject, b"%d" % n)
    await quick.await_count(200)
    assert stuck.dropped >= 180
    assert connection.connected
    gate.set()


async def test_a_failing_handler_is_counted_and_goes_on(
    bus: Bus, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()

    async def handle(message: Message) -> None:
        await inbox.take(message)
        if message.payload == b"bad":
            raise ValueError("planted")

    subscription = await bus.subscribe(subject, handle)
    await bus.publish(subject, b"bad")
    await bus.publish(subject, b"good")
    await inbox.await_count(2)
    assert subscription.failed == 1
    assert "planted" in caplog.text


async def test_unsubscribed_means_silence(bus: Bus, subject: str) -> None:
    gone, here = Inbox(), Inbox()
    subscription = await bus.subscribe(subject, gone.take)
    await bus.subscribe(subject, here.take)
    await subscription.unsubscribe()
    await bus.publish(subject, b"1")
    await here.await_count(1)
    assert gone.messages == []


async def test_what_cannot_be_sent_is_dropped_and_counted(own_nats_server: NatsServer) -> None:
    async with connect(own_nats_server.url, "bus", reconnect_wait_s=0.05) as connection:
        bus, inbox = Bus(connection), Inbox()
        await bus.subscribe("t.a", inbox.take)
        assert await bus.publish("t.a", b"x" * (connection.max_payload_bytes + 1)) == "too_large"
        await anyio.to_thread.run_sync(own_nats_server.kill)
        with patience():
            while await bus.publish("t.a", b"lost") != "disconnected":
                await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(own_nats_server.start)
        assert await connection.wait_connected(PATIENCE_S)
        assert await bus.publish("t.a", b"after") is None  # the subscription came back too
        assert (await inbox.await_count(1))[-1].payload == b"after"
        assert bus.drops == {"too_large": 1, "disconnected": 1}


async def test_no_server_is_an_error_that_says_where() -> None:
    where = r"no connection to nats://127\.0\.0\.1:9: connection refused$"
    with pytest.raises(NatsUnavailable, match=where):
        async with connect("nats://127.0.0.1:9", "bus", connect_within_s=0.5):
            raise AssertionError("must not be entered")


async def test_a_connection_that_ends_for_good_says_so(nats_server: NatsServer) -> None:
    async with connect(nats_server.url, "bus") as connection:
        connection.client._max_payload = 2**30  # so that the client sends what the server hates
        await connection.client.publish("t.big", b"x" * (9 * 1024 * 1024))
        with patience():
            lost = await connection.wait_lost()
        assert "ended for good" in str(lost)
        assert not connection.connected
        assert await Bus(connection).publish("t.a", b"") == "disconnected"


async def test_credentials_and_permissions(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A refused password ends the attempt; a forbidden subject is named, not merely silent."""
    users = """authorization { users: [
      { user: watcher, password: secret, permissions: { publish: { deny: "allot.log.decision" } } }
    ] }"""
    server = NatsServer(tmp_path_factory.mktemp("users"), extra_config=users)
    await anyio.to_thread.run_sync(server.start)
    try:
        wrong = Credentials(user="watcher", password="wrong")
        with patience(), pytest.raises(NatsUnavailable, match="Authorization Violation"):
            async with connect(server.url, "bus", credentials=wrong):
                raise AssertionError("must not be entered")
        right = Credentials(user="watcher", password="secret")
        async with connect(server.url, "bus", credentials=right) as connection:
            log = await JetStreamLog.open(connection)  # a stream may take its time to be created
            log._budget_s = 0.5
            with pytest.raises(LogUnavailable, match=r"(?i)permissions violation"):
                await log.compare_and_append("allot.log.decision", b"", msg_id="1", expected_seq=0)
    finally:
        await anyio.to_thread.run_sync(server.stop)
