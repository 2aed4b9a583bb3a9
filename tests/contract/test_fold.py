"""The live fold: what cannot be read is skipped and said, and a snapshot changes nothing."""

import contextlib
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.build import decided, node, placement, pod, policy
from tests.memory_log import MemoryLog
from tests.waiting import patience

from allotment.adapters.log import fold as fold_module
from allotment.adapters.log.fold import BooksBroken, Fold
from allotment.adapters.log.snapshots import SnapshotDirectory
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.ledger import check, snapshot
from allotment.core.ledger.model import ClusterState, Node, Pod
from allotment.core.ledger.state import _HANDLERS
from allotment.core.logport import LogDamaged, Record, digest_of
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    ENVELOPE_VERSION,
    Bound,
    Decided,
    Envelope,
    Event,
    TimePassed,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]


HOME: dict[type, str] = {Decided: subjects.DECISION, Bound: subjects.OUTCOME}


def bytes_of(*events: Event, v: int = ENVELOPE_VERSION) -> bytes:
    return encode(Envelope(v=v, at_ms=1, by="test", events=events))


class Scene:
    """A log in memory, where it may be folded again and again."""

    def __init__(self, tmp_path: Path) -> None:
        self.log = MemoryLog()
        self.said = io.StringIO()
        self.directory = tmp_path / "snapshots"
        self._ids = 0

    async def add(self, *payloads: bytes | Event, subject: str = "") -> None:
        """Append to the subject, or where each belongs."""
        for payload in payloads:
            self._ids += 1
            data = payload if isinstance(payload, bytes) else bytes_of(payload)
            home = HOME.get(type(payload), subjects.FACTS)
            await self.log.append(subject or home, data, msg_id=str(self._ids))

    def store(self) -> SnapshotDirectory:
        return SnapshotDirectory(self.directory, log_identity=self.log.identity)

    @contextlib.asynccontextmanager
    async def following(self, *, snapshots: bool = False) -> AsyncIterator[Fold]:
        """A fold that runs, and is caught up."""
        logger = Logger(LogSink("fold", "0", stream=self.said))
        fold = Fold(self.log, logger, self.store() if snapshots else None)
        async with anyio.create_task_group() as group:
            group.start_soon(fold.run)
            with patience():
                await fold.caught_up.wait()
            yield fold
            group.cancel_scope.cancel()

    async def state(self, *, snapshots: bool = False) -> ClusterState:
        async with self.following(snapshots=snapshots) as fold:
            return fold.state

    def lines(self, msg: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.said.getvalue().splitlines()]
        return [line for line in found if line["msg"] == msg]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


HISTORY: tuple[Event, ...] = (
    policy(scheduler_names=("allotment", "volcano")),
    node("n1"),
    node("n2"),
    pod("a"),
    pod("b"),
    pod("c"),
    decided(placement("a", "n1", stamp_s=7)),
    Bound(uid="a", namespace="default", name="pod-a", node="n1", decision=7),
    decided(placement("b", "n2", stamp_s=9)),
    pod("a", rv=2, node="n1", phase="Succeeded"),
)

UNREADABLE: dict[str, bytes] = {
    "garbage": b"\x00\xffgarbage",
    "empty": b"",
    "not an envelope": b'{"hello": 1}',
    "a wrong type": b'{"v":1,"at_ms":"now","by":"x","events":[]}',
    "an unknown event": b'{"v":1,"at_ms":1,"by":"x","events":[{"type":"Teleported"}]}',
    "a newer version": bytes_of(pod("x"), v=ENVELOPE_VERSION + 1),
    "version nought": bytes_of(pod("x"), v=0),
    "nested without end": b"[" * 100_000,
    "cut short": bytes_of(pod("x"))[:-3],
}


MISPLACED: dict[str, tuple[str, Event]] = {
    "a decision among facts": (subjects.FACTS, decided(placement("a"))),
    "a decision on a pod's subject": (subjects.pod("a"), decided(placement("a"))),
    "a Binding among facts": (
        subjects.FACTS,
        Bound(uid="a", namespace="default", name="a", node="n1", decision=1),
    ),
    "a fact as a decision": (subjects.DECISION, pod("b")),
    "a fact as an outcome": (subjects.OUTCOME, pod("b")),
    "a decision as an outcome": (subjects.OUTCOME, decided(placement("a"))),
}


@pytest.mark.parametrize("name", MISPLACED)
async def test_an_event_counts_only_on_the_subject_of_its_writer(scene: Scene, name: str) -> None:
    """NATS lets the watcher append facts only: a decision in one of them is no decision."""
    subject, event = MISPLACED[name]
    await scene.add(node("n1"), pod("a"))
    async with scene.following() as fold:
        await scene.add(event, subject=subject)
        with patience():
            await fold.wait_for(3)
        assert set(fold.state.pods) == {"a"}
        assert "a" in fold.state.pending
        (passed,) = fold.unreadable
        assert type(event).__name__ in passed.reason


