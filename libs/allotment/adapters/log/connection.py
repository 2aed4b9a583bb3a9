"""One connection to NATS, with the client's traps closed.

The client library is sound while everything goes well. What this module adds is for the other
times:

* a late answer to a ping whose waiter gave up must not end the reader (see nats_client.py);
* a server that hangs without closing, with our socket buffer full, is never noticed by the client:
  the watchdog aborts the transport when nothing was heard for too long;
* what is outstanding is bounded here, because a blocked publish ignores cancellation and buffers
  without limit: `send` refuses while disconnected or when too much is pending;
* answers are matched by our own inboxes, so that a repeated question accepts the answer to any of
its
  sends, and every open question is woken at once by a reconnect;
* a server that is cut off from its cluster, or cannot write, keeps its clients for ever: what
  JetStream leaves unanswered is counted here, and the watchdog leaves such a server for another.
"""

import asyncio
import itertools
import logging
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import anyio
import anyio.to_thread
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, Error, OutboundBufferLimitError, SlowConsumerError

from allotment.adapters.log.nats_client import Credentials, GuardedClient
from allotment.adapters.log.nats_watchdog import Watchdog
from allotment.adapters.telemetry.log import error_text

PENDING_BYTES_MAX = 1024 * 1024
ERRORS_KEPT_MAX = 100
ERROR_CHARS_MAX = 4096
"""As long as a line of the protocol may be, and so a subject that is forbidden."""
CLOSE_WITHIN_S = 1
Kind = Literal["read", "write"]
"""What a question wants of JetStream: a server without room for more still answers the first."""

ASKED_S_AGO_MAX: dict[Kind, float] = {"read": 3.0, "write": 15.0}
"""An unanswered question is forgotten after this time. An open question repeats itself every
second, and the log's end is asked for as often; a lease that cannot be taken is retried after some
seconds.
"""

log = logging.getLogger("allotment.nats")


class NatsUnavailable(Exception):
    """No connection: the servers are out of reach, refuse us, or closed it for good."""


class TooLarge(Exception):
    """A message larger than the server takes. Sending it would end the connection."""


class Unanswered:
    """Since when JetStream has left all questions of a kind without a useful answer."""

    def __init__(self) -> None:
        self._times: dict[Kind, tuple[float, float]] = {}
        """When the first of them was sent, and when the last."""

    def asked(self, kind: Kind) -> None:
        now = time.monotonic()
        first, last = self._times.get(kind, (now, now))
        self._times[kind] = (now if now - last > ASKED_S_AGO_MAX[kind] else first, now)

    def answered(self, kind: Kind) -> None:
        self._times.pop(kind, None)

    def seconds(self) -> dict[Kind, float]:
        """For how long, by kind; without the kinds that are answered, or not asked for."""
        now = time.monotonic()
        return {
            kind: now - first
            for kind, (first, last) in self._times.items()
            if now - last <= ASKED_S_AGO_MAX[kind]
        }


