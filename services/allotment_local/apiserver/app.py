"""The HTTP face of a Store: every request to a handler, every refusal to a Status body."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from allotment.adapters.service.http import host_of, is_own_host
from allotment_local.apiserver import discovery
from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.collection import encode
from allotment_local.apiserver.errors import (
    ApiError,
    JsonObject,
    bad_request,
    method_not_allowed,
    no_such_path,
    success,
)
from allotment_local.apiserver.eviction import evict
from allotment_local.apiserver.negotiation import read_object
from allotment_local.apiserver.openapi import V2_DOCUMENT, V2_TYPE, document, index
from allotment_local.apiserver.reads import get_list, get_one, json_response
from allotment_local.apiserver.request_counts import RequestCounts
from allotment_local.apiserver.requests import (
    CLOCK,
    WRITER,
    Target,
    find_target,
    flag,
    is_dry_run,
    is_writer,
    split_path,
)
from allotment_local.apiserver.resources import CONTAINER_ACCESS
from allotment_local.apiserver.store import Store
from allotment_local.apiserver.watch import serve_watch
from allotment_local.apiserver.writes import create, delete, patch, replace

BODY_BYTES_MAX = 16 * 2**20
BOOKMARK_INTERVAL_S = 60.0
VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0-allotment",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
_CREATED = encode(success(201))
_TARGET: web.RequestKey[Target] = web.RequestKey("target", Target)
"""What a request names, kept with it."""
_logger = logging.getLogger(__name__)


def build_app(
    store: Store,
    *,
    clock: Callable[[], datetime],
    ids: Callable[[], str],
    bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
    writer: str = "",
    names: Collection[str] = (),
) -> web.Application:
    """The API server over `store`. Run it on loopback: it has no authentication, but for the
    token `writer` of the client that writes what is reserved to schedulers (`admission`).
    It answers for localhost, addresses and the host `names`."""
    api = _Api(store, ids, bookmark_interval_s, names)
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app[CLOCK] = clock
    app[WRITER] = writer
    app.router.add_route("*", "/{path:.*}", api.handle)
    app.on_shutdown.append(api.stop)
    return app


class _Api:
    def __init__(
        self,
        store: Store,
        ids: Callable[[], str],
        bookmark_interval_s: float,
        names: Collection[str],
    ) -> None:
        self._names = names
        self._store = store
        self._ids = ids
        self._bookmark_interval_s = bookmark_interval_s
        self._stopping = asyncio.Event()
        self._counts = RequestCounts()

    async def stop(self, _app: web.Application) -> None:
        """End the watches, which would otherwise hold the server open."""
        self._stopping.set()
        self._store.wake_watchers()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = await self._answer(request)
        if (target := request.get(_TARGET)) is not None:
            self._counts.count(request, target, response.status)
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._route(request)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPException as error:
            return _refusal(
                ApiError(error.status, error.reason.replace(" ", ""), error.text or error.reason)
            )
        except Exception as error:
            # Our own fault; the client still gets a body it understands.
            incident = self._ids()
            _logger.exception("%s %s failed (%s)", request.method, request.path_qs, incident)
            what = f"{request.method} {request.path}: {type(error).__name__} (incident {incident})"
            return _refusal(ApiError(500, "InternalError", f"Internal error occurred: {what}"))

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        host = host_of(request.headers.get("Host", ""))
        if not is_own_host(host, self._names):
            why = f"this server does not answer for the host name {host!r}: use its address"
            raise ApiError(421, "MisdirectedRequest", why)
        parts = split_path(path)
        if parts is None or not parts[2]:
            return self._about_the_server(request, path.rstrip("/"))
        group, version, rest = parts
        if (group, version, rest[-1]) == ("", "v1", "bindings"):
            return await self._bind(request, rest)
        target = request[_TARGET] = find_target(self._store.registry, group, version, rest)
        return await self._resource(request, target)

    def _about_the_server(self, request: web.Request, path: str) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed(request.method, path)
        if path.split("/")[1:2] in (["healthz"], ["livez"], ["readyz"]):
            return web.Response(text="ok")
        if path == "/metrics":
            page = self._counts.page()
            return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})
        registry = self._store.registry
        match path.strip("/").split("/"):
            case ["api"]:
                return json_response(encode(discovery.api_versions()))
            case ["apis"]:
                return json_response(encode(discovery.group_list(registry)))
            case ["version"]:
                return json_response(encode(VERSION))
            case ["api", version]:
                return json_response(encode(discovery.resource_list(registry, "", version)))
            case ["apis", group]:
                return json_response(encode(discovery.one_group(registry, group)))
            case ["apis", group, version]:
                return json_response(encode(discovery.resource_list(registry, group, version)))
            case ["openapi", "v2"]:
                return web.Response(body=V2_DOCUMENT, headers={"Content-Type": V2_TYPE})
            case ["openapi", "v3"]:
                return json_response(encode(index(registry)))
            case ["openapi", "v3", *rest]:
                return json_response(encode(document(registry, "/".join(rest))))
            case _:
                raise no_such_path()

    async def _bind(self, request: web.Request, rest: list[str]) -> web.Response:
        if request.method != "POST":
            raise method_not_allowed(request.method, request.path)
        body = await _body(request)
        match rest:
            case ["namespaces", namespace, "bindings"]:
                metadata = body.get("metadata")
                name = metadata.get("name") if isinstance(metadata, dict) else None
                if not name or not isinstance(name, str):
                    raise bad_request("metadata.name: the name of the Pod to bind is missing")
                dry_run, may = is_dry_run(request), is_writer(request)
                bind(self._store, namespace, name, body, dry_run=dry_run, is_writer=may)
                return json_response(_CREATED, 201)
            case _:
                raise no_such_path()

    async def _resource(self, request: web.Request, target: Target) -> web.StreamResponse:
        store, method = self._store, request.method
        if target.subresource in ("binding", "eviction", *CONTAINER_ACCESS):
            return await self._pod_action(request, target)
        if method in ("GET", "HEAD"):
            if target.name is not None:
                return get_one(store, request, target)
            if flag(request, "watch"):
                return await serve_watch(
                    store,
                    request,
                    target,
                    bookmark_interval_s=self._bookmark_interval_s,
                    stopping=self._stopping,
                )
            return get_list(store, request, target)
        if target.name is None:
            handlers: dict[str, Callable[..., Awaitable[web.Response]]] = {
                "POST": create,
                "DELETE": delete,
            }
        else:
            handlers = {"PUT": replace, "PATCH": patch}
            if not target.subresource:
                handlers["DELETE"] = delete
        if method not in handlers:
            raise method_not_allowed(method, request.path)
        return await handlers[method](store, request, target)

    async def _pod_action(self, request: web.Request, target: Target) -> web.Response:
        if target.subresource in CONTAINER_ACCESS:
            why = f"local mode runs no containers: there is nothing to {target.subresource}"
            raise ApiError(501, "NotImplemented", why)
        if request.method != "POST":
            raise method_not_allowed(request.method, request.path)
        body, dry_run = await _body(request), is_dry_run(request)
        if target.subresource == "binding":
            bind(self._store, *target.place, body, dry_run=dry_run, is_writer=is_writer(request))
        else:
            evict(self._store, *target.place, body, dry_run=dry_run)
        return json_response(_CREATED, 201)


async def _body(request: web.Request) -> JsonObject:
    return read_object(request.headers.get("Content-Type", ""), await request.read())


def _refusal(error: ApiError) -> web.Response:
    response = json_response(encode(error.status()), error.code)
    if "retryAfterSeconds" in error.details:
        response.headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return response
