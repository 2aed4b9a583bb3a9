"""A segment: what happened to the books in one stretch of the log, and the names used in it.

Rows are NumPy's packed structs, little-endian. They refer to names by number; a name is in the
segment that uses it first, and numbers go on through all segments of a journal.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allotment_proto.codec import UNREADABLE
from allotment_proto.facts import Amounts, Geometry, Holding

JOURNAL_VERSION = 2
NONE = -1
START = bytes(32)
"""The hash chain before the first record."""

Rows = NDArray[np.void]

ENTRY = np.dtype(
    [
        ("seq", "<i8"),
        ("at_ms", "<i8"),
        ("pod", "<i4"),
        ("node", "<i4"),
        ("taken", "<i4"),
        ("holdings", "<i4"),
    ]
)
"""A pod was booked on a node with so many holdings, or released (node −1)."""

HOLDING = np.dtype([("place", "<i4"), ("share", "<i4"), ("is_used", "<i4")])
"""A share of a card, for each booking as many as its entry says. One that is not charged, because
its container holds that piece of it already, is written as −1 − share. One that may be on any of
several cards is on each of them, and used (1) on as many as are asked for; 0 on the rest."""

HOST = np.dtype(
    [
        ("seq", "<i8"),
        ("at_ms", "<i8"),
        ("node", "<i4"),
        ("is_there", "<i4"),
        ("cpu_milli", "<i8"),
        ("memory_bytes", "<i8"),
        ("pods", "<i8"),
        ("extended", "<i4"),
        ("cards", "<i4"),
    ]
)
"""A node came, changed or went, with so many cards."""

CARD = np.dtype(
    [
        ("place", "<i4"),
        ("cut", "<i4"),
        ("slots", "<i8"),
        ("memory_mib", "<i8"),
        ("cores_pct", "<i8"),
    ]
)
"""A card that a node lists. `cut` says how it is handed out in pieces, −1 if by amounts alone."""


class Taken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod takes of its host."""

    cpu_milli: int
    memory_bytes: int
    extended: Amounts


class Cut(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What tells how a card is cut: see `partitions.partitioner_of`. Only for cards that are."""

    family: str
    is_closed: bool
    table: tuple[Geometry, ...]


class Names(msgspec.Struct, array_like=True):
    """What rows refer to, by position. A pod is its namespace's number and its uid, a place is a
    card of a node: the node's number, the family's, and the card's id."""

    spaces: list[str] = []
    pods: list[tuple[int, str]] = []
    nodes: list[str] = []
    families: list[str] = []
    places: list[tuple[int, int, str]] = []
    shares: list[Holding] = []
    """Holdings without their cards."""
    taken: list[Taken] = []
    extended: list[Amounts] = []
    cuts: list[Cut] = []


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """The records from `first_seq` to `last_seq`. `chain` is the hash chain of the log up to the
    last, `chain_before` up to the one before the first."""

    v: int
    first_seq: int
    last_seq: int
    chain_before: bytes
    chain: bytes
    names: Names
    entries: bytes
    holdings: bytes
    hosts: bytes
    cards: bytes


class JournalError(Exception):
    """Raised when a journal cannot be what it says: fold the log instead."""


_decoder = msgspec.msgpack.Decoder(Segment)


def encode(segment: Segment) -> bytes:
    """Raises `JournalError` for a number that has no room."""
    try:
        return msgspec.msgpack.encode(segment)
    except OverflowError as error:
        raise JournalError(f"a number is too large for a journal: {error}") from error


def decode(payload: bytes) -> Segment:
    """The segment that `encode` was given. Raises `JournalError` for anything else."""
    try:
        segment = _decoder.decode(payload)
    except UNREADABLE as error:
        raise JournalError(f"not a segment: {error}") from error
    if segment.v != JOURNAL_VERSION:
        raise JournalError(f"segment version {segment.v}, known is {JOURNAL_VERSION}")
    return segment


def charging(shares: NDArray[Any]) -> NDArray[Any]:
    """The numbers of shares, charged or not."""
    return np.where(shares < 0, NONE - shares, shares)


def on_card(share: Holding, card: str) -> Holding:
    """The same share, of this card."""
    return Holding(
        share.family, share.container, card, share.memory_mib, share.cores_pct, share.instance
    )


def packer(kind: np.dtype[Any]) -> Callable[..., bytes]:
    """What makes the bytes of one row from its numbers; raises struct.error if one has no room."""
    assert kind.names is not None
    letters = {4: "i", 8: "q"}
    return struct.Struct("<" + "".join(letters[kind[name].itemsize] for name in kind.names)).pack


def unpacked(rows: bytes, kind: np.dtype[Any]) -> Rows:
    """Bytes as rows. Raises `JournalError` if they are none."""
    if len(rows) % kind.itemsize:
        raise JournalError(f"{len(rows)} bytes are no rows of {kind.itemsize}")
    return np.frombuffer(rows, kind)
