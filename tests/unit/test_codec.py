"""Records that cannot be read say why in one line, and nothing else is ever raised."""

import json

import pytest

from allotment_proto.codec import UndecodableError, decode_envelope, decode_message, encode
from allotment_proto.events import Bound, Envelope, Event
from allotment_proto.messages import Proposal, Settled
from tests import build

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
            changed(v=2),
            "version 2 of the record is not known here (known: 1; upgrade this service)",
        ),
        (
            changed(v=0),
            "version 0 of the record is not known here (known: 1; not written by any",
        ),
        (changed(v=2, events="another shape"), "version 2 of the record is not known here"),
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


NODE = build.node("n1", rv=1)
POD = build.pod("a", node="n1", holdings=(build.holding(),), phase="Running")
AT = "$.events[0]"


@pytest.mark.parametrize(
    ("event", "path", "value", "why"),
    [
        (NODE, ("pods",), -1, f"Expected `int` >= 0 - at `{AT}.pods`; found -1"),
        (NODE, ("cpu_milli",), 1 << 63, f"<= {1 << 62} - at `{AT}.cpu_milli`; found {1 << 63}"),
        (NODE, ("memory_bytes",), 10**30, f"`{AT}.memory_bytes`; found {10**30}"),
        (NODE, ("rv",), 1 << 63, f"<= {(1 << 63) - 1} - at `{AT}.rv`; found {1 << 63}"),
        (NODE, ("pods",), "9", f'Expected `int`, got `str` - at `{AT}.pods`; found "9"'),
        (NODE, ("extended",), [["x/y", -2]], f">= 0 - at `{AT}.extended[0][1]`; found -2"),
        (NODE, ("extended",), [["x/y", 1], ["x/y", 2]], "resource 'x/y' occurs twice; each may"),
        (NODE, ("inventories", 0, 2, 1, 4), -5, f"`{AT}.inventories[0][2][1][4]`; found -5"),
        (
            NODE,
            ("inventories", 0, 2, 1, 0),
            "GPU-0",
            f"card id 'GPU-0' occurs twice; each may occur once - at `{AT}.inventories[0]`",
        ),
        (NODE, ("inventories",), [["vgpu", "", []]] * 2, "family 'vgpu' occurs twice"),
        (POD, ("request", "memory_bytes"), -1, f"`{AT}.request.memory_bytes`; found -1"),
        (POD, ("holdings", 0, 3), -4, f"`{AT}.holdings[0][3]`; found -4"),
        (BOUND, ("decision",), -7, f"`{AT}.decision`; found -7"),
    ],
)
def test_absurd_amounts_are_refused_by_name(
    event: Event, path: tuple[str | int, ...], value: object, why: str
) -> None:
    """With the place, what is there and what would be right."""
    document = json.loads(encode(Envelope(v=1, at_ms=5, by="hand", events=(event,))))
    at = document["events"][0]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    payload = json.dumps(document).encode()
    with pytest.raises(UndecodableError) as caught:
        decode_envelope(payload)
    assert why in caught.value.reason


def test_messages() -> None:
    settled = Settled(v=1, cycle="c", outcome="nothing")
    assert decode_message(Settled, encode(settled)) == settled
    with pytest.raises(UndecodableError, match="Settled"):
        decode_message(Proposal, encode(settled))
    with pytest.raises(UndecodableError, match="version 9"):
        decode_message(Settled, encode(Settled(v=9, cycle="c", outcome="nothing")))