class Inbox:
    """One place for answers to one question, however often it is sent.

    Answers on subjects below this one come here, too: they tell apart questions asked together.
    """

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
        self.permission_errors: dict[str, None] = {}
        """What the server forbade, the newest last."""
        self.on_reconnect: set[Callable[[], None]] = set()
        self.on_refused: Callable[[], None] | None = None
        self.unanswered = Unanswered()
        self._watchdog = Watchdog(
            self.client,
            silence_s_max=ping_interval_s * 4,
            on_lost=self._on_lost,
            unanswered_s=lambda: max(self.unanswered.seconds().values(), default=0.0),
        )
        self._errors: Counter[str] = Counter()
        self._inboxes: dict[str, Inbox] = {}
        self._tokens = itertools.count(1)
        self._inbox_root = self._inbox_prefix = ""
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
    def aborts(self) -> int:
        """How often the watchdog had to drop the socket."""
        return self._watchdog.aborts

    @property
    def leaves(self) -> int:
        """How many servers were left because they did not do their work."""
        return self._watchdog.leaves

    @property
    def max_payload_bytes(self) -> int:
        return int(self.client.max_payload)

    @property
    def server_version(self) -> str:
        """The version the connected server reports, "" when it does not."""
        return str(self.client._server_info.get("version", ""))

    @property
    def certificate_ends_s(self) -> int:
        """When the server's certificate expires, in Unix time; 0 without TLS."""
        return self.client.certificate_ends_s

    @property
    def server(self) -> str:
        """The host and port of the server that is connected, or was last."""
        return self.client.server

    def leave_server(self, reason: str) -> None:
        """Ask for another server, soon, if there is one; this one does not do its work."""
        self._watchdog.leave(reason)

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

    def forbids(self, subject: str) -> str:
        """What the server said about a subject we may not use, "" when it said nothing.

        A forbidden message gets no answer; this is the only trace it leaves.
        """
        named = f'"{subject.lower()}"'  # the client library gives the server's words in lower case
        return next((text for text in self.permission_errors if named in text.lower()), "")

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
        """Ask once; None when there was no answer in time, or no subscriber."""
        with self.inbox() as inbox:
            if not await self.send(subject, payload, reply=inbox.subject, headers=headers):
                return None
            answer = await inbox.next(timeout_s)
        return None if answer is None or is_no_responders(answer) else answer

    def new_inbox_subject(self) -> str:
        """A subject that cannot be guessed; the client library's own are numbered."""
        return f"{self._inbox_root}.{secrets.token_hex(16)}"

    async def _take_answer(self, message: Msg) -> None:
        token = message.subject[len(self._inbox_prefix) + 1 :].partition(".")[0]
        inbox = self._inboxes.get(token)
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
        self._inbox_root = inbox_prefix
        self._inbox_prefix = self.new_inbox_subject()
        await self.client.subscribe(
            f"{self._inbox_prefix}.>",
            cb=self._take_answer,
            pending_msgs_limit=0,
            pending_bytes_limit=0,
        )
        self._up.set()

    async def _on_error(self, error: Exception) -> None:
        """Runs in the reader: only take note. `_report` writes the lines."""
        if isinstance(error, SlowConsumerError):
            self.slow_consumer_drops[error.sid] += 1
        text = _line(error)[:ERROR_CHARS_MAX]
        if "permissions violation" in text.lower():
            self.permission_errors.pop(text, None)
            self.permission_errors[text] = None
            if len(self.permission_errors) > ERRORS_KEPT_MAX:
                del self.permission_errors[next(iter(self.permission_errors))]
        is_refused = "authorization violation" in text.lower()
        if (is_refused or _is_about_certificate(error)) and self.on_refused is not None:
            self.on_refused()
        elif _is_about_certificate(error):
            self._on_lost()  # files with certificates are read at the start: start again
        if text in self._errors or len(self._errors) < ERRORS_KEPT_MAX:
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
            self._on_lost()

    def _on_lost(self) -> None:
        if not self._lost.is_set():
            log.critical("nats: connection ended for good: %s", self.last_error)
            self._lost.set()

    def _report(self) -> None:
        errors, self._errors = self._errors, Counter()
        for text, count in errors.items():
            log.warning("nats: %s%s", text, f" ({count} times)" if count > 1 else "")

    def _on_watch_done(self, watch: asyncio.Task[None]) -> None:
        if not watch.cancelled():
            self._on_lost()

    async def _watch(self) -> None:
        await self._watchdog.run(self._report)

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
        try:
            await self.client.close()
        except OSError as error:
            log.warning("nats: closed the hard way: %s", _line(error))
        self.client.abort()  # a connect that was cancelled counts as closed and keeps its socket
        await asyncio.sleep(0)


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
    `connect_within_s` (None: wait for ever), when every server refuses the credentials or has a
    certificate that is not accepted.
    """
    given = [servers] if isinstance(servers, str) else list(servers)
    logging.getLogger("asyncio").addFilter(_is_news)
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
    refusals = itertools.count(1)
    try:
        with anyio.move_on_after(connect_within_s) as attempt:

            def give_up() -> None:
                """While keys are replaced, one server after the other accepts the new ones."""
                if next(refusals) >= len(given):
                    attempt.cancel()

            connection.on_refused = give_up
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
        watch.add_done_callback(connection._on_watch_done)
        try:
            yield connection
        finally:
            watch.cancel()
            await asyncio.wait([watch])
        if not watch.cancelled():
            watch.result()  # a defect of the watchdog must not stay silent
    finally:
        await connection._close()


def _is_news(record: logging.LogRecord) -> bool:
    """At the end of every TLS connection asyncio warns of what its own streams do."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)


def is_no_responders(message: Msg) -> bool:
    """Whether the server answered that the subject has no subscribers."""
    return not message.data and (message.headers or {}).get("Status") == "503"


def _is_about_certificate(error: Exception) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError)


def _line(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the NATS server is not accepted: {error.verify_message}; "
            "ALLOT_NATS_CA has to name the CA that signed it"
        )
    return error_text(error)
