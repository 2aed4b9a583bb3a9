"""Is a file of the archive what was written, and does it lead to the state that the log names?

One reading checks the SHA-256 of the file, each record's place and its head in the chain, the heads
that decisions name, and folds the records from the checkpoint at their beginning to the digest of
the state at their end.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from allotment.adapters.archive.file import (
    FOOTER_BYTES,
    HEAD_DIGITS,
    Header,
    SegmentBroken,
    SegmentFile,
)
from allotment.adapters.archive.store import Store, Stored
from allotment.adapters.log.checkpoints import digest_of_image, image_of
from allotment.core import chain
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogDamaged, Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import CheckpointPart, Decided, Envelope, SegmentClosed

_HEADS_KEPT = 65_536
"""Decisions stand on one of so many records before them."""


class Verified(NamedTuple):
    """A file that is sound. `decisions`: how many named a head of the chain, and the right one."""

    header: Header
    sha256: str
    size_bytes: int
    decisions: int


def verify(
    file: SegmentFile, *, folds: bool = True, on_record: Callable[[int], None] = lambda _: None
) -> Verified:
    """Read a file once from its beginning to its end; `on_record` hears how many records it has.

    Raises SegmentBroken with the first record that is not as it was written, and what reading may
    raise.
    """
    header, footer, frames = file.header, file.footer, file.frames
    digest = hashlib.sha256(file.read(0, file.header_bytes))
    heads = _Heads(file.name, header)
    fold = _Refold(file.name, header) if folds else None
    broken: SegmentBroken | None = None
    for index, frame in enumerate(frames):
        packed = file.packed(index)
        digest.update(packed)
        if frame.head != heads.head.hex():
            raise SegmentBroken(file.name, "its seek table is altered", frame.first_seq)
        for record, head in file.lines(index, packed):
            envelope = None
            if fold is not None or record.subject == subjects.DECISION:
                envelope = _decoded(record)
            heads.follow(record, head, envelope)
            if fold is not None:
                fold.feed(record, envelope)
        on_record(file.end_of(index) - frame.first_seq + 1)
    digest.update(file.read(footer.table_offset, footer.table_bytes))
    if heads.head.hex() != header.chain or footer.chain != header.chain:
        broken = SegmentBroken(file.name, f"the chain ends at {heads.head.hex()}: it is altered")
    elif digest.hexdigest() != footer.sha256:
        broken = SegmentBroken(file.name, f"its SHA-256 is {digest.hexdigest()}: it is altered")
    elif fold is not None and (found := fold.digest()) != header.digest:
        broken = SegmentBroken(
            file.name,
            f"its records fold to the state {found}, and the log names {header.digest}",
        )
    if broken is not None:
        raise broken
    digest.update(file.read(file.size - FOOTER_BYTES, FOOTER_BYTES))
    return Verified(header, digest.hexdigest(), file.size, heads.decisions)


class Wrong(NamedTuple):
    """What is wrong between the files of an archive, and with the first record of what."""

    text: str
    first_seq: int


def gaps(files: Sequence[Stored]) -> list[Wrong]:
    """Segments that are missing between others, or there twice, by their names."""
    found = []
    for before, after in pairwise(files):
        if after.first_seq == before.last_seq + 1 and after.number == before.number + 1:
            continue
        if after.number == before.number:
            found.append(Wrong(f"{after.name}: segment {after.number} is there twice", 0))
            continue
        text = f"records {before.last_seq + 1} to {after.first_seq - 1} are missing"
        missing = f"segment {before.number + 1}"
        if after.number > before.number + 2:
            missing = f"segments {before.number + 1} to {after.number - 1}"
        found.append(Wrong(f"{missing}: {text}", before.last_seq + 1))
    return found


def seams(headers: Sequence[Header]) -> list[Wrong]:
    """Files that follow each other in number, and not in the chain."""
    return [
        Wrong(
            f"{after.name} continues another history than {before.name}: its chain begins with "
            f"{after.chain_before}, and the one before ends with {before.chain}",
            after.first_seq,
        )
        for before, after in pairwise(headers)
        if after.number == before.number + 1 and after.chain_before != before.chain
    ]


def verify_stored(url: str, stored: Stored, *, folds: bool = True) -> Verified:
    """The same of a file at a URL, for a process of its own. Raises as `verify` does."""
    return verify(Store(url).open(stored.name, stored.size_bytes), folds=folds)


class _Heads:
    """Follows the chain through a file."""

    def __init__(self, name: str, header: Header) -> None:
        self.head = bytes.fromhex(header.chain_before)
        self.decisions = 0
        self._name = name
        self._last = {header.first_seq - 1: header.chain_before}

    def follow(self, record: Record, head: str, envelope: Envelope | None) -> None:
        """Raises SegmentBroken for a record that is not as it was written."""
        self.head = chain.linked(self.head, record)
        found = self.head.hex()
        if head != found[:HEAD_DIGITS]:
            raise SegmentBroken(self._name, f"record {record.seq} is altered", record.seq)
        self._last[record.seq] = found
        if len(self._last) > _HEADS_KEPT:
            del self._last[next(iter(self._last))]
        if envelope is None or not isinstance(envelope.chain, str):
            return
        for event in envelope.events:
            if not isinstance(event, Decided) or event.checked not in self._last:
                continue
            if self._last[event.checked] != envelope.chain:
                raise SegmentBroken(
                    self._name,
                    f"the decision {record.seq} stands on another record {event.checked}, or on "
                    "others before it, than are here",
                    event.checked,
                )
            self.decisions += 1


class _Refold:
    """Folds a segment from the state that its first records hold."""

    def __init__(self, name: str, header: Header) -> None:
        self._name = name
        self._header = header
        self._state: ClusterState | None = ClusterState() if header.first_seq == 1 else None
        self._waiting: list[tuple[Record, Envelope | None]] = []
        """The records before the checkpoint is complete."""

    def feed(self, record: Record, envelope: Envelope | None) -> None:
        if self._state is not None:
            _apply(self._state, record, envelope)
            return
        self._waiting.append((record, envelope))
        if record.seq == self._header.checkpoint_seq:
            self._state = self._begun()
            for each in self._waiting:
                _apply(self._state, *each)
            self._waiting = []

    def digest(self) -> str:
        """Of the state at the end."""
        if self._state is None:
            raise SegmentBroken(self._name, "its checkpoint is missing", self._header.first_seq)
        return digest_of_image(snapshot.encode(self._state))

    def _begun(self) -> ClusterState:
        events = [event for _, found in self._waiting if found for event in found.events]
        closing = self._header.first_seq - 1
        parts = [e for e in events if isinstance(e, CheckpointPart) and e.closing == closing]
        closed = events[-1] if events else None
        try:
            if not isinstance(closed, SegmentClosed) or closed.last_seq != closing:
                raise LogDamaged(f"record {self._header.checkpoint_seq} closes another segment")
            return snapshot.decode(image_of(closed, parts))
        except (LogDamaged, snapshot.SnapshotError) as error:
            raise SegmentBroken(self._name, str(error), self._header.first_seq) from error


def _apply(state: ClusterState, record: Record, envelope: Envelope | None) -> None:
    is_decision = record.subject == subjects.DECISION
    if envelope is None:
        pass_over(state, record.seq, is_decision=is_decision)
    else:
        apply_record(state, envelope.events, record.seq, is_decision=is_decision)


def _decoded(record: Record) -> Envelope | None:
    try:
        return decode_envelope(record.payload, record.subject)
    except UndecodableError:
        return None
