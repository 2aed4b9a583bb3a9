"""Following the log: every sequence exactly once, in order, through whatever happens on the way.

An ordered push consumer, made by us rather than by the client library, because three things must
be in our hands: flow control is answered by how much the *reader* has taken (so memory stays
bounded however slow the fold is), a gap is judged by the stream's own sequence, and nothing is
ever given up.

One consumer is never repaired. As soon as anything about it is doubtful (a gap, heartbeats
missing, a reconnect, a word from the server) it is left behind and a new one starts after the last
record that was handed out. Only three things end a follower: the log is shorter than what was
already read, the first message of a fresh consumer is not the one asked for, or the last record
that was read is another one now. All mean that history is missing.

Heartbeats say that a consumer lives, not that it delivers: one that is paused, or whose server has
a damaged copy of the stream, beats for ever. So the stream's leader is asked now and then where the
log ends, and a consumer that brings nothing of what is due is left behind like any other. When a
new one brings nothing either, the server is left for another.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

import anyio
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import BadSubscriptionError, ConnectionClosedError

from allotment.adapters.log.jetstream import ApiError, JetStream
from allotment.adapters.log.questions import Questions
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.logport import LogDamaged, LogUnavailable, Record

HEARTBEAT_S = 0.5
SILENCE_S_MAX = 1.5
BATCH_RECORDS_MAX = 1024
UNREAD_BYTES_MAX = 16 * 1024 * 1024
SHORT_LOG_PATIENCE_S = 3.0
RETRY_S = 0.1
LOOK_S = 1.0
"""How often the stream's leader is asked where the log ends."""
STALLED_S = 2.0
"""A consumer that brings nothing for so long, although the log grows, is left."""
STALLED_S_MAX = 30.0
"""The same after several consumers that brought nothing."""
CONSUMER_WITHIN_S = 2.0
"""A server that makes no consumer for so long is asked for records instead: a cluster makes none
while it elects its leader, but the log's own leader answers."""
ASKS_FOR_S = 10.0
"""For so long; then making a consumer is retried."""
MSG_ID = "Nats-Msg-Id"
DOOR = "log"
"""The door that the log's records come in by, in what is said of refused messages."""

log = logging.getLogger("allotment.log")


class LogEnd(NamedTuple):
    """Where the log ends, the bytes it takes, of the most it may take (0: no limit), and how many
    copies on other servers are not current.
    """

    seq: int
    bytes: int
    bytes_limit: int
    copies_behind: int


