"""Protobuf bodies of the few kinds typed kubectl commands send, decoded to JSON objects.

kubectl's typed commands (`create configmap`, drain's evictions, `auth can-i`) send protobuf and do
not fall back. A message here is a table from field number to (JSON name, type); unknown fields are
skipped. A kind without a table is refused with 415.
"""

import base64
from collections.abc import Iterator
from typing import Any

from allotment_local.apiserver.errors import JsonObject, bad_request, unsupported_media_type

MAGIC = b"k8s\x00"
Message = dict[int, tuple[str, Any]]

# A type is "string", "bytes", "int", "bool", a Message, ("map", type) or ("list", type).
_OWNER: Message = {
    1: ("kind", "string"),
    3: ("name", "string"),
    4: ("uid", "string"),
    5: ("apiVersion", "string"),
    6: ("controller", "bool"),
    7: ("blockOwnerDeletion", "bool"),
}
_META: Message = {
    1: ("name", "string"),
    2: ("generateName", "string"),
    3: ("namespace", "string"),
    5: ("uid", "string"),
    6: ("resourceVersion", "string"),
    11: ("labels", ("map", "string")),
    12: ("annotations", ("map", "string")),
    13: ("ownerReferences", ("list", _OWNER)),
    14: ("finalizers", ("list", "string")),
}
_DELETE_OPTIONS: Message = {
    1: ("gracePeriodSeconds", "int"),
    2: ("preconditions", {1: ("uid", "string"), 2: ("resourceVersion", "string")}),
    4: ("propagationPolicy", "string"),
    5: ("dryRun", ("list", "string")),
}
_OBJECT_REFERENCE: Message = {
    1: ("kind", "string"),
    2: ("namespace", "string"),
    3: ("name", "string"),
    4: ("uid", "string"),
    5: ("apiVersion", "string"),
}
_ACCESS_REVIEW_SPEC: Message = {
    1: (
        "resourceAttributes",
        {
            number: (name, "string")
            for number, name in enumerate(
                ("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1
            )
        },
    ),
    2: ("nonResourceAttributes", {1: ("path", "string"), 2: ("verb", "string")}),
}
_RULES_REVIEW_SPEC: Message = {1: ("namespace", "string")}
_KINDS: dict[str, Message] = {
    "Binding": {1: ("metadata", _META), 2: ("target", _OBJECT_REFERENCE)},
    "ConfigMap": {
        1: ("metadata", _META),
        2: ("data", ("map", "string")),
        3: ("binaryData", ("map", "bytes")),
        4: ("immutable", "bool"),
    },
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _META), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "Namespace": {1: ("metadata", _META), 2: ("spec", {1: ("finalizers", ("list", "string"))})},
    "PriorityClass": {
        1: ("metadata", _META),
        2: ("value", "int"),
        3: ("globalDefault", "bool"),
        4: ("description", "string"),
        5: ("preemptionPolicy", "string"),
    },
    "Secret": {
        1: ("metadata", _META),
        2: ("data", ("map", "bytes")),
        3: ("type", "string"),
        4: ("stringData", ("map", "string")),
        5: ("immutable", "bool"),
    },
    "SelfSubjectAccessReview": {1: ("metadata", _META), 2: ("spec", _ACCESS_REVIEW_SPEC)},
    "SelfSubjectReview": {1: ("metadata", _META)},
    "SelfSubjectRulesReview": {1: ("metadata", _META), 2: ("spec", _RULES_REVIEW_SPEC)},
    "ServiceAccount": {
        1: ("metadata", _META),
        4: ("automountServiceAccountToken", "bool"),
    },
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """`(number, value)` of each field on the wire."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire_type == 2:
            size, at = _varint(data, at)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if at + size > len(data):
            raise ValueError("the message ends early")
        yield number, data[at : at + size]
        at += size


def _value(kind: Any, raw: int | bytes) -> Any:
    if isinstance(raw, int):
        if kind == "bool":
            return bool(raw)
        if kind == "int":
            return raw - (1 << 64) if raw >= 1 << 63 else raw
        raise ValueError(f"a number where {kind} was expected")
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if isinstance(kind, dict):
        return _message(kind, raw)
    raise ValueError(f"bytes where {kind} was expected")


def _message(table: Message, data: bytes) -> JsonObject:
    decoded: JsonObject = {}
    for number, raw in _fields(data):
        name, kind = table.get(number, ("", None))
        if not name:
            continue
        if isinstance(kind, tuple) and kind[0] == "list":
            decoded.setdefault(name, []).append(_value(kind[1], raw))
        elif isinstance(kind, tuple) and isinstance(raw, bytes):
            pair = _message({1: ("key", "string"), 2: ("value", kind[1])}, raw)
            decoded.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
        elif raw != b"" or kind in ("string", "bytes"):
            decoded[name] = _value(kind, raw)
    # Go's protobuf writes empty strings; JSON leaves them out.
    return {name: value for name, value in decoded.items() if value not in ("", {})}


def decode_protobuf(body: bytes) -> JsonObject:
    """The object in a `k8s\\0` envelope. ApiError 415 for other kinds, 400 if malformed."""
    if not body.startswith(MAGIC):
        raise bad_request("a protobuf body must start with the bytes 'k8s\\0'")
    type_meta: Message = {1: ("apiVersion", "string"), 2: ("kind", "string")}
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        described = envelope.get(1, b"")
        raw = envelope.get(2, b"")
        if not isinstance(described, bytes) or not isinstance(raw, bytes):
            raise ValueError("the envelope holds numbers")
        identity = _message(type_meta, described)
        table = _KINDS.get(identity.get("kind", ""))
        if table is None:
            raise unsupported_media_type(
                f"application/vnd.kubernetes.protobuf of kind {identity.get('kind')!r}",
                "application/json, application/yaml; with kubectl, write a manifest and use "
                "'kubectl create -f'",
            )
        return {**identity, **_message(table, raw)}
    except (IndexError, ValueError) as error:
        raise bad_request(f"malformed protobuf body: {error}") from None
