"""Messages between services: bytes with headers, handed over and forgotten.

A pipeline message is a hint. It may be lost, doubled, late or reordered, so nothing here waits for
anybody: what cannot be sent now is dropped and counted, a subscriber that cannot keep up loses the
newest messages and gets their number, and neither ever holds up the connection the log uses.

Services do not know whether their messages cross a wire: `InsideBus` hands some of them over within
the process.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Literal

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import BadSubscriptionError, ConnectionClosedError

from allotment.adapters.log.connection import Connection, TooLarge
from allotment.adapters.telemetry.refusals import Refusals

PENDING_MESSAGES_MAX = 4096
PENDING_BYTES_MAX = 64 * 1024 * 1024
SENDS_PER_YIELD = 64

BUS = "bus"
"""The door that messages come in by, in what is said of refused ones."""
Drop = Literal["disconnected", "stalled", "too_large"]

log = logging.getLogger("allotment.bus")


class Message(msgspec.Struct, frozen=True):
    """One message as it arrived. `reply` is where an answer is awaited, "" for nowhere."""

    subject: str
    payload: bytes
    headers: dict[str, str]
    reply: str


class Subscription:
    """An interest in a subject, until `unsubscribe`.

    `dropped` counts messages lost because the callback was too slow, `failed` those whose callback
    raised: they are refused, and the next ones handled.
    """

    def __init__(
        self,
        connection: Connection,
        callback: Callable[[Message], Awaitable[None]],
        refusals: Refusals | None,
    ) -> None:
        self.failed = 0
        self._refusals = refusals
        self._connection = connection
        self._callback = callback
        self._subscription: NatsSubscription | None = None

    @property
    def dropped(self) -> int:
        assert self._subscription is not None
        return self._connection.slow_consumer_drops[self._subscription._id]

    async def unsubscribe(self) -> None:
        """Stop. Messages that arrived and were not handled yet are dropped."""
        assert self._subscription is not None
        with anyio.CancelScope(shield=True):
            try:
                await self._subscription.unsubscribe()
            except (BadSubscriptionError, ConnectionClosedError):
                log.debug("bus: the connection was gone before the subscription")

    async def start(self, subject: str, queue: str, messages_max: int, bytes_max: int) -> None:
        self._subscription = await self._connection.client.subscribe(
            subject,
            queue=queue,
            cb=self._take,
            pending_msgs_limit=messages_max,
            pending_bytes_limit=bytes_max,
        )

    async def _take(self, message: Msg) -> None:
        headers = dict(message.headers or {})
        await self._handle(Message(message.subject, message.data, headers, message.reply))

    async def _handle(self, message: Message) -> None:
        try:
            await self._callback(message)
        except Exception as error:  # the next message may well be handled
            self.failed += 1
            if self._refusals is not None:
                self._refusals.refuse(BUS, "message", error, name=message.subject)
            else:
                log.exception("bus: the handler of %s failed", message.subject)


class Bus:
    """Publish and subscribe over one connection. `drops` counts what was not sent, by reason."""

    def __init__(self, connection: Connection, refusals: Refusals | None = None) -> None:
        self.drops: Counter[Drop] = Counter()
        self._connection = connection
        self._refusals = refusals
        self._sends = 0

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Drop | None:
        """Hand one message over, or say why it was dropped. Never waits for the wire."""
        return await self._send(subject, payload, "", headers)

    async def reply(
        self, message: Message, payload: bytes, headers: dict[str, str] | None = None
    ) -> Drop | None:
        """Answer a message with headers of its own; does nothing when no answer is awaited."""
        if not message.reply:
            return None
        return await self._send(message.reply, payload, "", headers)

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_s: float,
        headers: dict[str, str] | None = None,
    ) -> Message | None:
        """Ask once; None when there was no answer in time, no subscriber, or it was not sent."""
        try:
            answer = await self._connection.request(
                subject, payload, timeout_s=timeout_s, headers=headers
            )
        except TooLarge as error:
            self._drop(subject, "too_large", error)
            return None
        if answer is None:
            return None
        return Message(answer.subject, answer.data, dict(answer.headers or {}), answer.reply)

    async def subscribe(
        self,
        subject: str,
        callback: Callable[[Message], Awaitable[None]],
        queue: str = "",
        *,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> Subscription:
        """Call `callback` for each message, one at a time, in order of arrival.

        With `queue`, each message goes to one subscriber of that name. The callback runs with the
        context variables of this call, not the sender's: read `headers` for the trace.
        """
        subscription = Subscription(self._connection, callback, self._refusals)
        await subscription.start(subject, queue, pending_messages_max, pending_bytes_max)
        return subscription

    async def _send(
        self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None
    ) -> Drop | None:
        self._sends += 1
        if self._sends % SENDS_PER_YIELD == 0:  # the client itself never lets others run
            await anyio.lowlevel.checkpoint()
        try:
            if await self._connection.send(subject, payload, reply=reply, headers=headers):
                return None
        except TooLarge as error:
            return self._drop(subject, "too_large", error)
        return self._drop(subject, "stalled" if self._connection.connected else "disconnected")

    def _drop(self, subject: str, reason: Drop, error: Exception | None = None) -> Drop:
        self.drops[reason] += 1
        if error is not None:
            log.error("bus: %s dropped: %s", subject, error)
        return reason


class InsideBus(Bus):
    """The same for a process that holds all senders and receivers of the subjects `inside`: their
    messages are handed over in memory, and all others cross the wire. `group` delivers them.
    """

    def __init__(
        self,
        connection: Connection,
        refusals: Refusals | None,
        inside: Collection[str],
        group: TaskGroup,
    ) -> None:
        super().__init__(connection, refusals)
        self._group = group
        self._receivers: dict[str, list[_Inside]] = {subject: [] for subject in inside}

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Drop | None:
        if subject not in self._receivers:
            return await super().publish(subject, payload, headers)
        message = Message(subject, payload, headers or {}, "")
        for receiver in self._receivers[subject]:
            receiver.put(message)
        return None

    async def subscribe(
        self,
        subject: str,
        callback: Callable[[Message], Awaitable[None]],
        queue: str = "",
        *,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> Subscription:
        if subject not in self._receivers:
            return await super().subscribe(
                *(subject, callback, queue),
                pending_messages_max=pending_messages_max,
                pending_bytes_max=pending_bytes_max,
            )
        receiver = _Inside(self._connection, callback, self._refusals, pending_messages_max)
        self._receivers[subject].append(receiver)
        self._group.start_soon(receiver.run, self._receivers[subject])
        return receiver


class _Inside(Subscription):
    """A subscription whose messages do not leave the process; their bytes are there anyway."""

    def __init__(
        self,
        connection: Connection,
        callback: Callable[[Message], Awaitable[None]],
        refusals: Refusals | None,
        messages_max: int,
    ) -> None:
        super().__init__(connection, callback, refusals)
        self._dropped = 0
        self._scope = anyio.CancelScope()
        self._in, self._out = anyio.create_memory_object_stream[Message](messages_max)

    @property
    def dropped(self) -> int:
        return self._dropped

    def put(self, message: Message) -> None:
        try:
            self._in.send_nowait(message)
        except anyio.WouldBlock:
            self._dropped += 1

    async def run(self, receivers: "list[_Inside]") -> None:
        """Deliver until `unsubscribe`; then this is no longer one of the receivers."""
        async with self._in, self._out:
            try:
                with self._scope:
                    async for message in self._out:
                        await self._handle(message)
            finally:
                receivers.remove(self)

    async def unsubscribe(self) -> None:
        self._scope.cancel()
