"""What the log says of itself: its segments, and the level of the records that may be written.

The log is one stream with one sequence. A segment is a stretch of it that ends with a
`SegmentClosing`; the next begins with the record after. The state right after a `SegmentClosing` is
the segment's *checkpoint*: its image follows in `CheckpointPart` records, and `SegmentClosed`
completes it. So whatever came before may leave the stream, once it is archived.
"""

from typing import Literal

import msgspec

from allotment_proto.facts import Amount, Int64

CloseCause = Literal["size", "age", "asked"]


class SegmentClosing(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The last record of the segment `number`, which is counted from 1.

    Until a `SegmentClosed` names it, another may take its place: then this one ends nothing.
    """

    number: Amount
    cause: CloseCause


class CheckpointPart(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """Part `index` (from 0) of the checkpoint after the record `closing`: bytes of the state's
    image, compressed with zstd, each part by itself.
    """

    closing: Int64
    index: Amount
    data: bytes


class SegmentClosed(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The segment `number` ended with the record `last_seq`, and its checkpoint is complete.

    `image_bytes` and `digest` (SHA-256, hexadecimal) are of the image that its `parts` hold.
    `chain` is the head of the chain of digests at `last_seq`. `at_ms`: Unix milliseconds.
    """

    number: Amount
    at_ms: Int64
    first_seq: Int64
    last_seq: Int64
    parts: Amount
    image_bytes: Amount
    digest: str
    chain: str


class SegmentArchived(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """A copy of the segment `number` is at `uri`, was read back, and folds to the digest that its
    `SegmentClosed` names. `sha256` (hexadecimal) is that of the file, of `size_bytes`.
    """

    number: Amount
    uri: str
    sha256: str
    size_bytes: Amount


class SegmentsDropped(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The records up to `last_seq` leave the stream: they are archived."""

    last_seq: Int64


class LevelRaised(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """From here on records may be written as releases of this level read them.

    A release that does not know the level stops at this record, and starts with no log that has it.
    """

    level: Amount
