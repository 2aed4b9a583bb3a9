"""One connection to NATS, with the client's traps closed.

The client library is sound while everything goes well. What this module adds is for the other times:

* a late answer to a ping whose waiter gave up must not end the reader (`GuardedClient`);
* a server that hangs without closing, with our socket buffer full, is never noticed by the client:
  the watchdog aborts the transport when nothing was heard for too long;
* what is outstanding is bounded here, because a blocked publish ignores cancellation and buffers
  without limit: `send` refuses while disconnected or when too much is pending;
* answers are matched by our own inboxes, so that a repeated question accepts the answer to any of its
  sends, and every open question is woken at once by a reconnect.
"""

import asyncio
import itertools
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, OutboundBufferLimitError, SlowConsumerError

PENDING_BYTES_MAX = 1024 * 1024
TICK_S = 0.25
ABORT_AFTER_S = 0.5
CLOSE_WITHIN_S = 1.0

log = logging.getLogger("allotment.nats")


class NatsUnavailable(Exception):
    """No connection: the servers cannot be reached, refuse us, or closed the connection for good."""


class TooLarge(Exception):
    """A message larger than the server takes. Sending it would end the connection."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to prove who we are. Paths are files; everything is optional."""

    user: str | None = None
    password: str | None = None
    creds_file: str | None = None
    nkey_seed_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    def options(self) -> dict[str, Any]:
        """The client's connect options. Reads the TLS files: call it outside the event loop."""
        options: dict[str, Any] = {
            "user": self.user,
            "password": self.password,
            "user_credentials": self.creds_file,
            "nkeys_seed": self.nkey_seed_file,
        }
        if self.tls_ca_file or self.tls_cert_file:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            if self.tls_cert_file:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
            options["tls"] = context
        return {name: value for name, value in options.items() if value is not None}


class GuardedClient(Client):  # type: ignore[misc] # the library is untyped
    """The client with two repairs: late pongs, and sockets left behind by failed connects."""

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # its waiter was cancelled or timed out
            self._pongs.pop(0)
            self._pongs_received += 1
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _connect_to_server(self, server: Srv) -> None:
        self.abort()
        await super()._connect_to_server(server)

    @property
    def heard(self) -> tuple[int, int, int]:
        """Changes whenever anything arrived from the server."""
        return self.stats["in_msgs"], self._pongs_received, self.stats["reconnects"]

    @property
    def reconnecting_ended(self) -> bool:
        """Whether the client gave up reconnecting by an error it did not expect."""
        task = self._reconnection_task
        return bool(self.is_reconnecting and task is not None and task.done())

    def abort(self) -> None:
        """Drop the socket now, without waiting for what is still to be written."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    @property
    def is_stuck_closing(self) -> bool:
        """Whether a closed socket waits for a server that does not read."""
        writer = getattr(self._transport, "_io_writer", None)
        return (
            writer is not None
            and writer.transport.is_closing()
            and writer.transport.get_write_buffer_size() > 0
        )


class Inbox:
    """One place for answers to one question, however often it is sent."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._answers: list[Msg] = []
        self._wake = anyio.Event()

    def put(self, answer: Msg) -> None:
        self._answers.append(answer)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def next(self, timeout_s: float) -> Msg | None:
        """The next answer; None after `timeout_s` or when the connection was re-established."""
        if not self._answers:
            self._wake = anyio.Event()
            with anyio.move_on_after(timeout_s):
                await self._wake.wait()
        return self._answers.pop(0) if self._answers else None


