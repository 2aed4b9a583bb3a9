"""Pods that ask for the same share one request in memory, whatever record they came in."""

import pytest

from allotment_proto import sharing
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Envelope, PodObserved
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


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "PARTS_MAX", 3)
    monkeypatch.setattr(sharing, "_parts", {})
    for number in range(20):
        decoded(build.pod("p", build.request(build.wants(1_000 + number, 10))))
        assert len(sharing._parts) <= 4
