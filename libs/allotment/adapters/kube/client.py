"""A Kubernetes client made of bytes: aiohttp for the wire, msgspec for data, answers as values.

Every request ends as Ok, Refused or Unknown (kube_result.py), and the caller has to handle all
of them. Nothing here repeats a write whose fate is unknown. The two cases that are repeated are
those in which the server said that it did nothing: 401 (once, with a new token) and 429 with
Retry-After (for a bounded time).
"""

import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import anyio
import msgspec
from yarl import URL

from allotment.adapters.kube.config import (
    ClusterAddress,
    Credentials,
    KubeConfigError,
    load_access,
)
from allotment.adapters.kube.result import (
    ByteStream,
    KubeResult,
    Ok,
    Refused,
    Status,
    Unknown,
)
from allotment.adapters.telemetry.log import error_text
from allotment.core.units import natural
from allotment_proto.codec import UNREADABLE

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

READ_BUFFER_BYTES = 1 << 20
IDLE_S_MAX = 60.0
"""After so long without a request a connection is closed; a kube-apiserver does it after 90 s."""
KEPT_OPEN_EVERY_S = 30.0
_is_plain = re.compile(r"[a-z0-9-]+").fullmatch
CONNECT_TIMEOUT_S = 5.0
THROTTLE_DEFAULT_S = 1.0
"""What to wait when a Retry-After cannot be read."""


class KubeClient:
    """One connection pool to one API server. Make it with `connect`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: ClusterAddress,
        credentials: Credentials,
        *,
        concurrency: int,
        timeout_s: float,
        throttle_wait_s_max: float,
    ) -> None:
        self.address = address
        self.throttled = 0
        """Answers 429 since the start, for metrics."""
        self.unknown = 0
        """Requests since the start whose fate is unknown, for metrics."""
        self.silent: dict[str, str] = {}
        """Watches that say nothing although there is, or may be, something to say: path → why."""
        self._session = session
        self._credentials = credentials
        self._places = anyio.Semaphore(concurrency, fast_acquire=True)
        self._timeout = _timeout(timeout_s)
        self._throttle_wait_s_max = throttle_wait_s_max

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> KubeResult:
        """Read an object or a list."""
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def list(
        self, path: str, params: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> KubeResult:
        """One page of a list; a big one takes its time."""
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def create(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> KubeResult:
        """POST `body`, anything msgspec encodes, to a collection or subresource."""
        return await self.request("POST", path, params=params, body=body)

    async def replace(self, path: str, body: object) -> KubeResult:
        """PUT a whole object; with metadata.resourceVersion only if it did not change since."""
        return await self.request("PUT", path, body=body)

    async def patch(
        self,
        path: str,
        body: object,
        content_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
    ) -> KubeResult:
        """PATCH an object; `content_type` is one of the constants above."""
        return await self.request(
            "PATCH", path, params=params, body=body, content_type=content_type
        )

    async def delete(
        self, path: str, uid: str | None = None, grace_s: int | None = None
    ) -> KubeResult:
        """Delete an object; with `uid`, only that one and not another of the same name."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self.request("DELETE", path, body=options)

    async def bind(
        self, namespace: str, pod: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> KubeResult:
        """Bind a pod to a node and write its annotations, in one atomic write.

        The uid is a precondition: a pod recreated under the same name is refused (409).
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "uid": uid,
                "annotations": dict(annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.request("POST", pod_path(namespace, pod, "binding"), body=body)

    async def keep_open(self) -> None:
        """Keep a connection open, so that a request after a quiet while need not open one:
        with TLS, opening one takes longer than most requests.
        """
        while True:
            await self.get("/version")  # which every client may read; the result does not matter
            await anyio.sleep(KEPT_OPEN_EVERY_S)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> KubeResult:
        """Ask once and say how it ended. `timeout_s` counts from when it is this one's turn."""
        data = None if body is None else msgspec.json.encode(body)
        timeout = self._timeout if timeout_s is None else _timeout(timeout_s)
        waited_s = 0.0
        async with self._places:
            while True:
                answer = await self._ask(method, path, params, data, content_type, timeout)
                if not isinstance(answer, Unknown):
                    return answer
                wait_s = answer.retry_after_s
                if wait_s is None or waited_s + wait_s > self._throttle_wait_s_max:
                    self.unknown += 1
                    return answer
                waited_s += wait_s
                await anyio.sleep(wait_s)

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> KubeResult:
        try:
            response = await self._send(method, path, params, data, content_type, timeout)
            return self._judge(response, await response.read())
        except KubeConfigError as error:
            return Unknown("credentials", str(error))
        except aiohttp.ClientConnectorError as error:
            return Unknown("unreachable", f"{self.address.url}: {error_text(error)}")
        except TimeoutError:
            return Unknown("timeout", f"{method} {path}: no answer within {timeout.total} s")
        except (aiohttp.ClientError, OSError) as error:
            return Unknown("connection", f"{method} {path}: {error_text(error)}")

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str], idle_s: float
    ) -> AsyncIterator[ByteStream | Refused | Unknown]:
        """Open a stream that may last; `idle_s` is the longest silence before it counts as dead.

        It takes none of the places for requests.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_s
        )
        failed: Unknown | None = None
        opened = False
        try:
            response = await self._send("GET", path, params, None, "", timeout)
            opened = True
            async with response:
                if response.status == 200:
                    yield ByteStream(response)
                else:
                    answer = self._judge(response, await response.read())
                    yield Unknown("server", "no stream") if isinstance(answer, Ok) else answer
        except KubeConfigError as error:
            if opened:
                raise
            failed = Unknown("credentials", str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if opened:
                raise
            failed = Unknown("unreachable", f"{self.address.url}: {error_text(error)}")
        if failed is not None:
            yield failed

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, params: Mapping[str, str], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse | Refused | Unknown]:
        """Open a WebSocket that speaks this protocol; it takes none of the places for requests."""
        socket: aiohttp.ClientWebSocketResponse | Refused | Unknown
        try:
            socket = await self._open_websocket(path, params, protocol)
        except aiohttp.WSServerHandshakeError as error:
            socket = Refused(error.status, "Upgrade", f"HTTP {error.status} {error.message}")
        except KubeConfigError as error:
            socket = Unknown("credentials", str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            socket = Unknown("unreachable", f"{self.address.url}: {error_text(error)}")
        try:
            yield socket
        finally:
            if not isinstance(socket, Refused | Unknown):
                await socket.close()

    async def _open_websocket(
        self, path: str, params: Mapping[str, str], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        """Open it; on 401 once more with a new token."""
        url = URL(self.address.url + path, encoded=True)
        for is_last in (False, True):
            token = await self._credentials.header()
            try:
                return await self._session.ws_connect(
                    url,
                    params=params,
                    protocols=(protocol,),
                    headers={} if token is None else {"Authorization": token},
                    max_msg_size=0,
                    ssl=self.address.ssl or True,
                    server_hostname=self.address.server_name,
                    proxy=self.address.proxy,
                )
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 401 or token is None or is_last:
                    raise
                self._credentials.drop(token)
        raise AssertionError("the second answer ends the loop")

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request; on 401 once more with a new token. The caller reads or releases it."""
        url = URL(self.address.url + path, encoded=True)
        headers = {} if data is None else {"Content-Type": content_type}
        for is_last in (False, True):
            token = await self._credentials.header()
            if token is not None:
                headers["Authorization"] = token
            response = await self._session.request(
                method,
                url,
                params=params,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=self.address.ssl or True,
                server_hostname=self.address.server_name,
                proxy=self.address.proxy,
            )
            if response.status != 401 or token is None or is_last:
                break
            self._credentials.drop(token)
            response.release()
        return response

    def _judge(self, response: aiohttp.ClientResponse, body: bytes) -> KubeResult:
        code = response.status
        if 200 <= code < 300:
            return Ok(code, body)
        try:
            said = msgspec.json.decode(body, type=Status)
        except UNREADABLE:  # a proxy's page, a plain text, anything
            said = Status(message=body[:500].decode(errors="replace").strip())
        reason = said.reason or response.reason or ""
        message = said.message or f"HTTP {code} {response.reason or ''}".rstrip()
        if code >= 500:
            return Unknown("server", message, code)
        if code == 422 and _names_another(said):
            code, reason = 409, "Conflict"
        if code == 429:
            self.throttled += 1
            if (after := response.headers.get("Retry-After")) is not None:
                return Unknown("throttled", message, code, _seconds(after))
        return Refused(code, reason, message, said.details or {})