async def test_an_empty_log_is_caught_up_at_once(scene: Scene) -> None:
    async with scene.following() as fold:
        assert (fold.state.seq, fold.head) == (0, 0)


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("subject", [subjects.FACTS, subjects.DECISION, "allot.log.unheard-of"])
async def test_an_unreadable_record_is_passed_over_and_everything_goes_on(
    scene: Scene, name: str, subject: str
) -> None:
    await scene.add(node("n1"))
    async with scene.following() as fold:
        before = fold.state.decision_seq
        await scene.add(UNREADABLE[name], subject=subject)
        await scene.add(pod("a"))
        with patience():
            await fold.wait_for(3)
        assert set(fold.state.pods) == {"a"}
        assert fold.unreadable_total == 1
        (passed,) = fold.unreadable
        assert (passed.seq, passed.subject) == (2, subject)
        assert passed.reason
        # Its place counts: the next decision must be appended after it.
        assert fold.state.decision_seq == (2 if subject == subjects.DECISION else before)
    (line,) = scene.lines("record skipped")
    assert (line["seq"], line["subject"], line["level"]) == (2, subject, "warning")
    assert snapshot.encode(await scene.state()) == snapshot.encode(await scene.state())


async def test_a_newer_version_says_to_upgrade(scene: Scene) -> None:
    await scene.add(UNREADABLE["a newer version"])
    async with scene.following() as fold:
        assert "upgrade this service" in fold.unreadable[0].reason


async def test_only_the_last_unreadable_records_are_kept_and_all_are_counted(scene: Scene) -> None:
    await scene.add(*[b"x"] * 250)
    async with scene.following() as fold:
        assert fold.unreadable_total == 250
        assert [fold.unreadable[0].seq, fold.unreadable[-1].seq] == [151, 250]


async def test_decisions_go_on_after_an_unreadable_one(scene: Scene) -> None:
    """The binder expects the sequence of the last record on the subject, readable or not."""
    await scene.add(node("n1"), pod("a"))
    await scene.add(UNREADABLE["an unknown event"], subject=subjects.DECISION)
    async with scene.following() as fold:
        answer = await scene.log.compare_and_append(
            subjects.DECISION,
            bytes_of(decided(placement("a"))),
            msg_id="d",
            expected_seq=fold.state.decision_seq,
        )
        assert getattr(answer, "seq", None) == 4
        with patience():
            await fold.wait_for(4)
        assert list(fold.state.reserved) == ["a"]


async def test_listeners_hear_each_readable_record_after_it_took_effect(scene: Scene) -> None:
    heard: list[tuple[int, int, int]] = []
    async with scene.following() as fold:

        def listen(record: Record, envelope: Envelope) -> None:
            heard.append((record.seq, fold.state.seq, len(envelope.events)))

        fold.listeners.append(listen)
        await scene.add(bytes_of(node("n1"), pod("a")), b"garbage", pod("b"))
        with patience():
            await fold.wait_for(3)
    assert heard == [(1, 1, 2), (3, 3, 1)]


async def test_waiting_for_a_sequence_and_for_anything_new(scene: Scene) -> None:
    woken: list[str] = []
    async with scene.following() as fold, anyio.create_task_group() as group:

        async def wait(name: str, until: Callable[[], object]) -> None:
            await until()  # type: ignore[misc]
            woken.append(name)

        group.start_soon(wait, "at 2", lambda: fold.wait_for(2))
        group.start_soon(wait, "news", fold.changed)
        group.start_soon(wait, "at 0", lambda: fold.wait_for(0))
        await anyio.wait_all_tasks_blocked()
        assert woken == ["at 0"]
        await scene.add(pod("a"))
        await anyio.wait_all_tasks_blocked()
        assert woken == ["at 0", "news"]
        await scene.add(pod("b"))
        await anyio.wait_all_tasks_blocked()
        assert woken == ["at 0", "news", "at 2"]


# Snapshots


@pytest.mark.parametrize("cut", range(len(HISTORY) + 1))
async def test_a_start_with_a_snapshot_ends_in_the_same_bytes(scene: Scene, cut: int) -> None:
    await scene.add(*HISTORY[:cut])
    async with scene.following(snapshots=True) as fold:
        await fold.save_snapshot()
        await scene.add(*HISTORY[cut:])
        with patience():
            await fold.wait_for(len(HISTORY))
        live = snapshot.encode(fold.state)
    assert snapshot.encode(await scene.state(snapshots=True)) == live
    assert snapshot.encode(await scene.state()) == live
    assert not scene.lines("snapshot ignored")
    assert scene.directory.exists() == (cut > 0)


