"""Bytes ⇄ events and messages. JSON, so that a person with any NATS tool can read the log.

Encoding is deterministic (fields in declared order, no floats), decoding refuses what it does not
know with the reason: a newer version, an unknown type, a damaged record.
"""

from typing import TypeVar

import msgspec

from allotment_proto.events import ENVELOPE_VERSION, Envelope
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal, Settled

Message = Feasible | Proposal | Settled
M = TypeVar("M", Feasible, Proposal, Settled)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that are not what we expect."""

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


def decode_envelope(payload: bytes) -> Envelope:
    """Raises `UndecodableError` naming the version or the first offending field."""
    try:
        envelope = _envelope.decode(payload)
    except _UNREADABLE as error:
        raise UndecodableError(_why(payload, ENVELOPE_VERSION, error)) from error
    if not 1 <= envelope.v <= ENVELOPE_VERSION:
        raise UndecodableError(_version_text(envelope.v, ENVELOPE_VERSION))
    return envelope


def decode_message(kind: type[M], payload: bytes) -> M:
    """Raises `UndecodableError` naming the version or the first offending field."""
    try:
        message = _messages[kind].decode(payload)
    except _UNREADABLE as error:
        raise UndecodableError(_why(payload, MESSAGE_VERSION, error)) from error
    if not 1 <= message.v <= MESSAGE_VERSION:
        raise UndecodableError(_version_text(message.v, MESSAGE_VERSION))
    assert isinstance(message, kind)
    return message


def _why(payload: bytes, known: int, error: Exception) -> str:
    try:
        found = _version.decode(payload).v
    except _UNREADABLE:
        return f"not readable: {error}"
    return str(error) if 1 <= found <= known else _version_text(found, known)


def _version_text(found: int, known: int) -> str:
    hint = "upgrade this service" if found > known else "not written by any release"
    versions = "1" if known == 1 else f"1 to {known}"
    return f"version {found} of the record is not known here (known: {versions}; {hint})"
