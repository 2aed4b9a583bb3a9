"""The log of a script's world, and the state that it folds to."""

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.logport import Landed, Record
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Envelope, Event
from tests.memory_log import MemoryLogCore

NOW_S = 100
Lines = list[str]


def fold(records: list[Record]) -> ClusterState:
    """The state after these records."""
    state = ClusterState()
    for record in records:
        apply_all(state, decode_envelope(record.payload).events, record.seq)
    return state


class Log:
    """What was appended so far. `rv` is the last resourceVersion that was given to an object."""

    def __init__(self) -> None:
        self.log = MemoryLogCore()
        self.rv = 0

    @property
    def state(self) -> ClusterState:
        return fold(self.log.records)

    def _append(self, subject: str, *events: Event) -> str:
        envelope = Envelope(at_ms=NOW_S * 1_000, by="script", events=events)
        msg_id = f"script/{self.log.last_seq + 1}"
        landed = self.log.try_append(subject, encode(envelope), msg_id=msg_id)
        assert isinstance(landed, Landed)
        return f"@{landed.seq}"

    def _next_rv(self) -> int:
        self.rv += 1
        return self.rv
