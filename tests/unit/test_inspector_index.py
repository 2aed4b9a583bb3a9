"""The index of the inspector is bounded, whatever the log tells of."""

import pytest

from allotment.core.explain.history import concerned
from allotment.core.explain.history.concerned import POD
from allotment.core.logport import Record
from allotment_inspector import index as index_module
from allotment_inspector.index import Index
from allotment_proto.events import Envelope
from tests import build


def test_a_log_without_end_fills_a_bounded_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "RECORDS_MAX", 300)
    monkeypatch.setattr(concerned, "_THINGS_MAX", 50)
    monkeypatch.setattr(concerned, "_UIDS_PER_NAME_MAX", 5)
    index = Index()
    for seq in range(1, 2_001):
        # Half of the pods have a name of their own, half take turns under one.
        name = f"pod-{seq}" if seq % 2 else "web-0"
        events = (build.pod(f"uid-{seq}", name=name),)
        envelope = Envelope(at_ms=seq, by="test", events=events)
        index.take(Record(seq, "allot.log.facts", b"{}", seq * 1_000_000, ""), envelope)
        assert len(index.times_ms) <= 300
        assert len(index.pod_names()) <= 50
        assert len(index.uids_of("default", "web-0")) <= 5
    assert index.uids_of("default", "web-0")[-1] == "uid-2000"
    assert index.seqs(POD, "uid-2000") == (2_000,)
    assert index.seqs(POD, "uid-1") == (), "forgotten: without news for the longest time"
