"""GET without watch: one object, or a list with selectors and pages."""

import base64
import binascii

import msgspec
from aiohttp import web

from allotment_local.apiserver.collection import Entry
from allotment_local.apiserver.errors import (
    JsonObject,
    bad_request,
    expired,
    resource_version_too_large,
)
from allotment_local.apiserver.negotiation import wanted_form
from allotment_local.apiserver.requests import CLOCK, Target, number
from allotment_local.apiserver.selectors import Predicate, compile_selector
from allotment_local.apiserver.store import Store
from allotment_local.apiserver.tables import include_choice, show_list, show_one
from allotment_proto.codec import UNREADABLE


class _Page(msgspec.Struct):
    """Where the next page of a list begins."""

    version: int
    after: tuple[str, str]


def json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def shown(store: Store, request: web.Request, target: Target, entry: Entry) -> bytes:
    """One entry as this request wants it."""
    form = wanted_form(request.headers.get("Accept", ""))
    include = include_choice(request.query.get("includeObject"))
    return show_one(target.resource, entry, form, request.app[CLOCK](), include)


def get_one(store: Store, request: web.Request, target: Target) -> web.Response:
    entry = store.entry(target.resource.key, *target.place)
    return json_response(shown(store, request, target, entry))


def selector_of(request: web.Request, target: Target) -> Predicate | None:
    query = request.query
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return compile_selector(labels, fields, target.resource.fields)


def selected(store: Store, request: web.Request, target: Target) -> list[Entry]:
    """The entries a list or a deletecollection is about, by namespace and name."""
    test = selector_of(request, target)
    entries = store.collection(target.resource.key).entries(target.namespace)
    if test is not None:
        entries = [entry for entry in entries if test(entry.obj)]
    entries.sort(key=_place)
    return entries


def _place(entry: Entry) -> tuple[str, str]:
    return entry.namespace, entry.name


def _read_page(token: str) -> _Page:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Page)
    except (binascii.Error, *UNREADABLE, ValueError):
        raise bad_request(f"continue key is not valid: {token!r}") from None


def _check_version(store: Store, request: web.Request) -> None:
    asked = number(request, "resourceVersion")
    if asked is None:
        return
    if asked > store.resource_version:
        raise resource_version_too_large(asked, store.resource_version)
    if request.query.get("resourceVersionMatch") == "Exact" and asked != store.resource_version:
        raise expired(asked, store.resource_version)


def get_list(store: Store, request: web.Request, target: Target) -> web.Response:
    """A list, by name; with `limit`, in pages. Later pages show the then current objects."""
    _check_version(store, request)
    form = wanted_form(request.headers.get("Accept", ""))
    include = include_choice(request.query.get("includeObject"))
    limit = number(request, "limit")
    entries = selected(store, request, target)
    version = store.resource_version
    if token := request.query.get("continue"):
        page = _read_page(token)
        oldest = store.collection(target.resource.key).oldest_version
        if page.version < oldest or page.version > version:
            raise expired(page.version, oldest)
        version = page.version
        entries = [entry for entry in entries if _place(entry) > page.after]
    metadata: JsonObject = {"resourceVersion": str(version)}
    if limit and len(entries) > limit:
        metadata["remainingItemCount"] = len(entries) - limit
        entries = entries[:limit]
        page = _Page(version, _place(entries[-1]))
        metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode(page)).decode()
    body = show_list(
        target.resource,
        entries,
        form,
        metadata=metadata,
        now=request.app[CLOCK](),
        include=include,
    )
    return json_response(body)
