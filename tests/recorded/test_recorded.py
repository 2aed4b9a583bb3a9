"""Recorded decisions come out the same, by the board and by the plain rules, and mean the same."""

import json
from collections import Counter

import pytest

from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided
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
def test_every_log_means_what_it_meant(name: str, rewrite: bool) -> None:
    found = meaning_of(read_log(name))
    wanted = json.loads(MEANING.read_text(encoding="utf-8"))
    if rewrite:  # an image says more than it did, of the same holders
        wanted[name]["state_sha256"] = found["state_sha256"]
        MEANING.write_text(json.dumps(wanted, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found == wanted[name]


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
