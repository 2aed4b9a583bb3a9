"""Pods that ask for the same share one request in memory, whatever record they came in."""

import msgspec
import pytest

from allotment_proto import sharing
from allotment_proto.codec import UndecodableError, decode_envelope, encode
from allotment_proto.events import Envelope, PodObserved
from allotment_proto.facts import PodRequest
from tests import build

LABELS = (("app", "trainer"),)


def decoded(*pods: PodObserved) -> list[PodObserved]:
    read = decode_envelope(encode(Envelope(v=1, at_ms=1, by="test", events=pods)))
    assert read.events == pods
    return [event for event in read.events if isinstance(event, PodObserved)]


def test_equal_parts_are_one_object() -> None:
    asked = build.request(build.wants(1_000, 10))
    first, second = decoded(
        build.pod("p1", asked, labels=LABELS), build.pod("p2", asked, labels=LABELS)
    )
    [third] = decoded(build.pod("p3", build.request(build.wants(2_000, 10)), labels=LABELS))
    assert first.request is second.request
    assert first.labels is second.labels is third.labels
    assert third.request != first.request


def test_what_was_read_before_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = sharing._Parts(PodRequest)
    monkeypatch.setattr(sharing, "_requests", requests)
    pod = build.pod("p1", build.request(build.wants(1_000, 10)), labels=LABELS)
    [first] = decoded(pod)
    [written] = requests
    requests[written] = other = build.request(build.wants(2_000, 10))
    [again] = decode_envelope(encode(Envelope(v=1, at_ms=1, by="test", events=(pod,)))).events
    assert isinstance(again, PodObserved)
    assert first == pod
    assert again.request is other


def test_what_is_read_is_of_the_types_of_the_log() -> None:
    pod = build.pod("p1", build.request(build.wants(1_000, 10)), labels=LABELS)
    written = encode(Envelope(v=1, at_ms=1, by="test", events=(pod,)))
    read = decode_envelope(written)
    assert type(read) is Envelope
    assert [type(event) for event in read.events] == [PodObserved]
    assert read == msgspec.json.decode(written, type=Envelope)
    assert encode(read) == written
    assert hash(read) == hash(decode_envelope(written))
    assert repr(read.events[0]) == repr(pod)
    assert msgspec.structs.replace(pod, rv=7) == msgspec.structs.replace(read.events[0], rv=7)


def test_parts_that_are_left_out_have_their_defaults() -> None:
    pod = build.pod("p1")
    written = encode(Envelope(v=1, at_ms=1, by="test", events=(pod,)))
    assert "labels" not in msgspec.json.decode(written)["events"][0]
    [read] = decode_envelope(written).events
    assert read == pod


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("request", {"cpu_milli": -1}, "Expected `int` >= 0 - at `$.events[0].request.cpu_milli`"),
        ("request", None, "Expected `object`, got `null` - at `$.events[0].request`"),
        ("labels", [["app", 1]], "Expected `str`, got `int` - at `$.events[0].labels[0][1]`"),
    ],
)
def test_a_part_that_cannot_be_read_is_named_in_its_record(
    field: str, value: object, why: str
) -> None:
    pod = build.pod("p1")
    whole = msgspec.json.decode(encode(Envelope(v=1, at_ms=1, by="test", events=(pod,))))
    whole["events"][0][field] = value
    with pytest.raises(UndecodableError) as caught:
        decode_envelope(msgspec.json.encode(whole))
    assert why in caught.value.reason


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "PARTS_MAX", 3)
    monkeypatch.setattr(sharing, "_requests", sharing._Parts(PodRequest))
    for number in range(20):
        decoded(build.pod("p", build.request(build.wants(1_000 + number, 10))))
        assert len(sharing._requests) <= 4
