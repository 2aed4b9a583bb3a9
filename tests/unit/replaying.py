"""Lies about the last decision of a log."""

from collections.abc import Callable

import msgspec

from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Decided
from tests.recording import Recorder, vgpu

LIES: dict[str, tuple[str, Callable[[Decided], Decided]]] = {
    "another node": (
        "placements",
        lambda d: msgspec.structs.replace(
            d, placements=(msgspec.structs.replace(d.placements[0], node="n2"),)
        ),
    ),
    "another score": (
        "placements",
        lambda d: msgspec.structs.replace(
            d, placements=(msgspec.structs.replace(d.placements[0], score_micro=1),)
        ),
    ),
    "another stamp": (
        "stamped placements",
        lambda d: msgspec.structs.replace(
            d, placements=(msgspec.structs.replace(d.placements[0], stamp_s=1),)
        ),
    ),
    "another policy": ("policy", lambda d: msgspec.structs.replace(d, policy=99)),
    "a refusal left out": ("refusals", lambda d: msgspec.structs.replace(d, refusals=())),
    "a basis in the future": ("basis", lambda d: msgspec.structs.replace(d, basis=99)),
    "a check before the basis": ("basis", lambda d: msgspec.structs.replace(d, checked=1)),
}
"""What is changed, and the field in which a replay finds it first."""


def tampered(records: list[Record], change: Callable[[Decided], Decided]) -> list[Record]:
    """The log with its last decision rewritten."""
    at = max(i for i, record in enumerate(records) if record.subject == subjects.DECISION)
    envelope = decode_envelope(records[at].payload)
    decided = envelope.events[0]
    assert isinstance(decided, Decided)
    lie = msgspec.structs.replace(envelope, events=(change(decided),))
    forged = msgspec.structs.replace(records[at], payload=encode(lie))
    return [*records[:at], forged, *records[at + 1 :]]


def two_on_one_node() -> Recorder:
    """A scorer that lags: its second proposal was made before the first decision landed."""
    log = Recorder()
    log.node("n1", cards=1)
    a, b, c = (log.pod(name, vgpu(1, 30000, 60)) for name in "abc")
    basis = log.seq
    log.decide(a, basis=basis)
    log.node("n2", cards=1)
    log.decide(b, c, basis=basis)
    return log
