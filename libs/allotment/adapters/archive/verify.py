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
from allotment.adapters.log.checkpoints import Checkpoint, digest_of_image, image_of
from allotment.core import chain
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import LogDamaged, Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import (
    CheckpointPart,
    Decided,
    Envelope,
    SegmentArchived,
    SegmentClosed,
)

_CHECKED = frozenset((subjects.DECISION, subjects.CHECKPOINT, subjects.ARCHIVE))
"""What these records say is checked even where nothing is folded."""
_HEADS_KEPT = 65_536
"""Decisions stand on one of so many records before them."""


class Verified(NamedTuple):
    """A file that is sound. `decisions`: how many named a head of the chain, and the right one;
    `copies`: what its records say of archived files.
    """

    header: Header
    sha256: str
    size_bytes: int
    decisions: int
    copies: tuple[SegmentArchived, ...]


def verify(
    file: SegmentFile, *, folds: bool = True, on_record: Callable[[int], None] = lambda _: None
) -> Verified:
    """Read a file once from its beginning to its end; `on_record` hears how many records it has.

    Raises SegmentBroken with the first record that is not as it was written, and what reading may
    raise.
    """
    header, footer, frames = file.header, file.footer, file.frames
    digest = hashlib.sha256(file.read(0, file.header_bytes))
    heads, copies = _Heads(file.name, header.chain_before, header.first_seq), _Copies()
    fold = _Refold(file.name, header) if folds else None
    broken: SegmentBroken | None = None
    for index, frame in enumerate(frames):
        packed = file.packed(index)
        digest.update(packed)
        if frame.head != heads.head.hex():
            raise SegmentBroken(file.name, "its seek table is altered", frame.first_seq)
        for record, head in file.lines(index, packed):
            envelope = None
            if fold is not None or record.subject in _CHECKED:
                envelope = _decoded(record)
            heads.follow(record, head, envelope)
            copies.take(record, envelope)
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
    said = tuple(copies.found)
    return Verified(header, digest.hexdigest(), file.size, heads.decisions, said)


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


def head_at(file: SegmentFile, seq: int) -> str:
    """The chain's head at a record of a file that is sound. Raises as `verify` does."""
    index = file.frame_of(seq)
    head = bytes.fromhex(file.frames[index].head)
    for record in file.records(index, file.packed(index)):
        if record.seq <= seq:
            head = chain.linked(head, record)
    return head.hex()


class _Heads:
    """Follows the chain through a file."""

    def __init__(self, name: str, head: str, first_seq: int) -> None:
        """`head` is that before the record `first_seq`."""
        self.head = bytes.fromhex(head)
        self.decisions = 0
        self._name = name
        self._last = {first_seq - 1: head}
        self._sure_seq = first_seq - 1
        """Up to here another record names the head that was found."""

    def follow(self, record: Record, head: str | None, envelope: Envelope | None) -> None:
        """Raises SegmentBroken for a record that is not as it was written. `head`: how its head
        begins, if that is known.
        """
        self.head = chain.linked(self.head, record)
        found = self.head.hex()
        if head is not None and head != found[:HEAD_DIGITS]:
            raise SegmentBroken(self._name, f"record {record.seq} is altered", record.seq)
        self._last[record.seq] = found
        if len(self._last) > _HEADS_KEPT:
            del self._last[next(iter(self._last))]
        for event in () if envelope is None else envelope.events:
            if isinstance(event, SegmentClosed):
                self._compare(record.seq, event.last_seq, event.chain)
            elif isinstance(event, Decided) and envelope and isinstance(envelope.chain, str):
                self.decisions += self._compare(record.seq, event.checked, envelope.chain)

    def _compare(self, by_seq: int, seq: int, head: str) -> bool:
        """Hold a head that a record names against the one that was found; whether it was."""
        if seq not in self._last:
            return False
        if self._last[seq] != head:
            first_seq = min(self._sure_seq + 1, seq)
            raise SegmentBroken(
                self._name,
                f"the record {by_seq} names another head of the chain at {seq} than the records "
                f"have: one from {first_seq} to {seq} is altered, or was",
                first_seq,
            )
        self._sure_seq = max(self._sure_seq, seq)
        return True


class _Copies:
    """What the records say of archived files."""

    def __init__(self) -> None:
        self.found: list[SegmentArchived] = []

    def take(self, record: Record, envelope: Envelope | None) -> None:
        if record.subject == subjects.ARCHIVE and envelope is not None:
            self.found += (e for e in envelope.events if isinstance(e, SegmentArchived))


class LiveCheck:
    """Checks the records of a log in order, from the state before the first one on. `copies` are
    what they say of archived files.
    """

    def __init__(
        self,
        name: str,
        first_seq: int,
        begins: Checkpoint | None,
        *,
        folds: bool = True,
        noted_seq: int = 0,
    ) -> None:
        """`begins` is the checkpoint before `first_seq`, None for a log that begins with nothing;
        the head at `noted_seq` is kept. Raises SnapshotError.
        """
        self.noted = ""
        """The chain's head at `noted_seq`, "" if that was not checked."""
        self._noted_seq = noted_seq
        head = chain.START.hex() if begins is None else begins.closed.chain
        self._heads, self._copies = _Heads(name, head, first_seq), _Copies()
        self._name = name
        self._next_seq = first_seq
        self._state: ClusterState | None = None
        self._digests: dict[int, str] = {}
        """Of the states after the records that may end a segment."""
        if folds:
            self._state = ClusterState() if begins is None else snapshot.decode(begins.image)

        self.begins = head
        """The chain's head before the first record."""

    @property
    def last_seq(self) -> int:
        """The last record that was checked."""
        return self._next_seq - 1

    @property
    def head(self) -> str:
        """The chain's head there."""
        return self._heads.head.hex()

    @property
    def decisions(self) -> int:
        return self._heads.decisions

    @property
    def copies(self) -> Sequence[SegmentArchived]:
        return self._copies.found

    def feed(self, record: Record) -> None:
        """Raises SegmentBroken."""
        if record.seq != self._next_seq:
            wrong = f"record {record.seq} comes where {self._next_seq} is due"
            raise SegmentBroken(self._name, wrong, self._next_seq)
        self._next_seq += 1
        envelope = _decoded(record)
        self._heads.follow(record, None, envelope)
        self._copies.take(record, envelope)
        if record.seq == self._noted_seq:
            self.noted = self.head
        if self._state is None:
            return
        _apply(self._state, record, envelope)
        segments = self._state.segments
        if segments.open.closing == record.seq:
            self._digests[record.seq] = digest_of_image(snapshot.encode(self._state))
        if segments.checkpoint_seq == record.seq:
            closed = segments.live[-1].closed
            found = self._digests.get(closed.last_seq, closed.digest)
            if found != closed.digest:
                raise SegmentBroken(
                    self._name,
                    f"the records up to {closed.last_seq} fold to the state {found}, and record "
                    f"{record.seq} names {closed.digest}",
                )


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
