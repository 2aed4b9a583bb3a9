"""Which form of an answer a client wants, and how to read the body it sent."""

from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from allotment_local.apiserver.errors import (
    JsonObject,
    bad_request,
    not_acceptable,
    unsupported_media_type,
)
from allotment_local.apiserver.protobuf import decode_protobuf

_decode = msgspec.json.Decoder().decode
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEPTH_MAX = 200
"""How deeply objects and lists may be nested: code walks through an object by recursion, of
which Python allows a thousand levels. No type of Kubernetes has a quarter of that."""
TOO_DEEP = f"nested more than {DEPTH_MAX} levels deep; this server takes at most {DEPTH_MAX}"
EXPANDED_MAX = 3 * 1024 * 1024
"""What the anchors of a YAML text may come to, in values and characters. A request to Kubernetes'
API server has at most 3 MiB."""
TOO_LARGE = (
    f"larger than {EXPANDED_MAX} values and characters with its anchors (&name, *name) spelled out"
    ": repeat less by anchors, or split it into several objects"
)
UNFINISHED = -1
READABLE = "application/json, application/yaml"
PATCHES = (
    "application/json-patch+json, application/merge-patch+json, "
    "application/strategic-merge-patch+json, application/apply-patch+yaml"
)


class Form(Enum):
    """How an object or a list is shown."""

    PLAIN = "plain"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    DISCOVERY = "APIGroupDiscoveryList"


@lru_cache(maxsize=256)
def wanted_form(accept: str) -> Form:
    """The first form in an Accept header that this server can make. ApiError 406 when none is."""
    if not accept:
        return Form.PLAIN
    for option in accept.split(","):
        media, *parameters = (part.strip() for part in option.split(";"))
        if media not in (
            "application/json",
            "application/*",
            "*/*",
            "text/plain",
            "application/yaml",
        ):
            continue
        asked = dict(part.split("=", 1) for part in parameters if "=" in part)
        match asked.get("as"):
            case None:
                return Form.PLAIN
            case "Table" if asked.get("v") == "v1":
                return Form.TABLE
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return Form.PARTIAL
            case "APIGroupDiscoveryList" if asked.get("v") == "v2":
                return Form.DISCOVERY
    raise not_acceptable("application/json, application/json;as=Table;v=v1;g=meta.k8s.io")


def read_json(body: bytes) -> Any:
    try:
        return _decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from None


def read_yaml(body: bytes) -> Any:
    """JSON is YAML too, and parsed much faster."""
    try:
        return _decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        found = _constructed(body)
        msgspec.json.encode(found)
    except yaml.YAMLError as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from None
    except (TypeError, ValueError) as error:
        raise bad_request(f"the body of the request cannot be written as JSON: {error}") from None
    except RecursionError:
        raise bad_request(f"the body of the request is {TOO_DEEP}") from None
    return not_too_deep(found, "the body of the request")


def _constructed(body: bytes) -> Any:
    """The one document of a YAML text, unless its anchors name more than a request can hold.

    Nodes are counted before values are made of them: merge keys (``<<``) are expanded by then.
    """
    loader = _YAML_LOADER(body)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > max(EXPANDED_MAX, len(body)):
            raise bad_request(f"the body of the request is {TOO_LARGE}")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values and characters a node comes to where each anchor that it names is spelled
    out. RecursionError if an anchor names what it is in.
    """
    known = sizes.get(id(node))
    if known is None:
        sizes[id(node)] = UNFINISHED
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        known = sizes[id(node)] = 1 + own + sum(_size(part, sizes) for part in parts)
    if known == UNFINISHED:
        raise RecursionError
    return known


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
    if media in ("application/json", ""):
        obj = read_json(body)
    elif media == "application/yaml":
        obj = read_yaml(body)
    elif media == "application/vnd.kubernetes.protobuf":
        obj = decode_protobuf(body)
    else:
        raise unsupported_media_type(media, READABLE)
    if not isinstance(obj, dict):
        raise bad_request(f"the body of the request is not an object but {type(obj).__name__}")
    return obj
