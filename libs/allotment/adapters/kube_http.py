"""HTTP/1.1 for requests that are small and many: one write, one answer, connections kept.

A scheduler's load on its own CPU is mostly Bindings, and a general client spends several times what
one of them needs. What is here does no redirects, proxies, cookies or compression: for those, and
for lists and watches, there is aiohttp.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast

from yarl import URL

HEAD_BYTES_MAX = 1 << 16
IDLE_S_MAX = 60.0
"""A connection unused for longer is not used again: the server may be about to close it."""
WITHOUT_BODY = (204, 304)
HEX_DIGITS = b"0123456789abcdefABCDEF"


class Unreachable(Exception):
    """Raised when no connection could be made: nothing was sent."""


class Broken(Exception):
    """Raised when a connection broke, or said what is no HTTP, before the answer was there."""


class Answer(NamedTuple):
    """A response. Names of headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_last: bool
    """The server closes the connection after it."""


class ResponseReader:
    """Bytes of one response → the response."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._head: Answer | None = None
        self._left: int | None = None
        """Bytes of the body still to come; None until it ends with the connection."""
        self._is_chunked = False
        self._in_trailers = False
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> Answer | None:
        """The response once it is complete. Raises Broken for what is no HTTP/1 response."""
        self._rest += data
        while self._head is None:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                if len(self._rest) > HEAD_BYTES_MAX:
                    raise Broken(f"the head of the answer is longer than {HEAD_BYTES_MAX} bytes")
                return None
            head = _parse_head(bytes(self._rest[:end]))
            del self._rest[: end + 4]
            if head.status >= 200:  # before that come announcements
                self._begin(head)
        assert self._head is not None
        if self._is_chunked:
            return self._head._replace(body=b"".join(self._body)) if self._chunks() else None
        if self._left is None or len(self._rest) < self._left:
            return None
        return self._head._replace(body=bytes(self._rest[: self._left]))

    def end(self) -> Answer | None:
        """The connection ended: the response, if that was its end."""
        if self._head is None or self._is_chunked or self._left is not None:
            return None
        return self._head._replace(body=bytes(self._rest))

    def _begin(self, head: Answer) -> None:
        length = head.headers.get("content-length")
        self._is_chunked = head.headers.get("transfer-encoding", "").lower() == "chunked"
        if self._is_chunked or head.status in WITHOUT_BODY:
            self._left = 0
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise Broken(f"the answer is {length!r} bytes long")
            self._left = int(length)
        self._head = head if length is not None or self._left == 0 else head._replace(is_last=True)

    def _chunks(self) -> bool:
        """Take the chunks that are there; whether the last one was among them."""
        rest = self._rest
        while True:
            if self._in_trailers:
                end = rest.find(b"\r\n")
                if end < 0:
                    return False
                del rest[: end + 2]
                if end == 0:
                    return True
            elif not self._left:
                end = rest.find(b"\r\n")
                if end < 0:
                    return False
                size = bytes(rest[:end]).partition(b";")[0].strip()
                if not size or size.strip(HEX_DIGITS):
                    raise Broken(f"{size[:20]!r} is not the length of a chunk")
                self._left = int(size, 16)
                del rest[: end + 2]
                self._in_trailers = self._left == 0
            elif len(rest) < self._left + 2:
                return False
            else:
                if rest[self._left : self._left + 2] != b"\r\n":
                    raise Broken("a chunk is longer than it says")
                self._body.append(bytes(rest[: self._left]))
                del rest[: self._left + 2]
                self._left = 0


def _parse_head(head: bytes) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        raise Broken(f"{first[:80]!r} is not how an answer begins")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    is_kept = version != "HTTP/1.0" and headers.get("connection", "").lower() != "close"
    return Answer(int(code), reason.strip(), headers, b"", not is_kept)


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader()
        self._answer: asyncio.Future[Answer] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are, but do not say so

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # nobody asked
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except Broken as error:
            self._answer.set_exception(error)
            return
        if answer is not None:
            self._answer.set_result(answer)

    def eof_received(self) -> None:
        answer = self._reader.end()
        if answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            why = str(error) if error is not None else "the server closed the connection"
            self._answer.set_exception(Broken(why))

    async def ask(self, request: bytes) -> Answer:
        """Raises Broken. Whatever ends it early leaves a connection that must be closed."""
        if self._transport is None:
            raise Broken("the server closed the connection")
        self._reader = ResponseReader()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None


class Pool:
    """Connections to one server, the last used first. As many as are asked for at once."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        server_name: str | None,
        user_agent: str,
        connect_timeout_s: float,
    ) -> None:
        where = URL(url)
        self._host, self._port = where.host or "", where.port or 0
        self._base = where.raw_path.rstrip("/")
        self._ssl = (context or True) if where.scheme == "https" else None
        self._server_name = (server_name or self._host) if self._ssl else None
        self._head = f"Host: {where.authority}\r\nUser-Agent: {user_agent}\r\n"
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float | None,
    ) -> Answer:
        """One request. Raises Unreachable, Broken, TimeoutError."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{self._head}{lines}"
        if head.count("\n") != 3 + len(headers):
            raise ValueError(f"a line break in a request: {method} {target}")
        head += f"Content-Length: {len(body)}\r\n\r\n"
        async with asyncio.timeout(timeout_s):
            connection = self._take() or await self._connect()
            self._busy.add(connection)
            is_kept = False
            try:
                answer = await connection.ask(head.encode("latin-1") + body)
                is_kept = not answer.is_last and connection.is_open
            finally:
                self._busy.discard(connection)
                if is_kept:
                    connection.idle_since_s = asyncio.get_running_loop().time()
                    self._idle.append(connection)
                else:
                    connection.close()
            return answer

    async def close(self) -> None:
        """Close what is open."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    def _take(self) -> _Connection | None:
        young_s = asyncio.get_running_loop().time() - IDLE_S_MAX
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since_s >= young_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    _Connection,
                    self._host,
                    self._port,
                    ssl=self._ssl,
                    server_hostname=self._server_name,
                )
        except TimeoutError as error:
            raise Unreachable(f"no connection within {self._connect_timeout_s} s") from error
        except OSError as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        return connection