class Follower:
    """An endless read of one stream after `after_seq`. `consumer` names the current consumer.

    `on_end` hears where the log ends and how full it is, each time that the stream's leader said
    so. With `asks` it has no consumer and reads by questions.
    """

    def __init__(
        self,
        jetstream: JetStream,
        stream: str,
        after_seq: int,
        *,
        asks: bool = False,
        pending_msgs_max: int = 0,
        on_end: Callable[[LogEnd], None] = lambda _: None,
        refusals: Refusals | None = None,
    ) -> None:
        self._refusals = refusals
        self.consumer = ""
        self.refollows = 0
        self._on_end = on_end
        self._intake: Intake | Questions | None = None
        self._stalls = 0
        """How many consumers in a row were left because they brought nothing."""
        self._jetstream = jetstream
        self._stream = stream
        self._after_seq = after_seq
        self._asks = asks
        self._asks_until_s = 0.0
        """Until then it asks for records, by the monotonic clock: there was no consumer."""
        self._pending_msgs_max = pending_msgs_max

    async def batches(self) -> AsyncGenerator[list[Record]]:
        looking = asyncio.create_task(self._look_for_the_end(), name=f"end of {self._stream}")
        try:
            async with aclosing(self._consume()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            looking.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([looking])
        if not looking.cancelled():
            looking.result()  # a defect in it must not stay silent

    async def _consume(self) -> AsyncGenerator[list[Record]]:
        last: Record | None = None
        while True:
            await self._check_log_reaches()
            intake = self._intake = self._new_intake(last)
            self.consumer = ""
            try:
                self.consumer = await intake.start()
                while (batch := await intake.take()) is not None:
                    last = batch[-1]
                    self._after_seq, self._stalls = last.seq, 0
                    yield batch
                    if self._asks_until_s and time.monotonic() > self._asks_until_s:
                        self._asks_until_s = 0.0
                        break
            except (ApiError, LogUnavailable) as error:
                log.warning("log: cannot follow, trying again: %s", error)
                if isinstance(intake, Intake) and not self.consumer:
                    self._asks_until_s = time.monotonic() + ASKS_FOR_S
            finally:
                await intake.stop()
            if intake.is_another_log:
                raise LogDamaged(
                    f"{self._stream}: at {self._after_seq} stands another record than was read, "
                    "or none: it was cut short or replaced, and has grown again"
                )
            if intake.hole_before:
                raise LogDamaged(
                    f"{self._stream}: after {self._after_seq} comes {intake.hole_before}, "
                    "the records between are missing"
                )
            self.refollows += 1
            if intake.is_stalled:
                self._stalls += 1
                log.warning("log: following again after %d: %s", self._after_seq, intake.lost)
                if self._stalls > 1:
                    self._jetstream.connection.leave_server(intake.lost)
            else:
                log.info("log: following again after %d: %s", self._after_seq, intake.lost)
            await anyio.sleep(RETRY_S if intake.count == 0 else 0)

    def _new_intake(self, last: Record | None) -> "Intake | Questions":
        if self._asks or self._asks_until_s:
            return Questions(self._jetstream, self._stream, self._after_seq, last)
        return Intake(
            self._jetstream,
            self._stream,
            self._after_seq,
            last,
            self._refusals,
            pending_msgs_max=self._pending_msgs_max,
        )

    async def _look_for_the_end(self) -> None:
        """Ask where the log ends, for ever, and hold what the consumer brings against it."""
        while True:
            await anyio.sleep(LOOK_S)
            try:
                info = await self._jetstream.stream_info(self._stream)
            except (ApiError, LogUnavailable) as error:
                log.debug("log: its end is not known: %s", error)
                continue
            if info is None:
                continue  # the next consumer finds that out, and what it means
            last_seq = int(info["state"]["last_seq"])
            limit = int(info["config"].get("max_bytes", -1))
            copies = (info.get("cluster") or {}).get("replicas") or ()
            behind = sum(not copy.get("current") for copy in copies)
            self._on_end(LogEnd(last_seq, int(info["state"]["bytes"]), max(limit, 0), behind))
            if self._intake is not None:
                patience_s = min(STALLED_S * 2.0**self._stalls, STALLED_S_MAX)
                self._intake.compare(last_seq, patience_s)

    async def _check_log_reaches(self) -> None:
        """Raises LogDamaged when the log stays shorter than what was already read from it.

        A new leader may lag for a moment, hence the patience.
        """
        deadline = time.monotonic() + SHORT_LOG_PATIENCE_S
        while True:
            try:
                info = await self._jetstream.stream_info(self._stream)
                last_seq = 0 if info is None else int(info["state"]["last_seq"])
                first_seq = 0 if info is None else int(info["state"]["first_seq"])
            except (ApiError, LogUnavailable) as error:
                log.warning("log: cannot be looked at, trying again: %s", error)
                deadline = time.monotonic() + SHORT_LOG_PATIENCE_S
            else:
                if first_seq > self._after_seq + 1:
                    raise LogDamaged(
                        f"{self._stream} begins at {first_seq}, but {self._after_seq + 1} is to be "
                        "read next: that record has left the stream"
                    )
                if info is not None and last_seq >= self._after_seq:
                    return
                if time.monotonic() > deadline:
                    raise LogDamaged(
                        f"{self._stream} ends at {last_seq}, but {self._after_seq} was read: "
                        "it was cut short or replaced"
                    )
            await anyio.sleep(RETRY_S)


class Intake:
    """One consumer's life: gathers records until something about it is doubtful (`lost` says
    what).

    A message that names another consumer, or none, is refused and counted: nothing that another
    client sends here is taken for a record, for a gap or for damage.
    """

    def __init__(
        self,
        jetstream: JetStream,
        stream: str,
        after_seq: int,
        last: Record | None = None,
        refusals: Refusals | None = None,
        *,
        pending_msgs_max: int = 0,
    ) -> None:
        """`last` is the record at `after_seq` if it was read: it is read once more, and compared,
        because a log that lost its tail and grew again has another one there.
        """
        self.lost = ""
        self.is_stalled = False
        self.is_another_log = False
        self._last = last
        self._compared = 0
        """How many of this consumer's records were read before."""
        self.hole_before = 0
        self.count = 0
        self._jetstream = jetstream
        self._connection = jetstream.connection
        self._stream = stream
        self._name = f"follow-{secrets.token_hex(8)}"
        self._refusals = refusals
        self._pending_msgs_max = pending_msgs_max
        self._next_seq = after_seq + (last is None)
        self._consumer_seq = 0
        self._missed: tuple[int, float] | None = None
        """The sequence that is due although the log has it, and since when that is known."""
        self._batches: deque[list[Record]] = deque()
        self._bytes = 0
        self._flow_reply = ""
        self._wake = anyio.Event()
        self._subscription: Subscription | None = None

    async def start(self) -> str:
        """Subscribe, then create the consumer. Returns the consumer's name."""
        deliver, name = self._connection.new_inbox_subject(), self._name
        self._connection.on_reconnect.add(self._on_reconnect)
        self._subscription = await self._connection.client.subscribe(
            deliver,
            cb=self._on_message,
            pending_msgs_limit=self._pending_msgs_max,
            pending_bytes_limit=0,
        )
        config = {
            "name": name,
            "deliver_subject": deliver,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next_seq,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            "inactive_threshold": int(10e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        await self._jetstream.request(
            f"CONSUMER.CREATE.{self._stream}.{name}",
            {"stream_name": self._stream, "config": config, "action": "create"},
            budget_s=CONSUMER_WITHIN_S,
        )
        return name

    async def take(self) -> list[Record] | None:
        """What has gathered, waiting for the first; None when this consumer is lost."""
        await self._answer_flow_control()
        while not self._batches and not self.lost:
            self._wake = anyio.Event()
            with anyio.move_on_after(SILENCE_S_MAX) as silence:
                await self._wake.wait()
            if silence.cancelled_caught:
                self.lost = f"nothing received for {SILENCE_S_MAX} s"
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._bytes -= sum(len(record.payload) for record in batch)
        return batch

    def compare(self, last_seq: int, patience_s: float) -> None:
        """Doubt the consumer if the log ends at `last_seq` and it brings nothing for so long.

        What lies here unread is the reader's delay: only then the server may be waiting for us.
        """
        now = time.monotonic()
        if self._next_seq > last_seq or self._batches:
            self._missed = None
        elif self._missed is None or self._missed[0] != self._next_seq:
            self._missed = (self._next_seq, now)
        elif now - self._missed[1] >= patience_s and not self.lost:
            self.is_stalled = True
            self.lost = (
                f"the log ends at {last_seq}, but {self._next_seq} did not come within "
                f"{now - self._missed[1]:.1f} s"
            )
            self._wake.set()

    async def stop(self) -> None:
        """Leave the consumer behind; the server removes it when it has no subscriber."""
        self._connection.on_reconnect.discard(self._on_reconnect)
        if self._subscription is not None:
            with anyio.CancelScope(shield=True):
                try:
                    await self._subscription.unsubscribe()
                except (BadSubscriptionError, ConnectionClosedError):
                    log.debug("log: the connection was gone before the follower")

    async def _on_message(self, message: Msg) -> None:
        headers = message.headers or {}
        if self.lost:
            return
        if "Status" in headers:
            await self._on_control(headers, message.reply)
            return
        delivery = self._delivery_of(message.reply)
        if delivery is None:
            self._refuse(f"names no delivery of {self._name}: {message.reply!r}")
            return
        self._wake.set()
        seq, self._consumer_seq, time_ns = delivery
        if seq != self._next_seq:
            self.lost = f"{seq} came where {self._next_seq} was due"
            if seq < self._next_seq:
                return  # its server began it again after a restart, or has a copy that is behind
            if self._consumer_seq == 1 and self._last is not None:
                self.is_another_log = True
            elif self._consumer_seq == 1 + self._compared:
                self.hole_before = seq
            return
        self._next_seq += 1
        if self._last is not None:
            last, self._last = self._last, None
            self._compared = 1
            if (last.payload, last.subject) != (message.data, message.subject):
                self.is_another_log = True
                self.lost = f"at {seq} stands another record than was read"
            return
        self.count += 1
        self._bytes += len(message.data)
        if not self._batches or len(self._batches[-1]) == BATCH_RECORDS_MAX:
            self._batches.append([])
        self._batches[-1].append(
            Record(seq, message.subject, message.data, time_ns, headers.get(MSG_ID, ""))
        )

    def _delivery_of(self, reply: str) -> tuple[int, int, int] | None:
        """Stream sequence, consumer sequence and time of a record that our consumer delivered."""
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>,
        # with <domain>.<account> after ACK where domains are in use.
        tokens = reply.split(".")
        at = 5 if len(tokens) == 9 else 7
        if tokens[at - 3 : at - 1] != [self._stream, self._name]:
            return None
        try:
            return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2])
        except (ValueError, IndexError):
            return None

    def _refuse(self, cause: str) -> None:
        if self._refusals is not None:
            self._refusals.refuse(DOOR, "message", cause, name=self._stream)
        else:
            log.warning("log: a message was refused: %s", cause)

    async def _on_control(self, headers: dict[str, str], reply: str) -> None:
        if headers["Status"] != "100":
            self.lost = f"the server said {headers['Status']} {headers.get('Description', '')}"
            return
        asked = reply or headers.get("Nats-Consumer-Stalled", "")
        if asked and not asked.startswith(f"$JS.FC.{self._stream}.{self._name}."):
            self._refuse(f"asks for more in the name of another consumer: {asked!r}")
            return
        self._wake.set()
        self._flow_reply = asked or self._flow_reply
        delivered = headers.get("Nats-Last-Consumer", "")
        if delivered and delivered != str(self._consumer_seq):
            self.lost = f"the server delivered {delivered}, {self._consumer_seq} arrived"
        await self._answer_flow_control()

    async def _answer_flow_control(self) -> None:
        """Ask for more unless the reader is behind: the server sends no more than its window."""
        if (
            self._flow_reply
            and self._bytes < UNREAD_BYTES_MAX
            and await self._connection.send(self._flow_reply, b"")
        ):
            self._flow_reply = ""

    def _on_reconnect(self) -> None:
        self.lost = self.lost or "the connection was re-established"
        self._wake.set()
