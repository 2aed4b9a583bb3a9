"""OpenAPI v3, as little as kubectl needs: kinds, the parameters they take, what explain shows.

Seeing `fieldValidation` on a kind's PATCH, kubectl leaves validation to the server.
"""

from hashlib import blake2s

from allotment_local.apiserver.collection import encode
from allotment_local.apiserver.errors import JsonObject, no_such_path
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import Resource

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]
# Not strategic merge: kubectl would take it as a promise that the schemas name every list's key.
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


# kubectl validates a manifest of kind List by OpenAPI v2, in protobuf: a document that defines no
# kind lets everything pass, and each item is then validated here. Fields: swagger, info(title,
# version).
V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT = b"\x0a\x032.0\x12\x12\x0a\x09allotment\x12\x05local"


class Documents:
    """The documents, made when first asked for and again when resources come or go."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._made: dict[str, bytes] = {}

    def index(self) -> JsonObject:
        """`/openapi/v3`: each document with a hash of its content, so that clients may keep it."""
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(document)}"}
            for path, document in self._documents().items()
        }
        return {"paths": paths}

    def document(self, path: str) -> bytes:
        """`/openapi/v3/<path>`. ApiError 404 when there is no such group version."""
        try:
            return self._documents()[path]
        except KeyError:
            raise no_such_path() from None

    def _documents(self) -> dict[str, bytes]:
        if self._generation != self._registry.generation:
            self._made = {
                _document_path(group, version): encode(_document(group, version, resources))
                for group, versions in self._registry.groups().items()
                for version, resources in versions.items()
            }
            self._generation = self._registry.generation
        return self._made


def _digest(document: bytes) -> str:
    return blake2s(document, digest_size=16).hexdigest().upper()


def _document_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document(group: str, version: str, resources: list[Resource]) -> JsonObject:
    paths: JsonObject = {}
    schemas: JsonObject = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        name = ".".join(part for part in (group or "core", version, resource.kind))
        schemas[name] = {**_schema(resource), "x-kubernetes-group-version-kind": [kind]}
        scope = "namespaces/{namespace}/" if resource.namespaced else ""
        path = f"/{_document_path(group, version)}/{scope}{resource.plural}/{{name}}"
        paths[path] = {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": _PARAMETERS,
                "requestBody": {"content": {media: {"schema": _ANY} for media in _PATCHES}},
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Allotment local API server", "version": "v1.32.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema(resource: Resource) -> JsonObject:
    properties: JsonObject = {
        "apiVersion": {"type": "string", "description": "The version of this representation."},
        "kind": {"type": "string", "description": "The kind of object."},
        "metadata": {"type": "object", "description": "Name, labels, annotations and identity."},
    }
    if resource.schema is not None:
        return {
            **resource.schema,
            "type": "object",
            "properties": {**(resource.schema.get("properties") or {}), **properties},
        }
    return {
        "type": "object",
        "description": f"{resource.kind}, as in Kubernetes; its fields are not described here.",
        "properties": {
            **properties,
            "spec": {**_ANY, "description": "What is wanted."},
            "status": {**_ANY, "description": "What was last seen."},
        },
    }
