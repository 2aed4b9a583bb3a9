"""The few fields of lists and watch lines that a reflector itself reads; objects stay raw bytes.

The decoder walks what it skips as well, level by level, and gives up at some thousand levels, at
a broken character and at a number that is none. An API server takes objects of up to 10,000 levels
where a definition keeps unknown fields. So what cannot be decoded as a whole is taken apart at its
brackets, without recursion: the one odd object is refused, all others are read.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from allotment.adapters.kube.objects import ObjectMeta
from allotment_proto.codec import UNREADABLE

_TO_BRACKET = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL
)
"""Up to the next bracket, texts skipped whole. Possessive, so that nothing is ever tried twice."""


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


class Unreadable(Exception):
    """Raised for bytes that are no list page, or no line of a watch."""


_head = msgspec.json.Decoder(Head)
_page = msgspec.json.Decoder(ListPage)
_line = msgspec.json.Decoder(WatchLine)


def read_page(body: bytes) -> ListPage:
    """A page of a list, whatever single items hold. Raises `Unreadable`."""
    try:
        return _page.decode(body)
    except UNREADABLE as error:
        try:
            return _page_apart(body)
        except UNREADABLE:
            raise Unreadable(f"not a list object: {error}") from error


def read_line(line: bytes) -> WatchLine:
    """A line of a watch, whatever its object holds. Raises `Unreadable`."""
    try:
        return _line.decode(line)
    except UNREADABLE as error:
        try:
            return _line_apart(line)
        except UNREADABLE:
            raise Unreadable(f"not a watch event: {error}") from error


def read_meta(data: bytes) -> ObjectMeta:
    """Who an object is, as far as that can be read at all; a field of a wrong type is empty."""
    try:
        return _head.decode(data).metadata
    except UNREADABLE:
        metadata = read_leniently(shallow(_metadata_apart(bytes(data)), 1), dict[str, Any]) or {}
        return ObjectMeta(
            **{
                field.name: value
                for field in msgspec.structs.fields(ObjectMeta)
                if isinstance(value := metadata.get(field.encode_name), str)
            }
        )


def read_leniently(data: bytes, kind: type[Any]) -> Any:
    """The data as `kind`, or None if it is something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        return None


def key_of(meta: ObjectMeta) -> str:
    """What tells one object from another: the uid, or the name of one that has none."""
    return meta.uid or f"{meta.namespace}/{meta.name}"


def shallow(data: bytes, levels: int) -> bytes:
    """The first `levels` levels of a JSON text, with ``null`` in the place of what is deeper.

    Broken characters are replaced. A text whose brackets do not match comes back as it is: it is
    unreadable anyway.
    """
    kept: list[bytes] = []
    at = 0
    try:
        for _, start, end in _within(data, levels):
            kept += (data[at:start], b"null")
            at = end
    except msgspec.DecodeError:
        return data
    kept.append(data[at:])
    return b"".join(kept).decode(errors="replace").encode()


def _metadata_apart(data: bytes) -> bytes:
    """An object's metadata, whatever else it holds; empty where there is none."""
    try:
        found = [data[start:end] for name, start, end in _within(data, 1) if name == b"metadata"]
    except msgspec.DecodeError:
        return b""
    return found[-1] if found else b""


def _page_apart(body: bytes) -> ListPage:
    parts = {name: body[start:end] for name, start, end in _within(body, 1)}
    metadata = msgspec.json.decode(parts.get(b"metadata", b""), type=ListMeta)
    items = parts.get(b"items", b"")
    if not items.startswith(b"["):  # never an empty list: that would end all that is known
        raise msgspec.DecodeError("no items")
    return ListPage(
        metadata, [msgspec.Raw(items[start:end]) for _, start, end in _within(items, 1)]
    )


def _line_apart(line: bytes) -> WatchLine:
    found = next((span for span in _within(line, 1) if span[0] == b"object"), None)
    if found is None:
        raise msgspec.DecodeError("no object")
    _, start, end = found
    event = _line.decode(line[:start] + b"null" + line[end:])
    event.object = msgspec.Raw(line[start:end])
    return event


def _within(data: bytes, levels: int) -> Iterator[tuple[bytes, int, int]]:
    """The objects and arrays that lie `levels` deep, each with its name in the object around it
    (empty in an array), where it begins and where it ends. Raises DecodeError where the brackets do
    not match.
    """
    open_brackets = bytearray()
    start, name = 0, b""
    end = 0
    while (match := _TO_BRACKET.match(data, end)) is not None:  # a search would begin everywhere
        bracket, end = match[1], match.end()
        if bracket in b"[{":
            if len(open_brackets) == levels:
                start, name = end - 1, _name_before(data[match.start() : end - 1])
            open_brackets += b"]" if bracket == b"[" else b"}"
            continue
        if not open_brackets or open_brackets.pop() != bracket[0]:
            raise msgspec.DecodeError("brackets do not match")
        if len(open_brackets) == levels:
            yield name, start, end
    if open_brackets:
        raise msgspec.DecodeError("brackets do not match")


def _name_before(text: bytes) -> bytes:
    """The name in front of a value, from the text between that and the bracket before it."""
    before, colon, rest = text.rpartition(b":")
    if not colon or rest.strip():
        return b""
    return before.rstrip().removesuffix(b'"').rpartition(b'"')[2]