class Connection:
    """What the adapters share: send, ask, subscribe, and the state for `/readyz` and metrics."""

    def __init__(self, name: str, ping_interval_s: float) -> None:
        self.name = name
        self.client = GuardedClient()
        self.slow_consumer_drops: Counter[int] = Counter()  # by subscription id
        self.permission_errors: list[str] = []
        self.on_reconnect: set[Callable[[], None]] = set()
        self.on_refused: Callable[[], None] | None = None
        self.aborts = 0
        self._silence_s_max = ping_interval_s * 4
        self._errors: Counter[str] = Counter()
        self._inboxes: dict[str, Inbox] = {}
        self._tokens = itertools.count(1)
        self._inbox_prefix = ""
        self._up = anyio.Event()
        self._lost = anyio.Event()
        self._closing = False

    @property
    def connected(self) -> bool:
        return bool(self.client.is_connected)

    @property
    def can_send(self) -> bool:
        return self.connected and self.client.pending_data_size < PENDING_BYTES_MAX

    @property
    def reconnects(self) -> int:
        return int(self.client.stats["reconnects"])

    @property
    def max_payload_bytes(self) -> int:
        return int(self.client.max_payload)

    @property
    def server_version(self) -> str:
        """The version the connected server reports, "" when it does not."""
        return str(self.client._server_info.get("version", ""))

    async def wait_connected(self, timeout_s: float) -> bool:
        """Whether there is a connection, after waiting up to `timeout_s` for one."""
        with anyio.move_on_after(timeout_s):
            await self._up.wait()
        return self.connected

    async def wait_lost(self) -> NatsUnavailable:
        """Returns only when the connection ended for good unasked: the process should end too."""
        await self._lost.wait()
        return NatsUnavailable(f"the connection of {self.name} ended for good: {self.last_error}")

    @property
    def last_error(self) -> str:
        error = self.client.last_error
        return "" if error is None else _line(error)

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> bool:
        """Hand one message to the connection; False when it cannot take it now.

        True does not mean that it will arrive. Raises TooLarge.
        """
        header_bytes = sum(len(k) + len(v.encode()) + 4 for k, v in (headers or {}).items()) + 12
        if len(payload) + header_bytes > self.max_payload_bytes:
            raise TooLarge(
                f"{subject}: {len(payload) + header_bytes} bytes, "
                f"the server takes {self.max_payload_bytes}"
            )
        if not self.can_send:
            return False
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except (OutboundBufferLimitError, ConnectionClosedError):
            return False
        return True

    @contextmanager
    def inbox(self) -> Iterator[Inbox]:
        """An inbox for one question; answers that come after the block are dropped."""
        token = str(next(self._tokens))
        inbox = self._inboxes[token] = Inbox(f"{self._inbox_prefix}.{token}")
        try:
            yield inbox
        finally:
            del self._inboxes[token]

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_s: float,
        headers: dict[str, str] | None = None,
    ) -> Msg | None:
        """Ask once; None when there was no answer in time, or nobody to answer."""
        with self.inbox() as inbox:
            if not await self.send(subject, payload, reply=inbox.subject, headers=headers):
                return None
            answer = await inbox.next(timeout_s)
        return None if answer is None or is_no_responders(answer) else answer

    def new_inbox_subject(self) -> str:
        return str(self.client.new_inbox())

    async def _take_answer(self, message: Msg) -> None:
        inbox = self._inboxes.get(message.subject.rpartition(".")[2])
        if inbox is not None:
            inbox.put(message)

    async def _open(self, servers: list[str], inbox_prefix: str, options: dict[str, Any]) -> None:
        await self.client.connect(
            servers,
            name=self.name,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            inbox_prefix=inbox_prefix,
            **options,
        )
        self._inbox_prefix = self.new_inbox_subject()
        await self.client.subscribe(
            f"{self._inbox_prefix}.*",
            cb=self._take_answer,
            pending_msgs_limit=0,
            pending_bytes_limit=0,
        )
        self._up.set()

    async def _on_error(self, error: Exception) -> None:
        """Runs in the reader: only take note. `_report` writes the lines."""
        if isinstance(error, SlowConsumerError):
            self.slow_consumer_drops[error.sid] += 1
        text = _line(error)
        if "permissions violation" in text.lower() and text not in self.permission_errors[-100:]:
            self.permission_errors.append(text)
        if "authorization violation" in text.lower() and self.on_refused is not None:
            self.on_refused()
        if text in self._errors or len(self._errors) < 100:
            self._errors[text] += 1

    async def _on_disconnected(self) -> None:
        if self._up.is_set():
            self._up = anyio.Event()

    async def _on_reconnected(self) -> None:
        self._up.set()
        for wake in [inbox.wake for inbox in self._inboxes.values()] + list(self.on_reconnect):
            wake()

    async def _on_closed(self) -> None:
        if not self._closing:
            log.critical("nats: connection ended for good: %s", self.last_error)
            self._lost.set()

    def _report(self) -> None:
        errors, self._errors = self._errors, Counter()
        for text, count in errors.items():
            log.warning("nats: %s%s", text, f" ({count} times)" if count > 1 else "")

    async def _watch(self) -> None:
        """The watchdog: report errors, and free the client where it would wait for ever."""
        heard, heard_at = self.client.heard, time.monotonic()
        stuck_since: float | None = None
        while True:
            await anyio.sleep(TICK_S)
            self._report()
            now = time.monotonic()
            if self.client.heard != heard or not self.connected:
                heard, heard_at = self.client.heard, now
            elif now - heard_at > self._silence_s_max:
                log.warning("nats: nothing heard for %.1f s, reconnecting", now - heard_at)
                await self._abort()
                await self.client.force_reconnect()
                heard_at = now
            if not self.client.is_stuck_closing:
                stuck_since = None
            elif stuck_since is None:
                stuck_since = now
            elif now - stuck_since > ABORT_AFTER_S:
                await self._abort()
            if self.client.reconnecting_ended and not self._lost.is_set():
                log.critical("nats: the client stopped reconnecting: %s", self.last_error)
                self._lost.set()

    async def _abort(self) -> None:
        self.aborts += 1
        self.client.abort()
        await anyio.lowlevel.checkpoint()

    async def _close(self) -> None:
        """Push out what was handed over, then close; abort a server that does not take it."""
        self._closing = True
        with anyio.CancelScope(shield=True):
            closing = asyncio.create_task(self._flush_and_close())
            await asyncio.wait([closing], timeout=CLOSE_WITHIN_S)
            if not closing.done():
                self.client.abort()
            await closing
        self._report()

    async def _flush_and_close(self) -> None:
        if self.can_send:
            try:
                await self.client.flush(timeout=CLOSE_WITHIN_S)
            except (Error, OSError) as error:
                log.warning("nats: closing with messages unsent: %s", _line(error))
        await self.client.close()


