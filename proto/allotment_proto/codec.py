"""Bytes ⇄ events and messages. JSON, so that a person with any NATS tool can read the log.

Encoding is deterministic (fields in declared order, no floats), decoding refuses what it does not
know with the reason: a newer version, an unknown type, a damaged record.
"""

import re
from typing import TypeVar

import msgspec

from allotment_proto import registry
from allotment_proto.events import ENVELOPE_VERSION, Envelope
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal, Settled
from allotment_proto.sharing import read_envelope

Message = Feasible | Proposal | Settled
M = TypeVar("M", Feasible, Proposal, Settled)

FOUND_MOST = 80
_PLACE = re.compile(r"- at `\$((?:\.\w+|\[\d+\])+)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that are not what we expect."""

_FIXED = frozenset(topic.address for topic in registry.TOPICS if topic.sender != registry.WATCHER)
"""The binder's and the archiver's subjects: what others append has no place there, nor the
reverse."""

_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(Envelope)
_messages: dict[type[Message], msgspec.json.Decoder[Message]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Feasible, Proposal, Settled)
}


class UndecodableError(Exception):
    """Raised when a record or message cannot be read; `reason` says why in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Version(msgspec.Struct):
    v: int = 0


_version = msgspec.json.Decoder(_Version)


def encode(value: Envelope | Message) -> bytes:
    return _encoder.encode(value)


def decode_envelope(payload: bytes, subject: str = "") -> Envelope:
    """Raises `UndecodableError` naming the version, or the first offending field and its value.

    With the `subject` of a record also for an event that does not belong there. Subjects are what
    NATS grants to each service: a decision counts only where the binder alone can append one.
    """
    try:
        envelope = read_envelope(payload)
    except UNREADABLE as error:
        check_envelope(payload)  # raises, and names the place in the record
        raise UndecodableError(_why(payload, ENVELOPE_VERSION, error)) from error
    if not 1 <= envelope.v <= ENVELOPE_VERSION:
        raise UndecodableError(_version_text(envelope.v, ENVELOPE_VERSION))
    if subject:
        for kind in dict.fromkeys(map(type, envelope.events)):
            address = registry.KIND[kind].topic.address
            if subject != address and (subject in _FIXED or address in _FIXED):
                where = f"on {address}" if address in _FIXED else "on a fact's subject"
                raise UndecodableError(f"{kind.__name__} is not for {subject}; it belongs {where}")
    return envelope


def check_envelope(payload: bytes) -> None:
    """As `decode_envelope`, for code that is about to write a record. Raises `UndecodableError`."""
    try:
        _envelope.decode(payload)
    except UNREADABLE as error:
        raise UndecodableError(_why(payload, ENVELOPE_VERSION, error)) from error


def decode_message(kind: type[M], payload: bytes) -> M:
    """Raises `UndecodableError` naming the version or the first offending field."""
    try:
        message = _messages[kind].decode(payload)
    except UNREADABLE as error:
        raise UndecodableError(_why(payload, MESSAGE_VERSION, error)) from error
    if not 1 <= message.v <= MESSAGE_VERSION:
        raise UndecodableError(_version_text(message.v, MESSAGE_VERSION))
    assert isinstance(message, kind)
    return message


def _why(payload: bytes, known: int, error: Exception) -> str:
    try:
        version = _version.decode(payload).v
    except UNREADABLE:
        return f"not readable: {error}"
    if not 1 <= version <= known:
        return _version_text(version, known)
    found = _found(payload, str(error))
    return f"{error}; found {found}" if found else str(error)


def _found(payload: bytes, message: str) -> str:
    """The number or text at the place that msgspec names (``$.events[0].pods``), if it is one."""
    place = _PLACE.search(message)
    if place is None:
        return ""
    try:
        value = msgspec.json.decode(payload)
        for name, index in _STEP.findall(place[1]):
            value = value[int(index)] if index else value[name]
    except (*UNREADABLE, LookupError, TypeError):  # what is missing has no value
        return ""
    is_plain = isinstance(value, (str, int, float)) or value is None
    return msgspec.json.encode(value).decode()[:FOUND_MOST] if is_plain else ""


def _version_text(found: int, known: int) -> str:
    hint = "upgrade this service" if found > known else "not written by any release"
    versions = "1" if known == 1 else f"1 to {known}"
    return f"version {found} of the record is not known here (known: {versions}; {hint})"
