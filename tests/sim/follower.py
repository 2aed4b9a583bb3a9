"""One process's copy of the world: a fold of the log, as far as it has read."""

from collections.abc import Callable

from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.logport import Record
from allotment.core.placement.evaluator import Evaluator
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Envelope, Event

_decoded: dict[tuple[str, bytes], Envelope] = {}


def envelope_of(record: Record) -> Envelope:
    """The decoded record. Remembered, because every follower of a world decodes the same bytes."""
    found = _decoded.get((record.subject, record.payload))
    if found is None:
        if len(_decoded) > 4096:
            _decoded.clear()
        found = decode_envelope(record.payload, record.subject)
        _decoded[record.subject, record.payload] = found
    return found


class Follower:
    def __init__(self, image: bytes | None = None) -> None:
        self.state = ClusterState() if image is None else snapshot.decode(image)
        self.evaluator = Evaluator(self.state)

    def follow(
        self,
        records: list[Record],
        up_to: int,
        seen: Callable[[int, Event], None] | None = None,
        read: Callable[[Record, Envelope], None] = lambda record, envelope: None,
    ) -> bool:
        """Read on to sequence `up_to`; whether there was anything. `seen` hears every event, and
        `read` every record after its events.
        """
        start = self.state.seq
        for record in records[start:up_to]:
            envelope = envelope_of(record)
            is_decision = record.subject == subjects.DECISION
            apply_all(self.state, envelope.events, record.seq, is_decision=is_decision)
            for event in envelope.events if seen else ():
                assert seen is not None
                seen(record.seq, event)
            read(record, envelope)
        return self.state.seq > start