@asynccontextmanager
async def connect(
    servers: str | Sequence[str],
    name: str,
    *,
    credentials: Credentials | None = None,
    inbox_prefix: str = "_INBOX",
    connect_within_s: float | None = 30.0,
    reconnect_wait_s: float = 0.2,
    ping_interval_s: float = 2.0,
) -> AsyncIterator[Connection]:
    """A connection for the length of the block; it reconnects for ever.

    `name` is shown in the server's monitoring. `inbox_prefix` should be the service's own, so that
    its permissions can be narrow. Raises NatsUnavailable when there is no connection within
    `connect_within_s` (None: wait for ever) or when the server refuses the credentials.
    """
    given = [servers] if isinstance(servers, str) else list(servers)
    connection = Connection(name, ping_interval_s)
    options = await anyio.to_thread.run_sync((credentials or Credentials()).options)
    options |= {
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": reconnect_wait_s,
        "connect_timeout": 2,
        "ping_interval": ping_interval_s,
        "max_outstanding_pings": 2,
        "flush_timeout": 1.0,
    }
    try:
        with anyio.move_on_after(connect_within_s) as attempt:
            connection.on_refused = attempt.cancel
            try:
                await connection._open(given, inbox_prefix, options)
            except ModuleNotFoundError as error:
                raise NatsUnavailable(
                    f"these credentials need a package that is missing: {error}; "
                    "pip install 'nats-py[nkeys]'"
                ) from error
        connection.on_refused = None
        if attempt.cancelled_caught:
            raise NatsUnavailable(f"no connection to {', '.join(given)}: {connection.last_error}")
        watch = asyncio.create_task(connection._watch(), name=f"nats-watchdog {name}")
        try:
            yield connection
        finally:
            watch.cancel()
            await asyncio.wait([watch])
    finally:
        await connection._close()


def is_no_responders(message: Msg) -> bool:
    """Whether the server answered that nobody listens on the subject."""
    return not message.data and (message.headers or {}).get("Status") == "503"


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
