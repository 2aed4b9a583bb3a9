"""A request taken apart: what its path names, and its query parameters with clear refusals."""

import hmac
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypedDict

from aiohttp import web

from allotment_local.apiserver.errors import bad_request, no_such_path
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import Resource

# The clock that ages in tables are counted from.
CLOCK: web.AppKey[Callable[[], datetime]] = web.AppKey("clock")
# The token that allows writes reserved to schedulers and device plugins; empty: none may.
WRITER: web.AppKey[str] = web.AppKey("writer", str)


_DIGITS_MAX = 18  # more would not fit the 64 bits such numbers have


class Target(NamedTuple):
    """What a path names. `namespace` is None for all namespaces, "" for cluster-wide resources."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name, for requests about one object."""
        return self.namespace or "", self.name or ""


def split_path(path: str) -> tuple[str, str, list[str]] | None:
    """`(group, version, rest)` of a path under /api or /apis; None elsewhere."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            return "", version, rest
        case ["apis", group, version, *rest]:
            return group, version, rest
        case _:
            return None


def find_target(registry: Registry, group: str, version: str, rest: list[str]) -> Target:
    """What the path names. ApiError 404 when it names nothing that is served."""
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise no_such_path()
    resource = registry.served(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else ""
    if resource.namespaced:
        if name is not None and namespace is None:
            raise no_such_path()
    elif namespace is not None:
        raise no_such_path()
    else:
        namespace = ""
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    return Target(resource, namespace, name, subresource)


def flag(request: web.Request, name: str) -> bool | None:
    """A boolean parameter; None when absent."""
    value = request.query.get(name)
    if value is None or value == "":
        return None
    if value in ("1", "true", "True", "t", "T", "TRUE"):
        return True
    if value in ("0", "false", "False", "f", "F", "FALSE"):
        return False
    raise bad_request(f"{name}: {value!r} is not true or false")


def number(request: web.Request, name: str) -> int | None:
    """A parameter that counts something; None when absent."""
    value = request.query.get(name)
    if value is None or value == "":
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
        raise bad_request(f"{name}: {value!r} is not a whole number from 0 on")
    return int(value)


class WriteMode(TypedDict):
    """How a write is to be done, as keyword arguments of the Store."""

    strict: bool
    dry_run: bool
    is_writer: bool


def write_mode(request: web.Request) -> WriteMode:
    """Dry run or not, unknown fields refused or dropped. ApiError 400 for other choices."""
    validation = request.query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise bad_request(f"fieldValidation: {validation!r} is not Ignore, Warn or Strict")
    return {
        "strict": validation == "Strict",
        "dry_run": is_dry_run(request),
        "is_writer": is_writer(request),
    }


def is_writer(request: web.Request) -> bool:
    """Whether the request bears the token of schedulers and device plugins."""
    token = request.app[WRITER]
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bool(token) and hmac.compare_digest(
        given.encode(errors="surrogateescape"), token.encode()
    )


def is_dry_run(request: web.Request) -> bool:
    values = request.query.getall("dryRun", [])
    for value in values:
        if value != "All":
            raise bad_request(f'dryRun: {value!r} is not supported; supported values: "All"')
    return bool(values)
