"""Which form of an answer a client wants, and how to read the body it sent."""

from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from allotment_local.apiserver.errors import (
    JsonObject,
    bad_request,
    not_acceptable,
    unsupported_media_type,
)

_decode = msgspec.json.Decoder().decode
DEPTH_MAX = 200
"""How deeply objects and lists may be nested: code walks through an object by recursion, of
which Python allows a thousand levels. No type of Kubernetes has a quarter of that."""
TOO_DEEP = f"nested more than {DEPTH_MAX} levels deep; this server takes at most {DEPTH_MAX}"
READABLE = "application/json; with kubectl, write a manifest and use 'kubectl create -f'"
PATCHES = (
    "application/json-patch+json, application/merge-patch+json, "
    "application/strategic-merge-patch+json"
)


class Form(Enum):
    """How an object or a list is shown."""

    PLAIN = "plain"
    TABLE = "Table"


@lru_cache(maxsize=256)
def wanted_form(accept: str) -> Form:
    """The first form in an Accept header that this server can make. ApiError 406 when none is."""
    if not accept:
        return Form.PLAIN
    for option in accept.split(","):
        media, *parameters = (part.strip() for part in option.split(";"))
        if media not in ("application/json", "application/*", "*/*", "text/plain"):
            continue
        asked = dict(part.split("=", 1) for part in parameters if "=" in part)
        match asked.get("as"):
            case None:
                return Form.PLAIN
            case "Table" if asked.get("v") == "v1":
                return Form.TABLE
    raise not_acceptable("application/json, application/json;as=Table;v=v1;g=meta.k8s.io")


def read_json(body: bytes) -> Any:
    try:
        return _decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from None


def _decoded(body: bytes) -> Any:
    try:
        found = _decode(body)
    except RecursionError:
        raise bad_request(f"the body of the request is {TOO_DEEP}") from None
    if body.count(b"{") + body.count(b"[") <= DEPTH_MAX:
        return found
    return not_too_deep(found, "the body of the request")


def not_too_deep(found: Any, what: str) -> Any:
    """The value itself. ApiError 400 if objects and lists are nested too deeply in it."""
    level = [found]
    for _ in range(DEPTH_MAX + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for part in inner for each in part if isinstance(each, dict | list)]
        if not level:
            return found
    raise bad_request(f"{what} is {TOO_DEEP}")


def read_object(content_type: str, body: bytes) -> JsonObject:
    """The object in a request body. ApiError 415 for a format, 400 for a body we cannot read."""
    media = content_type.partition(";")[0].strip()
    if media not in ("application/json", ""):
        raise unsupported_media_type(media, READABLE)
    obj = read_json(body)
    if not isinstance(obj, dict):
        raise bad_request(f"the body of the request is not an object but {type(obj).__name__}")
    return obj
