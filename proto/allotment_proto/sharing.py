"""Records are read with equal parts of pods' facts as one object: pods of one owner ask for the
same and have the same labels, and of 100,000 pods each would keep a kilobyte of its own for that.

Every observation of a pod repeats these parts word for word, so they are looked up by their bytes:
what was read before is neither decoded nor hashed again, which was half of the work of reading.
"""

import functools
import operator
from typing import Any, get_args

import msgspec
from msgspec.structs import force_setattr

from allotment_proto.events import Envelope, Event, PodObserved
from allotment_proto.facts import PodRequest

PARTS_MAX = 1 << 14
"""So many different parts are known; then all are forgotten, and who has one keeps it."""

_ReadPod = msgspec.defstruct(
    "PodObserved",
    [("request", msgspec.Raw), ("labels", msgspec.Raw, msgspec.Raw(b"[]"))],
    bases=(PodObserved,),
    tag=True,
    frozen=True,
    kw_only=True,
    gc=False,
)
"""A `PodObserved` whose parts are bytes still. It has the same fields at the same places, so it
becomes one by name once they are objects: `msgspec` can build it in no cheaper way."""
_ReadEvent: Any = functools.reduce(
    operator.or_, (_ReadPod if kind is PodObserved else kind for kind in get_args(Event))
)
_ReadEnvelope = msgspec.defstruct(
    "Envelope",
    [("events", tuple[_ReadEvent, ...])],
    bases=(Envelope,),
    frozen=True,
    kw_only=True,
    gc=False,
)


class _Parts(dict[bytes, Any]):
    """Parts by their bytes; a new one is decoded."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def __missing__(self, written: bytes) -> Any:
        if len(self) > PARTS_MAX:
            self.clear()
        part = self[written] = self._decoder.decode(written)
        return part


_requests = _Parts(PodRequest)
_labels = _Parts(tuple[tuple[str, str], ...])
_envelope: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_ReadEnvelope)


def read_envelope(payload: bytes) -> Envelope:
    """As msgspec reads an `Envelope`, and raises for what is none, but it does not say where."""
    envelope: Envelope = _envelope.decode(payload)
    for event in envelope.events:
        if type(event) is _ReadPod:
            _complete(event)
    force_setattr(envelope, "__class__", Envelope)
    return envelope


def _complete(fact: Any) -> None:
    """Put the parts of a fact in the place of their bytes."""
    force_setattr(fact, "request", _requests[bytes(fact.request)])
    force_setattr(fact, "labels", _labels[bytes(fact.labels)])
    force_setattr(fact, "__class__", PodObserved)