async def test_a_snapshot_is_not_written_twice_for_one_sequence(scene: Scene) -> None:
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        await fold.save_snapshot()
        (first,) = scene.directory.iterdir()
        first.unlink()
        await fold.save_snapshot()
        assert list(scene.directory.iterdir()) == []


async def test_a_damaged_snapshot_is_ignored_and_said(scene: Scene) -> None:
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        await fold.save_snapshot()
        wanted = snapshot.encode(fold.state)
    (file,) = scene.directory.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert snapshot.encode(await scene.state(snapshots=True)) == wanted
    (line,) = scene.lines("snapshot ignored")
    assert "checksum" in str(line["reason"])


async def test_a_sound_file_that_holds_no_state_of_ours_is_ignored_and_said(scene: Scene) -> None:
    await scene.add(*HISTORY)
    record = digest_of(scene.log.core.records[4])
    await scene.store().save(5, b"\x91another release wrote this", record)
    wanted = snapshot.encode(await scene.state())
    assert snapshot.encode(await scene.state(snapshots=True)) == wanted
    (line,) = scene.lines("snapshot ignored")
    assert "not a snapshot" in str(line["reason"])


async def test_a_snapshot_ahead_of_the_log_is_ignored_and_said(scene: Scene) -> None:
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        await fold.save_snapshot()
    del scene.log.core.records[5:]
    state = await scene.state(snapshots=True)
    assert state.seq == 5
    (line,) = scene.lines("snapshot ignored")
    assert "the log at 5" in str(line["reason"])


async def test_a_snapshot_of_a_history_that_was_lost_is_ignored_and_said(scene: Scene) -> None:
    """The log was restored from an older copy and grew past the snapshot: other pods, other cards.

    Loaded, the snapshot would tell of cards that are free and are not.
    """
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        await fold.save_snapshot()
    del scene.log.core.records[5:]
    await scene.add(*(pod(f"regrown{number}") for number in range(10)))
    assert snapshot.encode(await scene.state(snapshots=True)) == snapshot.encode(
        await scene.state()
    )
    (line,) = scene.lines("snapshot ignored")
    assert f"another record at {len(HISTORY)}" in str(line["reason"])


async def test_a_directory_that_cannot_be_written_is_a_warning(scene: Scene) -> None:
    scene.directory.write_text("a file where the directory should be")
    await scene.add(*HISTORY)
    async with scene.following() as fold:
        fold._snapshots = scene.store()
        await fold.save_snapshot()
        assert fold.state.seq == len(HISTORY)
    (line,) = scene.lines("snapshot not written")
    assert line["level"] == "warning"


async def test_snapshots_are_taken_now_and_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "SNAPSHOT_EVERY_EVENTS", 3)
    monkeypatch.setattr(fold_module, "CHECK_EVERY_RECORDS", 2)
    async with scene.following(snapshots=True) as fold:
        for event in HISTORY:
            await scene.add(event)
            with patience():
                await fold.wait_for(scene.log.core.last_seq)
        kept = sorted(path.name[-2:] for path in scene.directory.glob("snapshot-*"))
        assert kept == ["06", "09"]
        wanted = snapshot.encode(fold.state)
    assert snapshot.encode(await scene.state(snapshots=True)) == wanted


class _Trickling(MemoryLog):
    """A log that is read record by record, as a long one is read batch by batch."""

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        async with contextlib.aclosing(super().follow(after_seq)) as batches:
            async for batch in batches:
                for record in batch:
                    yield [record]


@pytest.mark.parametrize(("behind", "written"), [(100, [10]), (4, [4, 8, 10])])
async def test_catching_up_takes_few_snapshots_and_one_at_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, behind: int, written: list[int]
) -> None:
    monkeypatch.setattr(fold_module, "SNAPSHOT_EVERY_EVENTS", 2)
    monkeypatch.setattr(fold_module, "SNAPSHOT_EVERY_EVENTS_BEHIND", behind)
    encoded: list[int] = []
    really = snapshot.encoding

    def encode_and_note(state: ClusterState) -> Iterator[None]:
        encoded.append(state.seq)
        return really(state)

    monkeypatch.setattr(snapshot, "encoding", encode_and_note)
    scene.log = _Trickling()
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        await anyio.wait_all_tasks_blocked()
        assert fold.state.seq == len(HISTORY)
    assert encoded == written


