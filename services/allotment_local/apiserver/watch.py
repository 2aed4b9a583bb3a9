"""GET with watch: a stream of events from a version on.

A watcher holds no queue. It is a position in the collection's history; when that part of the
history is forgotten, the stream ends with ERROR 410 and the client lists again.

With a selector, what the client sees depends on the object before and after the write: coming into
view is ADDED, leaving it is DELETED, whatever the write was.
"""

import asyncio
from typing import NamedTuple

from aiohttp import web

from allotment_local.apiserver.collection import Entry, Event, EventType, encode, watch_line
from allotment_local.apiserver.errors import (
    ApiError,
    JsonObject,
    expired,
    forbidden_field,
    invalid,
)
from allotment_local.apiserver.negotiation import Form, wanted_form
from allotment_local.apiserver.reads import selector_of
from allotment_local.apiserver.requests import CLOCK, Target, flag, number
from allotment_local.apiserver.store import Store
from allotment_local.apiserver.tables import include_choice, table, wire

BATCH_MAX = 500
# In a burst, events gather this long between two writes to a socket; a lone event goes at once.
GATHER_S = 0.002
# How often an idle stream looks whether its client is still there.
PRESENCE_CHECK_S = 5.0
TIMEOUT_S = 1800
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Options(NamedTuple):
    """What the query asks for, checked before the stream begins."""

    version: int | None
    initial: bool
    bookmarks: bool
    mark_initial_end: bool
    timeout_s: float


def read_options(request: web.Request) -> Options:
    """ApiError 400 or 422 for parameters that contradict each other."""
    version = number(request, "resourceVersion")
    send_initial = flag(request, "sendInitialEvents")
    match_rule = request.query.get("resourceVersionMatch", "")
    bookmarks = bool(flag(request, "allowWatchBookmarks"))
    if send_initial is not None and match_rule != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        error = forbidden_field("resourceVersionMatch", why)
        raise invalid("ListOptions", "meta.k8s.io", "", [error])
    if send_initial is None and match_rule:
        error = forbidden_field(
            "resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided"
        )
        raise invalid("ListOptions", "meta.k8s.io", "", [error])
    timeout_s = number(request, "timeoutSeconds")
    initial = send_initial if send_initial is not None else not version
    return Options(
        # With initial events, the version is only a lower bound, and we are never older.
        version=None if initial else version or None,
        initial=initial,
        bookmarks=bookmarks,
        mark_initial_end=bool(send_initial) and bookmarks,
        timeout_s=timeout_s or TIMEOUT_S,
    )


