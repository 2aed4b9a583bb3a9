"""A pod's answers from few records and kept states are those of every record folded in order."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from allotment.adapters.log import kept
from allotment.adapters.service.moments import AtSequence
from allotment.answers import folding, pods
from allotment.answers.folding import take
from allotment.core.explain.history.concerned import (
    GroupSubject,
    NodeSubject,
    PodSubject,
    Subject,
)
from allotment.core.explain.history.pod_story import PodLife, PodStory
from allotment.core.explain.history.records import LogLine, Wanted
from allotment.core.explain.history.story import Claims
from allotment.core.explain.history.timeline import life_of, neighbours
from allotment.core.explain.pod import explain
from allotment.core.explain.rows.life import Life, PodExplanation
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment_proto.codec import decode_envelope
from allotment_proto.events import NodeObserved, PodObserved
from tests.kept import KeptSource
from tests.recorded import names, read_log

PODS_MAX = 12


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have many stretches and states."""
    monkeypatch.setattr(kept, "STRETCH_RECORDS", 40)
    monkeypatch.setattr(kept, "FRAME_RECORDS", 7)
    monkeypatch.setattr(kept, "WORTH_RECORDS", 10)
    monkeypatch.setattr(folding, "_apart", lambda state: 15)


def pods_of(records: list[Record]) -> list[tuple[str, str]]:
    """Some pods of a log, those that were seen first and last among them."""
    events = (event for r in records for event in decode_envelope(r.payload, r.subject).events)
    found = list({(e.namespace, e.name): None for e in events if isinstance(e, PodObserved)})
    return found[: PODS_MAX // 2] + found[PODS_MAX // 2 :][-PODS_MAX // 2 :]


class Whole:
    """Answers of a log by every record, each with the state after it."""

    def __init__(self, records: list[Record], namespace: str, name: str) -> None:
        self.story = PodStory(namespace, name)
        self.state = ClusterState()
        self.records = records
        for record in records:
            envelope = take(self.state, record)
            assert envelope is not None
            time_ms = record.time_ns // 1_000_000
            self.story.follow(record.seq, time_ms, envelope, lambda: self.state)

    def kin(self, told: PodLife) -> PodLife | None:
        kin = self.story.before.get(told.uid)
        if kin is None:
            return None
        return Whole(self.records, kin.namespace, kin.name).story.lives.get(kin.uid)

    def life(self) -> Life:
        told = self.story.latest
        assert told is not None
        before, after = neighbours(self.state, self.story, told, self.kin(told))
        now_ms = self.records[-1].time_ns // 1_000_000
        return life_of(self.state, told, now_ms, predecessor=before, successor=after)

    def explanation(self) -> PodExplanation:
        told = self.story.latest
        assert told is not None
        before = None
        if told.placed is not None:
            before = ClusterState()
            for record in self.records[: told.placed.decided.basis]:
                take(before, record)
        now_ms = self.records[-1].time_ns // 1_000_000
        found = explain(
            self.state, self.story, now_ms, before=before, kin=self.kin(told), told=told
        )
        return msgspec.structs.replace(found, problems=())


def lines_of(records: list[Record], subject: Subject) -> list[LogLine]:
    """What `log` shows of these records about something."""
    wanted = Wanted(subject, (), Claims())
    found = []
    for record in records:
        envelope = decode_envelope(record.payload, record.subject)
        ms = record.time_ns // 1_000_000
        found += wanted.lines(record.seq, ms, record.subject, envelope, shown=True)
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("log", names())
@pytest.mark.parametrize("is_kept", [False, True], ids=["in memory", "kept"])
async def test_few_records_give_the_same_answers_as_all(
    log: str, is_kept: bool, tmp_path: Path
) -> None:
    records = read_log(log)
    last = len(records)
    for seq in sorted({last, last * 3 // 4, last // 2, last // 4}):
        until = records[:seq]
        for namespace, name in pods_of(until):
            source = KeptSource(records, tmp_path if is_kept else None)
            whole = Whole(until, namespace, name)
            assert await pods.life(source, namespace, name, AtSequence(seq)) == whole.life()
            told = await pods.explain(source, namespace, name, AtSequence(seq))
            assert msgspec.structs.replace(told, problems=()) == whole.explanation()
            few = await pods.records_of(source, namespace, name, seq)
            about = partial(PodSubject, namespace, name)
            assert lines_of(few, about()) == lines_of(until, about())
            await source.kept.close()


@pytest.mark.anyio
@pytest.mark.parametrize("log", names())
async def test_few_records_are_the_story_of_a_node_and_of_a_group(log: str, tmp_path: Path) -> None:
    records = read_log(log)
    source = KeptSource(records, tmp_path)
    for seq in (len(records), len(records) // 2):
        until = records[:seq]
        events = [e for r in until for e in decode_envelope(r.payload, r.subject).events]
        nodes = {e.name for e in events if isinstance(e, NodeObserved)}
        groups = {e.group.partition("/") for e in events if isinstance(e, PodObserved) if e.group}
        subjects: list[Callable[[], Subject]] = [partial(NodeSubject, node) for node in nodes]
        subjects += [partial(NodeSubject, node, "0") for node in nodes]
        subjects += [partial(GroupSubject, each[0], each[2]) for each in groups]
        for about in subjects:
            few = await pods.records_about(source, about(), seq)
            assert few is not None
            assert lines_of(few, about()) == lines_of(until, about())