async def test_others_have_their_turns_while_a_snapshot_is_encoded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_STEP", 10)
    await scene.add(node("n1"), *(pod(f"p{number}") for number in range(200)))
    held, encoded, longest = 0, 0, 0
    pod_image = snapshot._pod

    def counted(of: Pod) -> object:
        nonlocal held, encoded
        held, encoded = held + 1, encoded + 1
        return pod_image(of)

    async def take_turns() -> None:
        nonlocal held, longest
        while True:
            longest, held = max(longest, held), 0
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(snapshot, "_pod", counted)
    async with scene.following(snapshots=True) as fold, anyio.create_task_group() as group:
        group.start_soon(take_turns)
        await fold.save_snapshot()
        group.cancel_scope.cancel()
    assert encoded == 200
    assert longest <= encoded // 20
    monkeypatch.undo()
    assert snapshot.encode(await scene.state(snapshots=True)) == snapshot.encode(fold.state)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_what_is_encoded_in_steps_begins_as_an_array_does(count: int) -> None:
    assert msgspec.msgpack.encode([0] * count) == snapshot._array_head(count) + bytes(count)


# What must end a service


async def test_books_that_do_not_balance_end_it(scene: Scene) -> None:
    await scene.add(*HISTORY)
    async with scene.following(snapshots=True) as fold:
        fold.state.nodes["n2"].cpu_milli_free += 1
        with pytest.raises(BooksBroken, match="at sequence 10: node n2: cpu_milli_free"):
            fold._check()


async def test_every_node_has_its_turn_to_be_checked_and_no_more_than_are_due(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "CHECK_EVERY_RECORDS", 3)
    checked: list[str] = []
    really = check.check_node

    def check_node(state: ClusterState, one: Node) -> Iterator[str]:
        checked.append(one.name)
        return really(state, one)

    await scene.add(*(node(f"n{number}") for number in range(4)))
    async with scene.following() as fold:
        monkeypatch.setattr(check, "check_node", check_node)
        for number in range(12):
            await scene.add(pod(f"p{number}"))
        with patience():
            await fold.wait_for(scene.log.core.last_seq)
        assert checked == ["n0", "n1", "n2", "n3"]


async def test_books_that_break_later_end_it_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "CHECK_EVERY_RECORDS", 1)
    await scene.add(*HISTORY)
    with pytest.RaisesGroup(pytest.RaisesExc(BooksBroken, match="node n2: cpu_milli_free")):
        async with scene.following() as fold:
            fold.state.nodes["n2"].cpu_milli_free += 1
            for number in range(3):
                await scene.add(pod(f"late{number}"))
            await anyio.sleep(5)


async def test_a_log_shorter_than_the_state_ends_it(scene: Scene) -> None:
    await scene.add(*HISTORY)
    fold = Fold(scene.log, Logger(LogSink("fold", "0", stream=scene.said)))
    fold.state.seq = 99
    with pytest.raises(LogDamaged, match="ends at 10"):
        await fold.run()


async def test_an_event_that_a_handler_fails_on_is_passed_over_and_everything_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(state: ClusterState, event: Event, seq: int) -> None:
        raise KeyError("a defect")

    monkeypatch.setitem(_HANDLERS, TimePassed, fail)
    odd = Envelope(at_ms=1, by="x", events=(TimePassed(at_ms=7), pod("with")))
    await scene.add(*HISTORY, encode(odd), pod("after"))
    async with scene.following() as fold:
        assert {"with", "after"} <= fold.state.pods.keys()
        assert fold.unreadable_total == 1
        assert "TimePassed is skipped: KeyError" in fold.unreadable[0].reason
        expected = snapshot.encode(fold.state)
    assert snapshot.encode(await scene.state()) == expected
    (said,) = scene.lines("defect; event skipped")[:1]
    assert "a defect" in str(said["traceback"])


async def test_a_listener_that_fails_does_not_end_the_fold(scene: Scene) -> None:
    heard: list[int] = []
    async with scene.following() as fold:
        fold.listeners += [lambda *_: {}["no"], lambda record, _: heard.append(record.seq)]  # type: ignore[index]
        await scene.add(pod("a"), pod("b"))
        with patience():
            await fold.wait_for(2)
    assert heard == [1, 2]
    assert fold.listener_failures == 2


async def test_who_fails_at_an_unreadable_record_harms_nobody(scene: Scene) -> None:
    """Readable records had that guard; the inspector listens to both kinds."""
    heard: list[int] = []
    async with scene.following() as fold:
        fold.passed_over += [lambda _: {}["no"], lambda record: heard.append(record.seq)]  # type: ignore[index]
        await scene.add(b"garbage", pod("a"), b"more of it")
        with patience():
            await fold.wait_for(3)
        assert "a" in fold.state.pods
    assert heard == [1, 3]
    assert (fold.listener_failures, fold.unreadable_total) == (2, 2)
