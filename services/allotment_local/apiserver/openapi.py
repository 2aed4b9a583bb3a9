"""OpenAPI, as little as `kubectl apply` and `kubectl create` need.

Seeing `fieldValidation` on a kind's PATCH, kubectl leaves validation to the server.
"""

from allotment_local.apiserver.errors import JsonObject, no_such_path
from allotment_local.apiserver.registry import Registry

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]
# Not strategic merge: kubectl would take it as a promise that schemas name every list's key.
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")

# kubectl validates a manifest of kind List by OpenAPI v2, in protobuf: a document that defines no
# kind lets everything pass, and each item is then validated here. Fields: swagger, info(title,
# version).
V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT = b"\x0a\x032.0\x12\x12\x0a\x09allotment\x12\x05local"


def _paths(registry: Registry) -> dict[str, tuple[str, str]]:
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, versions in registry.groups().items()
        for version in versions
    }


def index(registry: Registry) -> JsonObject:
    """`/openapi/v3`: where each group version's document is."""
    return {
        "paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _paths(registry)}
    }


def document(registry: Registry, path: str) -> JsonObject:
    """`/openapi/v3/<path>`. ApiError 404 when there is no such group version."""
    if path not in _paths(registry):
        raise no_such_path()
    group, version = _paths(registry)[path]
    paths: JsonObject = {}
    for resource in registry.groups()[group][version]:
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        paths[f"/{path}/{scope}{resource.plural}/{{name}}"] = {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": _PARAMETERS,
                "requestBody": {"content": {media: {} for media in _PATCHES}},
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": resource.group,
                    "version": resource.version,
                    "kind": resource.kind,
                },
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Allotment local API server", "version": "v1.32.0"},
        "paths": paths,
    }
