"""Records that cannot be read say why in one line, and nothing else is ever raised."""

import json

import pytest

from allotment_proto.codec import UndecodableError, decode_envelope, decode_message, encode
from allotment_proto.events import Bound, Envelope
from allotment_proto.messages import Proposal, Settled

BOUND = Bound(uid="u", namespace="ns", name="p", node="n", decision=7)
ENVELOPE = Envelope(v=1, at_ms=5, by="binder", events=(BOUND,))


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(ENVELOPE)), **changes}).encode()


def test_round_trip_is_deterministic() -> None:
    payload = encode(ENVELOPE)
    assert decode_envelope(payload) == ENVELOPE
    assert encode(decode_envelope(payload)) == payload
    assert payload.startswith(b'{"v":1,"at_ms":5,"by":"binder","events":[{"type":"Bound"')


def test_fields_of_the_future_are_passed_over() -> None:
    assert decode_envelope(changed(shiny=1)) == ENVELOPE


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (
            changed(v=5),
            "version 5 of the record is not known here (known: 1 to 4; upgrade this service)",
        ),
        (
            changed(v=0),
            "version 0 of the record is not known here (known: 1 to 4; not written by any",
        ),
        (changed(v=5, events="another shape"), "version 5 of the record is not known here"),
        (changed(v="x"), "not readable: Expected `int`"),
        (changed(events=[{"type": "Unheard"}]), "Invalid value 'Unheard' - at `$.events[0].type`"),
        (changed(events=[{"type": "Bound"}]), "missing required field `uid` - at `$.events[0]`"),
        (changed(at_ms=1.5), "Expected `int`, got `float` - at `$.at_ms`"),
        (b"", "not readable: Input data was truncated"),
        (b"{", "not readable: Input data was truncated"),
        (b"null", "not readable: Expected `object`, got `null`"),
        (b"\xff", "not readable: JSON is malformed"),
        (b'{"v":1,"at_ms":1,"by":"\xff","events":[]}', "invalid start byte"),
        (b'{"v":1,"x":' + b"[" * 100_000, "recursion"),
    ],
)
def test_unreadable_records(payload: bytes, why: str) -> None:
    with pytest.raises(UndecodableError) as caught:
        decode_envelope(payload)
    assert why in caught.value.reason
    assert "\n" not in caught.value.reason


def test_messages() -> None:
    settled = Settled(v=1, cycle="c", outcome="nothing")
    assert decode_message(Settled, encode(settled)) == settled
    with pytest.raises(UndecodableError, match="Settled"):
        decode_message(Proposal, encode(settled))
    with pytest.raises(UndecodableError, match="version 9"):
        decode_message(Settled, encode(Settled(v=9, cycle="c", outcome="nothing")))
