"""Recorded decisions come out the same, by the board and by the plain rules, and mean the same."""

import json
from collections import Counter

import pytest

from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided
from tests.e2e.audit import fold
from tests.golden.interpreter import state_sha256
from tests.recorded import MEANING, names, read_log
from tests.recorded.meaning import meaning_of
from tests.recorded.scenes import SCENES
from tests.replaying import assert_replays

DECIDED = (
    *("placements", "dropped", "refusals", "wholes", "shorts", "admissions", "holds"),
    *("evictions", "nominations"),
)


def test_every_scene_has_its_log() -> None:
    assert names() == sorted(SCENES)


@pytest.mark.parametrize("name", names())
def test_every_decision_comes_out_the_same(name: str) -> None:
    assert assert_replays(read_log(name)) > 0


@pytest.mark.parametrize("name", names())
def test_every_log_means_what_it_meant(name: str) -> None:
    wanted = json.loads(MEANING.read_text(encoding="utf-8"))
    assert meaning_of(read_log(name)) == wanted[name]


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("segments")])
def test_a_state_has_the_bytes_that_its_checkpoint_had(name: str) -> None:
    """Else replicas of two releases stop at a seam, and old archives cannot be verified."""
    records = read_log(name)
    live = fold(records).segments.live
    assert live
    for segment in live:
        at_its_end = fold(records[: segment.closed.last_seq])
        assert state_sha256(at_its_end) == segment.closed.digest


def test_everything_that_a_decision_can_say_is_recorded() -> None:
    said: Counter[str] = Counter()
    for name in names():
        for record in read_log(name):
            for event in decode_envelope(record.payload, record.subject).events:
                said[type(event).__name__] += 1
                if isinstance(event, Decided):
                    said.update(field for field in DECIDED if getattr(event, field))
                    said.update(eviction.action for eviction in event.evictions)
                    said.update(h.family for p in event.placements for h in p.holdings)
    wanted = {
        *DECIDED,
        *("preempt", "reclaim", "BindFailed", "Evicted", "MixLearned", "GroupGone", "QueueGone"),
        *("vgpu", "ascend", "mindcluster", "gpushare"),
    }
    assert wanted <= said.keys()
    assert said["evictions"] >= 10
