"""Connections of our own: every way in which an answer can come, and not come."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from allotment.adapters.kube_http import Answer, Broken, Pool, ResponseReader, Unreachable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Plan = list[bytes | None]


def answer(data: bytes) -> Answer | None:
    """What is read at once, which must be what is read byte by byte."""
    at_once, slowly = ResponseReader().feed(data), None
    reader = ResponseReader()
    for at in range(len(data)):
        assert slowly is None, "there is more to come"
        slowly = reader.feed(data[at : at + 1])
    assert slowly == at_once
    return at_once


@pytest.mark.parametrize(
    ("data", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (CHUNKED + b"0\r\n\r\n", 200, b""),
        (CHUNKED + b"3\r\nabc\r\nA;x=1\r\n\r\n345678\r\n\r\n0\r\n\r\n", 200, b"abc\r\n345678\r\n"),
        (CHUNKED + b"1\r\na\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", 200, b"a"),
    ],
)
async def test_complete_answers(data: bytes, status: int, body: bytes) -> None:
    found = answer(data)
    assert found is not None
    assert (found.status, found.body, found.is_last) == (status, body, False)


async def test_the_head_is_read() -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  7 \r\nContent-Length: 0\r\n\r\n"
    found = answer(head)
    assert found is not None
    assert (found.reason, found.headers["retry-after"]) == ("Too Many Requests", "7")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_server_may_say_that_it_closes(head: bytes) -> None:
    found = answer(head)
    assert found is not None
    assert found.is_last


async def test_a_body_may_end_with_the_connection_unless_its_length_is_known() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nab") is None
    assert reader.feed(b"c") is None
    found = reader.end()
    assert found is not None
    assert (found.body, found.is_last) == (b"abc", True)
    for cut in (OK[:-1], CHUNKED + b"3\r\nabc\r\n", OK[:10]):
        reader = ResponseReader()
        assert reader.feed(cut) is None
        assert reader.end() is None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 soon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        CHUNKED + b"many\r\n",
        CHUNKED + b"-5\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * (1 << 17),
    ],
)
async def test_what_is_no_answer_is_named(data: bytes) -> None:
    with pytest.raises(Broken):
        ResponseReader().feed(data)


class Server:
    """Answers each request with the next of its plan; None closes the connection instead."""

    def __init__(self) -> None:
        self.plan: Plan = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.plan:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                said = self.plan.pop(0)
                if said is None:
                    break
                writer.write(said)
            else:
                await reader.read()
        except asyncio.IncompleteReadError:
            pass  # the client left
        finally:
            writer.close()
            self.closed.set()


@asynccontextmanager
async def serving(
    *plan: bytes | None, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, Callable[..., Pool]]]:
    server = Server()
    server.plan = list(plan)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    pools: list[Pool] = []

    def pool(base: str = "", trust: ssl.SSLContext | None = None) -> Pool:
        scheme = "http" if context is None else "https"
        url = f"{scheme}://127.0.0.1:{port}{base}"
        pools.append(Pool(url, trust, None, "test", 5.0))
        return pools[-1]

    try:
        yield server, pool
    finally:
        for made in pools:
            await made.close()
        listening.close()
        await listening.wait_closed()


async def post(pool: Pool, body: bytes = b"{}", timeout_s: float | None = 5.0) -> Answer:
    return await pool.ask("POST", "/a", {"Accept": "x/y"}, body, timeout_s)


async def test_a_connection_is_kept_and_a_second_one_made_when_it_is_busy() -> None:
    async with serving(OK, OK, OK, OK) as (server, pool):
        ours = pool("/base/")
        for _ in range(2):
            assert (await post(ours)).body == b"ok"
        assert server.connections == 1
        await asyncio.gather(post(ours), post(ours))
        assert server.connections == 2
    first, *rest = server.requests[0].split(b"\r\n")
    assert first == b"POST /base/a HTTP/1.1"
    assert {b"Accept: x/y", b"User-Agent: test", b"Content-Length: 2"} <= set(rest)
    assert server.requests[0].endswith(b"\r\n\r\n{}")


async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again() -> None:
    async with serving(OK) as (server, pool):
        ours = pool()
        await post(ours)
        # All that was planned is said: the server waits for our end, and is ended itself.
        server.plan = [OK]
        for connection in ours._idle:
            connection.connection_lost(None)
        assert (await post(ours)).status == 200
        assert server.connections == 2


@pytest.mark.parametrize("said", [None, OK[:-1], b"nonsense\r\n\r\n"])
async def test_no_answer_is_broken_and_the_connection_is_not_kept(said: bytes | None) -> None:
    plan: Plan = [said] if said is None else [said, None]
    async with serving(*plan) as (server, pool):
        ours = pool()
        if said == OK[:-1]:
            with pytest.raises(TimeoutError):
                await post(ours, timeout_s=0.05)
        else:
            with pytest.raises(Broken):
                await post(ours)
        server.plan = [OK]
        assert (await post(ours)).status == 200
        assert server.connections == 2


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with serving() as (_, pool):
        gone = pool()
    with pytest.raises(Unreachable):
        await post(gone)


async def test_a_line_break_never_gets_into_a_request() -> None:
    async with serving(OK) as (server, pool):
        with pytest.raises(ValueError, match="line break"):
            await pool().ask("POST", "/a", {"X": "a\r\nY: b"}, b"", 5.0)
        assert server.requests == []


async def test_certificates_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    file.write_bytes(certificate("127.0.0.1"))
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    trust = ssl.create_default_context(cafile=file)
    trust.check_hostname = False
    async with serving(OK, OK, context=theirs) as (_, pool):
        assert (await post(pool(trust=trust), b"x" * 100_000)).body == b"ok"
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await post(pool(trust=ssl.create_default_context()))


def certificate(name: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)
