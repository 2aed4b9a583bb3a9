"""The inspector tells a story out of few records; it has to be the one that all records tell."""

from functools import cache

import anyio
import anyio.to_thread
import msgspec
import pytest

from allotment.core.explain.history.concerned import Thing
from allotment.core.explain.history.pod_story import PodLife, PodStory
from allotment.core.explain.pod import explain
from allotment.core.explain.rows.life import Life
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.logport import Record
from allotment_inspector import history as history_module
from allotment_inspector import stories
from allotment_inspector.history import Moment
from allotment_inspector.stories import Told, tell
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import PodObserved
from tests import build
from tests.inspecting import history_of
from tests.recorded import A_FEW, read_log
from tests.recording import Recorder, busy_cluster, uid_of

BUSY = "busy"


@cache
def records_of(name: str) -> tuple[Record, ...]:
    return tuple(read_log(name))


def pod_names(records: tuple[Record, ...]) -> list[tuple[str, str]]:
    events = (event for r in records for event in decode_envelope(r.payload, r.subject).events)
    found = {(e.namespace, e.name): None for e in events if isinstance(e, PodObserved)}
    return list(found)


def whole_story(
    records: tuple[Record, ...], namespace: str, name: str, seq: int
) -> tuple[PodStory, ClusterState, PodLife | None]:
    """As the command line does it: every record, and once more for who came before."""
    story, state = PodStory(namespace, name), ClusterState()
    for record in records[:seq]:
        envelope = decode_envelope(record.payload, record.subject)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    kin = None if story.latest is None else story.before.get(story.latest.uid)
    if kin is None:
        return story, state, None
    other, _, _ = whole_story(records, kin.namespace, kin.name, seq)
    return story, state, other.lives.get(kin.uid)


async def told(
    records: tuple[Record, ...], namespace: str, name: str, seq: int, uid: str = ""
) -> Told | None:
    history, _ = history_of(records)

    def look(moment: Moment) -> Told | None:
        return tell(moment, namespace, name, uid)

    async with history.moment(seq) as moment:
        return await anyio.to_thread.run_sync(look, moment)


@pytest.mark.parametrize("log", [*A_FEW, "faults-1", "faults-3", "faults-4", BUSY])
def test_few_records_tell_the_same_story_as_all(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With checkpoints everywhere, so that what lies between a pod's records is not folded."""
    monkeypatch.setattr(history_module, "_apart", lambda state: 3)
    monkeypatch.setattr(history_module.History, "_near_events", lambda self: 3)
    records = records_of(log)
    names = pod_names(records)[:40]
    moments = sorted({len(records), len(records) * 2 // 3, len(records) // 3})

    async def compare() -> int:
        compared = 0
        for namespace, name in names:
            for seq in moments:
                found = await told(records, namespace, name, seq)
                story, state, kin = whole_story(records, namespace, name, seq)
                if story.latest is None:
                    assert found is None
                    continue
                assert found is not None
                assert found.explanation is not None
                now_ms = records[seq - 1].time_ns // 1_000_000
                placed = story.placed
                before = None
                if placed is not None:
                    _, before, _ = whole_story(records, "", "", placed.decided.basis)
                wanted = explain(state, story, now_ms, before=before, kin=kin, advised=False)
                assert found.explanation == wanted, f"{namespace}/{name} at {seq}"
                compared += 1
        return compared

    assert anyio.run(compare) >= len(names)


def test_an_earlier_pod_of_a_name_is_told_by_its_uid() -> None:
    log = busy_cluster()
    first = log.pod("again")
    log.observe(first, phase="Succeeded")
    log.gone(first)
    fact = msgspec.structs.replace(
        log.state.pods[uid_of("default/big")].fact,
        uid="another",
        name="again",
        node="",
        holdings=(),
        phase="Pending",
    )
    log.append(subjects.pod("another"), "watcher/0", fact)
    records = tuple(log.records)
    newest = anyio.run(told, records, "default", "again", len(records))
    earlier = anyio.run(told, records, "default", "again", len(records), first)
    assert newest is not None
    assert newest.uids == (first, "another")
    assert life(newest).predecessor is not None
    assert life(newest).subject.uid == "another"
    assert life(earlier).subject.uid == first
    assert life(earlier).end is not None
    successor = life(earlier).successor
    assert successor is not None
    assert successor.uid == "another"


def test_no_more_pods_of_an_owner_are_looked_up_than_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each costs a look at the index of every archived segment."""
    monkeypatch.setattr(stories, "_KIN_MAX", 5)
    log, asked = Recorder(), set[str]()
    about = history_module.History.about

    async def noted(self: history_module.History, thing: Thing, seq: int) -> list[int]:
        asked.add(thing[1])
        return await about(self, thing, seq)

    monkeypatch.setattr(history_module.History, "about", noted)
    for number in range(1, 41):
        name = f"web-{number:05}".translate(str.maketrans("013", "bcd"))
        log.append(subjects.FACTS, "watcher/0", build.pod(str(number), name=name, owner="web"))
    found = anyio.run(told, tuple(log.records), "default", name, len(log.records))
    assert life(found).subject.uid == "40"
    assert {uid for uid in asked if uid.isdecimal()} == {"1", "2", "3", "4", "5", "40"}


def test_no_story_is_told_of_a_pod_that_came_later() -> None:
    records = records_of(BUSY)
    assert anyio.run(told, records, "research", "never", 5) is None
    assert anyio.run(told, records, "nobody", "knows", len(records)) is None


def life(found: Told | None) -> Life:
    assert found is not None
    return found.life


def test_a_life_is_that_of_the_moment() -> None:
    """At a moment in the past nothing is known of what came after it."""
    records = records_of(BUSY)
    early = life(anyio.run(told, records, "default", "big", 12))
    late = life(anyio.run(told, records, "default", "big", len(records)))
    assert [phase.name for phase in early.phases] == ["waiting", "reserved"]
    assert [phase.name for phase in late.phases] == ["waiting", "reserved", "bound", "running"]
