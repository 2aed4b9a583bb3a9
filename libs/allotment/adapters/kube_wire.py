"""The few fields of lists and watch lines that a reflector itself reads; objects stay raw bytes."""

from typing import Any

import msgspec


class ObjectMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""


class Head(msgspec.Struct):
    metadata: ObjectMeta


class ListMeta(msgspec.Struct, rename={"more": "continue"}):
    resourceVersion: str = ""
    more: str = ""


class ListPage(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class StreamError(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_head = msgspec.json.Decoder(Head)


def read_meta(data: bytes) -> ObjectMeta:
    """Who an object is, as far as that can be read at all; a field of a wrong type is empty."""
    try:
        return _head.decode(data).metadata
    except msgspec.MsgspecError:
        untyped = read_leniently(data, dict[str, Any]) or {}
        metadata = untyped.get("metadata")
        if not isinstance(metadata, dict):
            return ObjectMeta()
        return ObjectMeta(
            **{
                name: value
                for name in ObjectMeta.__struct_fields__
                if isinstance(value := metadata.get(name), str)
            }
        )


def read_leniently(data: bytes, kind: type[Any]) -> Any:
    """The data as `kind`, or None if it is something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None


def key_of(meta: ObjectMeta) -> str:
    """What tells one object from another: the uid, or the name of one that has none."""
    return meta.uid or f"{meta.namespace}/{meta.name}"
