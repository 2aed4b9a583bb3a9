"""A recorded log with segments closed in it, as a binder closes them."""

import io
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from allotment.adapters.archive.file import HEAD_DIGITS, Header, Writer, Written
from allotment.adapters.archive.store import Store
from allotment.adapters.log import exported
from allotment.adapters.log.checkpoints import count_of, digest_of_image, parts_of
from allotment.core import chain
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import Record
from allotment_proto import registry, subjects
from allotment_proto.codec import UndecodableError, decode_envelope, encode
from allotment_proto.events import (
    Decided,
    Envelope,
    Event,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
)


class Segmented:
    """A log that grows record by record. `records` are its records, `state` is their fold,
    `closed` the segments that were closed.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.state = ClusterState()
        self.closed: list[SegmentClosed] = []
        self._heads = {0: chain.START}
        self._moved = {0: 0}
        """Sequences in the log that was recorded → here."""

    def take(self, recorded: Record) -> None:
        """A record of another log, at the next sequence here."""
        payload = recorded.payload
        self._moved[recorded.seq] = len(self.records) + 1
        if recorded.subject == subjects.DECISION:
            payload = self._with_moved(payload)
        self._put(recorded.subject, payload, recorded.time_ns, recorded.msg_id)

    def append(self, *events: Event) -> None:
        """A record of these events, as late as the last one."""
        at_ns = self.records[-1].time_ns
        envelope = Envelope(at_ms=at_ns // 1_000_000, by="binder/test", events=events)
        seq = len(self.records) + 1
        self._put(registry.subject_of(events[0]), encode(envelope), at_ns, f"test/{seq}")

    def close(self, between: Iterable[Record] = ()) -> None:
        """Close the open segment; `between` come among its closing and its end."""
        number = self.state.segments.open.number
        first_seq = self.state.segments.open.first_seq
        self.append(SegmentClosing(number=number, cause="asked"))
        closing, image = len(self.records), snapshot.encode(self.state)
        for record in between:
            self.take(record)
        for part in parts_of(image, closing):
            self.append(part)
        event = SegmentClosed(
            number=number,
            at_ms=self.records[-1].time_ns // 1_000_000,
            first_seq=first_seq,
            last_seq=closing,
            parts=count_of(image),
            image_bytes=len(image),
            digest=digest_of_image(image),
            chain=self._heads[closing].hex(),
        )
        self.append(event)
        assert self.state.segments.checkpoint_seq == len(self.records), "the fold took it"
        self.closed.append(event)

    def archived(self, number: int, uri: str = "file:///gone", sha256: str = "") -> None:
        self.append(SegmentArchived(number=number, uri=uri, sha256=sha256, size_bytes=1))

    def head(self, seq: int) -> str:
        return self._heads[seq].hex()

    def _with_moved(self, payload: bytes) -> bytes:
        try:
            envelope = decode_envelope(payload, subjects.DECISION)
        except UndecodableError:
            return payload
        events = tuple(
            msgspec.structs.replace(
                event,
                basis=self._moved.get(event.basis, event.basis),
                checked=self._moved.get(event.checked, event.checked),
                policy=self._moved.get(event.policy, event.policy),
            )
            if isinstance(event, Decided)
            else event
            for event in envelope.events
        )
        if not events:
            return payload
        checked = getattr(events[0], "checked", 0)
        head = self._heads[checked].hex() if checked in self._heads else msgspec.UNSET
        return encode(msgspec.structs.replace(envelope, events=events, chain=head))

    def _put(self, subject: str, payload: bytes, time_ns: int, msg_id: str) -> None:
        record = Record(len(self.records) + 1, subject, payload, time_ns, msg_id)
        self.records.append(record)
        self._heads[record.seq] = chain.linked(self._heads[record.seq - 1], record)
        is_decision = subject == subjects.DECISION
        try:
            events = decode_envelope(payload, subject).events
        except UndecodableError:
            pass_over(self.state, record.seq, is_decision=is_decision)
            return
        assert not apply_record(self.state, events, record.seq, is_decision=is_decision)


def segmented(recorded: Sequence[Record], closed_after: Collection[int]) -> Segmented:
    """A recorded log, with segments closed after some of its records: the one that follows comes
    between the closing and its end.
    """
    log, at = Segmented(), 0
    while at < len(recorded):
        log.take(recorded[at])
        at += 1
        if at in closed_after:
            between = recorded[at : at + 1]
            log.close(between)
            at += len(between)
    return log


def header_of(log: Segmented, closed: SegmentClosed) -> Header:
    first, last = closed.first_seq, closed.last_seq
    before = [one for one in log.closed if one.number == closed.number - 1]
    checkpoint = 0
    if before:
        checkpoint = next(
            record.seq
            for record in log.records
            if record.seq > before[0].last_seq and record.subject.endswith("checkpoint")
        )
    return Header(
        log="ALLOTMENT_LOG@test",
        number=closed.number,
        first_seq=first,
        last_seq=last,
        first_time="2026-01-01T00:00:00Z",
        last_time="2026-01-02T00:00:00Z",
        chain_before=log.head(first - 1),
        chain=closed.chain,
        digest=closed.digest,
        checkpoint_seq=checkpoint,
        written_by="test",
    )


def written(log: Segmented, number: int = 1) -> tuple[bytes, Written]:
    closed = log.closed[number - 1]
    buffer = io.BytesIO()
    writer = Writer(buffer, header_of(log, closed))
    for record in log.records[closed.first_seq - 1 : closed.last_seq]:
        writer.add(record)
    done = writer.close()
    return buffer.getvalue(), done


def put(log: Segmented, number: int, store: Store, directory: Path) -> Written:
    """Archive a segment as the archiver does."""
    data, done = written(log, number)
    local = directory / "to-put"
    local.write_bytes(data)
    store.put(local, done.name)
    return done


def rewritten(
    log: Segmented, change: Callable[[Record], Record], number: int = 1
) -> tuple[bytes, str]:
    """A file whose frames were made again after a change, with the heads of what was written."""
    closed = log.closed[number - 1]
    buffer = io.BytesIO()
    header = header_of(log, closed)
    writer = Writer(buffer, header)
    for record in log.records[closed.first_seq - 1 : closed.last_seq]:
        before = writer._head
        changed = change(record)
        writer.add(changed)
        if changed != record:  # the line keeps the head that was written
            head = chain.linked(before, record)
            writer._head = head
            line = exported.encode(changed, head.hex()[:HEAD_DIGITS])
            writer._lines[-1] = line.encode() + b"\n"
    writer.close()
    return buffer.getvalue(), header.name
