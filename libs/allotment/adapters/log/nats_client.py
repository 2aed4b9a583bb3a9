"""The NATS client, repaired where it cannot be helped from outside, and how it proves who we are.

This is the only place that touches the library's private parts; each repair has a test that fails
when a new version of the library makes it wrong.
"""

import asyncio
import ssl
import time
from typing import Any

import anyio.lowlevel
import msgspec
from nats.aio.client import Client, Srv


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to prove who we are. Paths are files; everything is optional."""

    user: str | None = None
    password: str | None = None
    creds_file: str | None = None
    nkey_seed_file: str | None = None
    nkey_seed: str | None = None
    """The seed itself, where it is in no file."""
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    is_forwarded: bool = False
    """Whether the API server carries the connection to a pod that it names. Then the certificate is
    not checked, unless `tls_ca_file` says against what.
    """

    def options(self) -> dict[str, Any]:
        """The client's connect options. Reads the TLS files: call it outside the event loop."""
        options: dict[str, Any] = {
            "user": self.user,
            "password": self.password,
            "user_credentials": self.creds_file,
            "nkeys_seed": self.nkey_seed_file,
            "nkeys_seed_str": self.nkey_seed,
        }
        if self.tls_ca_file or self.tls_cert_file:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            if self.tls_cert_file:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
            options["tls"] = context
        elif self.is_forwarded:
            options["tls"] = context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return {name: value for name, value in options.items() if value is not None}


async def _obey() -> None:
    """Raise CancelledError if the running task was cancelled and has not noticed.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the moment in which what it
    waits for ends. A reconnect that loses it tries for ever, closed or not.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # A time limit knows its own cancellation only by what anyio writes into it.
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise asyncio.CancelledError


class GuardedClient(Client):
    """The client with five repairs: late pongs, sockets left behind by failed connects, reconnects
    that miss that they are to end, TLS handshakes that fail, and a fall back to plaintext.

    And one thing more: a server that does not serve can be left for another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[str, float] = {}
        """Servers that were left on purpose, and when: they are tried last."""

    async def leave_server(self) -> None:
        """Reconnect, to another server of the pool if one can be reached."""
        if self._current_server is not None:
            self._left[self._current_server.uri.netloc] = time.monotonic()
        await self.force_reconnect()

    @property
    def server(self) -> str:
        """The host and port of the server that is connected, or was last: without a password."""
        uri = None if self._current_server is None else self._current_server.uri
        return "" if uri is None else f"{uri.hostname}:{uri.port}"

    @property
    def server_id(self) -> str:
        """Who it is: one server may have several addresses."""
        return str(self._server_info.get("server_id", ""))

    @property
    def server_count(self) -> int:
        """How many servers there are to choose from."""
        return len(self._server_pool)

    async def _select_next_server(self) -> None:
        self._server_pool.sort(key=lambda one: self._left.get(one.uri.netloc, 0.0))
        await super()._select_next_server()

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # its waiter was cancelled or timed out
            self._pongs.pop(0)
            self._pongs_received += 1
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _connect_to_server(self, server: Srv) -> None:
        await _obey()
        self.abort()
        try:
            await super()._connect_to_server(server)
        finally:
            await _obey()

    async def _process_connect_init(self) -> None:
        """Drop a socket whose TLS handshake failed. Its writer never learns that it is closed, and
        the library would wait for that for ever.
        """
        try:
            await super()._process_connect_init()
        except BaseException:
            self.abort()
            self._transport = None
            raise

    def _connect_command(self) -> bytes:
        """What is sent first. The library asks for TLS only if the server offers it, and so an
        impostor in the server's place could leave it out.
        """
        server, context = self._current_server, self.options.get("tls")
        is_wanted = (server is not None and server.uri.scheme == "tls") or (
            context is not None and context.verify_mode != ssl.CERT_NONE
        )
        if is_wanted and not self.tls_version:
            raise ConnectionRefusedError(f"the server at {self.server} does not offer TLS")
        return bytes(super()._connect_command())

    @property
    def heard(self) -> tuple[int, int, int]:
        """Changes whenever anything arrived from the server."""
        return self.stats["in_msgs"], self._pongs_received, self.stats["reconnects"]

    @property
    def has_stopped_reconnecting(self) -> bool:
        """Whether the client gave up reconnecting by an error it did not expect."""
        task = self._reconnection_task
        if task is None or self.is_connected or self.is_closed:
            return False
        return bool(task.done())

    def abort(self) -> None:
        """Drop the socket now, without waiting for what is still to be written."""
        tcp = self._tcp
        if tcp is not None and (not tcp.is_closing() or tcp.get_write_buffer_size() > 0):
            tcp.abort()  # (a socket that is closed already takes no abort)
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None and not writer.is_closing():
            # TLS learns of it in the next turn of the loop; until then its writer counts as open
            writer.transport.abort()

    @property
    def is_stuck_closing(self) -> bool:
        """Whether a closed socket waits for a server that does not read, or that does not end TLS
        in its turn.
        """
        tcp, writer = self._tcp, getattr(self._transport, "_io_writer", None)
        if tcp is None or writer is None or not writer.is_closing():
            return False
        return not tcp.is_closing() or tcp.get_write_buffer_size() > 0

    @property
    def tls_version(self) -> str:
        """The version of TLS that the connection speaks, "" if it is plaintext."""
        tls = self._tls
        return "" if tls is None else str(tls.version())

    @property
    def certificate_ends_s(self) -> int:
        """When the server's certificate expires, in Unix time; 0 if the connection is plaintext."""
        tls = self._tls
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is None:
            return 0
        from cryptography import x509  # costs every command a moment that few need

        return int(x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp())

    @property
    def _tls(self) -> ssl.SSLObject | None:
        writer = getattr(self._transport, "_io_writer", None)
        return None if writer is None else writer.get_extra_info("ssl_object")

    @property
    def _tcp(self) -> asyncio.WriteTransport | None:
        """The socket itself, below TLS: what TLS makes of it takes no abort once it is closed."""
        writer = getattr(self._transport, "_bare_io_writer", None)
        return None if writer is None else writer.transport
