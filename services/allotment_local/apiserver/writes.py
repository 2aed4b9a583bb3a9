"""POST, PUT, PATCH and DELETE on stored resources."""

from collections.abc import Callable

from aiohttp import web

from allotment_local.apiserver.collection import Entry, encode
from allotment_local.apiserver.errors import (
    ApiError,
    JsonObject,
    bad_request,
    invalid,
    required,
    success,
    unsupported_media_type,
)
from allotment_local.apiserver.meta import check_same, check_type
from allotment_local.apiserver.negotiation import (
    PATCHES,
    not_too_deep,
    read_json,
    read_object,
)
from allotment_local.apiserver.patches import json_patch, merge, strategic
from allotment_local.apiserver.reads import json_response, selected, shown
from allotment_local.apiserver.requests import Target, is_dry_run, number, write_mode
from allotment_local.apiserver.resources import PODS, Resource, warning
from allotment_local.apiserver.shapes import DELETE_OPTIONS, shaped
from allotment_local.apiserver.store import Propagation, Store
from allotment_local.apiserver.tables import wire, wire_bytes


def _incoming(resource: Resource, obj: JsonObject) -> JsonObject:
    check_type(resource, obj)
    return resource.from_wire(obj) if resource.from_wire else obj


async def _body(request: web.Request) -> JsonObject:
    return read_object(request.headers.get("Content-Type", ""), await request.read())


async def create(store: Store, request: web.Request, target: Target) -> web.Response:
    obj = _incoming(target.resource, await _body(request))
    namespace = target.namespace
    if namespace is None:
        raise bad_request(f"{target.resource.kind} is namespaced; post it under a namespace")
    entry = store.create_entry(target.resource.key, namespace, obj, **write_mode(request))
    response = json_response(shown(store, request, target, entry), 201)
    if text := warning(target.resource):
        response.headers["Warning"] = f'299 - "{text}"'  # 299 is Kubernetes' own; kubectl prints it
    return response


async def replace(store: Store, request: web.Request, target: Target) -> web.Response:
    obj = _incoming(target.resource, await _body(request))
    given = (obj.get("metadata") or {}) if isinstance(obj.get("metadata"), dict | None) else {}
    if target.resource.custom and not given.get("resourceVersion"):
        error = required("metadata.resourceVersion", "must be specified for an update")
        raise invalid(target.resource.kind, target.resource.group, target.place[1], [error])
    entry = store.change(
        target.resource.key,
        *target.place,
        lambda _old: obj,
        subresource=target.subresource,
        **write_mode(request),
    )
    return json_response(shown(store, request, target, entry))


async def patch(store: Store, request: web.Request, target: Target) -> web.Response:
    media = request.headers.get("Content-Type", "").partition(";")[0].strip()
    resource = target.resource
    change = _patch_function(resource, media, await request.read())

    def patched(old: JsonObject) -> JsonObject:
        if resource.to_wire is None:
            return check_same(resource, old, change(old))
        return _incoming(resource, change(resource.to_wire(old)))

    entry = store.change(
        resource.key,
        *target.place,
        patched,
        subresource=target.subresource,
        **write_mode(request),
    )
    return json_response(shown(store, request, target, entry))


def _patch_function(
    resource: Resource, media: str, body: bytes
) -> Callable[[JsonObject], JsonObject]:
    """The patch in a body as a function. ApiError 415 for a type this resource does not take."""
    if media == "application/json-patch+json":
        operations = read_json(body)
        return lambda old: not_too_deep(json_patch(old, operations), "the patched object")
    if media not in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        raise unsupported_media_type(media, PATCHES)
    patch = read_json(body)
    if not isinstance(patch, dict):
        raise bad_request(f"the patch is not an object but {type(patch).__name__}")
    if media == "application/merge-patch+json":
        return lambda old: merge(old, patch)
    if resource.custom:
        accepted = PATCHES.replace("application/strategic-merge-patch+json, ", "")
        raise unsupported_media_type(media, accepted)
    return lambda old: strategic(old, patch)


def _grace_s(request: web.Request, options: JsonObject) -> int | None:
    from_query = number(request, "gracePeriodSeconds")
    return from_query if from_query is not None else options.get("gracePeriodSeconds")


def _propagation(request: web.Request, options: JsonObject) -> Propagation:
    given = request.query.get("propagationPolicy") or options.get("propagationPolicy")
    if options.get("orphanDependents") is True:
        given = "Orphan"
    match given:
        case None | "":
            return "Background"
        case "Background" | "Foreground" | "Orphan":
            return given
        case _:
            raise bad_request(
                f"propagationPolicy: {given!r} is not Orphan, Background or Foreground"
            )


async def delete(store: Store, request: web.Request, target: Target) -> web.Response:
    """One object, or with no name all that the selectors choose."""
    given = await _body(request) if request.can_read_body else {}
    options: JsonObject = shaped(DELETE_OPTIONS, given, "")
    if options.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f"{options['kind']} cannot be handled as DeleteOptions")
    preconditions = options.get("preconditions") or {}
    dry_run = is_dry_run(request) or bool(options.get("dryRun"))
    grace_s, propagation = _grace_s(request, options), _propagation(request, options)
    key = target.resource.key

    def remove(namespace: str, name: str) -> tuple[Entry, bool]:
        return store.remove(
            key,
            namespace,
            name,
            grace_seconds=grace_s,
            preconditions=preconditions,
            propagation=propagation,
            dry_run=dry_run,
        )

    if target.name is not None:
        entry, removed = remove(*target.place)
        if not removed or key == PODS:
            return json_response(wire_bytes(target.resource, entry))
        details = {
            "name": entry.name,
            "group": target.resource.group,
            "kind": target.resource.plural,
            "uid": entry.obj["metadata"]["uid"],
        }
        return json_response(encode(success(200, details)))
    deleted = []
    for entry in selected(store, request, target):
        try:
            deleted.append(remove(entry.namespace, entry.name)[0])
        except ApiError as error:
            if error.code not in (403, 404):  # gone meanwhile, or never to be deleted
                raise
    body = {
        "kind": f"{target.resource.kind}List",
        "apiVersion": target.resource.api_version,
        "metadata": {"resourceVersion": str(store.resource_version)},
        "items": [wire(target.resource, entry) for entry in deleted],
    }
    return json_response(encode(body))
