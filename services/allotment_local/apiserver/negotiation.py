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
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from None


def read_yaml(body: bytes) -> Any:
    """JSON is YAML too, and parsed much faster."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return yaml.load(body, Loader=_YAML_LOADER)
    except yaml.YAMLError as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from None


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