class _View:
    """Turns events into the lines this client sees."""

    def __init__(self, store: Store, request: web.Request, target: Target) -> None:
        self._store = store
        self._resource = target.resource
        self._namespace = target.namespace
        self._selects = selector_of(request, target)
        self._form = wanted_form(request.headers.get("Accept", ""))
        self._include = include_choice(request.query.get("includeObject"))
        self._clock = request.app[CLOCK]
        self._columns_sent = False
        self._shares_lines = self._form is Form.PLAIN and self._resource.to_wire is None

    def line(self, event: Event) -> bytes | None:
        """The event for this client; None when it is not its business."""
        if self._namespace is not None and event.entry.namespace != self._namespace:
            return None
        if self._selects is None:
            return event.line if self._shares_lines else self._written(event.type, event.entry)
        before = event.previous is not None and self._selects(event.previous.obj)
        after = event.type != "DELETED" and self._selects(event.entry.obj)
        if after:
            type_: EventType = "MODIFIED" if before else "ADDED"
            if type_ == event.type and self._shares_lines:
                return event.line
            return self._written(type_, event.entry)
        if not before or event.previous is None:
            return None
        if event.type == "DELETED":
            return event.line if self._shares_lines else self._written("DELETED", event.entry)
        return self._written("DELETED", _last_seen(event.previous, event.version))

    def initial_lines(self) -> list[bytes]:
        entries = self._store.collection(self._resource.key).entries(self._namespace)
        if self._selects is not None:
            entries = [entry for entry in entries if self._selects(entry.obj)]
        return [self._written("ADDED", entry) for entry in entries]

    def _written(self, type_: EventType, entry: Entry) -> bytes:
        if self._shares_lines:
            return watch_line(type_, entry.encoded)
        shown: JsonObject
        if self._form is Form.TABLE:
            shown = table(
                self._resource,
                [entry],
                metadata={"resourceVersion": str(entry.version)},
                now=self._clock(),
                include=self._include,
                with_columns=not self._columns_sent,
            )
            self._columns_sent = True
        else:
            shown = wire(self._resource, entry)
        return watch_line(type_, encode(shown))

    def bookmark(self, *, initial_end: bool = False) -> bytes:
        """Everything up to the current version has been sent."""
        metadata: JsonObject = {"resourceVersion": str(self._store.resource_version)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        shown: JsonObject
        if self._form is Form.TABLE:
            kind = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
            shown = {**kind, "metadata": metadata, "columnDefinitions": None, "rows": []}
        else:
            kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
            shown = {**kind, "metadata": metadata}
        return watch_line("BOOKMARK", encode(shown))


def _last_seen(entry: Entry, version: int) -> Entry:
    """The object as the client last saw it, at the version at which it left the view."""
    metadata = {**entry.obj["metadata"], "resourceVersion": str(version)}
    return Entry(entry.namespace, entry.name, {**entry.obj, "metadata": metadata}, version)


def _error_line(error: ApiError) -> bytes:
    return watch_line("ERROR", encode(error.status()))


async def serve_watch(
    store: Store,
    request: web.Request,
    target: Target,
    *,
    bookmark_interval_s: float,
    stopping: asyncio.Event,
) -> web.StreamResponse:
    """Stream until the time is up, the client leaves, the history is lost, or the server stops."""
    options = read_options(request)
    view = _View(store, request, target)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        await _stream(
            store, request, response, target, options, view, bookmark_interval_s, stopping
        )
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client left
    return response


async def _stream(
    store: Store,
    request: web.Request,
    response: web.StreamResponse,
    target: Target,
    options: Options,
    view: _View,
    bookmark_interval_s: float,
    stopping: asyncio.Event,
) -> None:
    collection = store.collection(target.resource.key)
    # From here to the first write nothing else runs: the initial state and the position agree.
    lines: list[bytes] = []
    if options.version is not None and not (
        collection.oldest_version <= options.version <= store.resource_version
    ):
        # A version from the future is from an earlier life of this server.
        await response.write(_error_line(expired(options.version, collection.oldest_version)))
        return
    version = options.version or store.resource_version
    position = collection.position_after(version)
    if options.initial:
        lines = view.initial_lines()
    if options.mark_initial_end:
        lines.append(view.bookmark(initial_end=True))
    if lines:
        await response.write(b"".join(lines))
    clock = asyncio.get_running_loop().time
    deadline, next_bookmark = clock() + options.timeout_s, clock() + bookmark_interval_s
    last_write = 0.0
    while True:
        events = collection.since(position, BATCH_MAX)
        if events and clock() - last_write < GATHER_S:
            await asyncio.sleep(GATHER_S)
            events = collection.since(position, BATCH_MAX)
        if events is None:
            await response.write(_error_line(expired(version, collection.oldest_version)))
            return
        if events:
            position += len(events)
            version = events[-1].version
            lines = [line for event in events if (line := view.line(event)) is not None]
            if lines:
                await response.write(b"".join(lines))
                last_write = clock()
            continue
        now = clock()
        is_over = now >= deadline or stopping.is_set()
        if options.bookmarks and (is_over or now >= next_bookmark):
            await response.write(view.bookmark())
            next_bookmark = now + bookmark_interval_s
        transport = request.transport
        if is_over or transport is None or transport.is_closing():
            return
        if store.registry.find(target.resource.key) is None:
            return
        next_turn = min(deadline, next_bookmark) if options.bookmarks else deadline
        await collection.changed(max(0.0, min(next_turn - now, PRESENCE_CHECK_S)))