@contextlib.asynccontextmanager
async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    concurrency: int = 32,
    timeout_s: float = 30.0,
    throttle_wait_s_max: float = 30.0,
    user_agent: str = "allotment",
) -> AsyncIterator[KubeClient]:
    """A client for the cluster that the configuration names, open until the scope is left.

    Nothing is sent yet: a server that is down shows itself as Unknown. Raises KubeConfigError.
    """
    address, credentials = await load_access(kubeconfig, context, environ)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S_MAX),
        read_bufsize=READ_BUFFER_BYTES,
        headers={"User-Agent": user_agent, "Accept": "application/json"},
    )
    try:
        yield KubeClient(
            session,
            address,
            credentials,
            concurrency=concurrency,
            timeout_s=timeout_s,
            throttle_wait_s_max=throttle_wait_s_max,
        )
    finally:
        with anyio.CancelScope(shield=True):  # closing sockets does not wait
            await session.close()


def pod_path(namespace: str, pod: str, subresource: str = "") -> str:
    """The path of a pod or of one of its subresources, names escaped."""
    path = f"/api/v1/namespaces/{_escaped(namespace)}/pods/{_escaped(pod)}"
    return f"{path}/{subresource}" if subresource else path


def _names_another(said: Status) -> bool:
    """Whether a patch was refused for the uid in it alone: of a PUT the API server calls that a
    conflict, of a patch the change of a field that is immutable.
    """
    causes = (said.details or {}).get("causes")
    return isinstance(causes, list) and {
        cause.get("field") for cause in causes if isinstance(cause, dict)
    } == {"metadata.uid"}


def _escaped(name: str) -> str:
    """A name as one segment of a path; most need nothing, and finding that out is quicker."""
    return name if _is_plain(name) else quote(name, safe="")


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_TIMEOUT_S)


def _seconds(retry_after: str) -> float:
    seconds = natural(retry_after.strip())  # else an HTTP date, which API servers do not send
    return THROTTLE_DEFAULT_S if seconds is None else float(seconds)
