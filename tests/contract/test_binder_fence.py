"""What a life of a binder wrote too late is refused once another one has begun."""

import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.build import decided, node, placement, pod, policy
from tests.contract.binder_loops import add, at_work
from tests.memory_log import MemoryLog, MemoryLogCore
from tests.waiting import until

from allotment.adapters.log.fold import Fold
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.logport import AppendResult, Landed, Record, Refused
from allotment_binder import __main__ as binder_service
from allotment_binder import fence as fences
from allotment_binder.closing import Closer
from allotment_binder.decider import Decider
from allotment_binder.fence import Fence
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import Bound, Envelope

pytestmark = pytest.mark.anyio
WRITTEN = (subjects.OUTCOME, subjects.DECISION)


def said(by: str, text: str) -> bytes:
    outcome = Bound(uid=text, namespace="default", name=text, node="n1", decision=1)
    return encode(Envelope(v=1, at_ms=1, by=by, events=(outcome,)))


def beginning(by: str) -> bytes:
    return encode(Envelope(v=1, at_ms=1, by=by, events=()))


def life_id(by: str, subject: str, number: int = 1) -> str:
    return f"life/{by}/{number:016x}/{subject}"


def written(log: MemoryLog, subject: str) -> list[tuple[str, int]]:
    """By whom, and how many events."""
    return [
        (found.by, len(found.events))
        for record in log.core.records
        if record.subject == subject
        for found in [decode_envelope(record.payload)]
    ]


@asynccontextmanager
async def followed(log: MemoryLog) -> AsyncIterator[Fold]:
    fold = Fold(log, Logger(LogSink("binder", "0", stream=io.StringIO())))
    async with anyio.create_task_group() as group:
        group.start_soon(fold.run)
        await fold.caught_up.wait()
        yield fold
        group.cancel_scope.cancel()


class Life:
    """One that does nothing until it is told to."""

    def __init__(self, log: MemoryLog, by: str, full: Callable[[str], None] = print) -> None:
        self.is_held = True
        self.fence = Fence(log, by, WRITTEN, lambda: self.is_held, full)
        self.begun, self.over = anyio.Event(), anyio.Event()

    async def run(self, reached: Callable[[int], Awaitable[None]]) -> None:
        await self.fence.live(self._live, reached)
        self.over.set()

    async def _live(self) -> None:
        self.begun.set()
        await anyio.sleep_forever()


async def test_what_a_life_has_under_way_is_refused_once_another_began() -> None:
    log = MemoryLog()
    async with followed(log) as fold, anyio.create_task_group() as group:
        unaware, next_one = Life(log, "a"), Life(log, "b")

        async def reads_late(seq: int) -> None:
            """It reads only when it has to, as one that was frozen."""
            for record in log.core.records[:seq]:
                unaware.fence.on_record(record, decode_envelope(record.payload))

        group.start_soon(unaware.run, reads_late)
        await unaware.begun.wait()
        await unaware.fence.append(subjects.OUTCOME, said("a", "1"), msg_id="a/1")
        await unaware.fence.append(subjects.OUTCOME, said("a", "2"), msg_id="a/2")
        group.start_soon(next_one.run, fold.wait_for)
        await next_one.begun.wait()
        assert not unaware.over.is_set(), "nobody told it"

        async def too_late() -> None:
            await unaware.fence.append(subjects.OUTCOME, said("a", "3"), msg_id="a/3")
            raise AssertionError("who is over has nothing more to do")

        group.start_soon(too_late)
        with anyio.fail_after(10):
            await unaware.over.wait()
        await next_one.fence.append(subjects.OUTCOME, said("b", "4"), msg_id="b/4")
        group.cancel_scope.cancel()
    assert written(log, subjects.OUTCOME) == [("a", 0), ("a", 1), ("a", 1), ("b", 0), ("b", 1)]


async def test_a_decision_under_way_is_refused_as_well() -> None:
    log = MemoryLog()
    async with followed(log) as fold, anyio.create_task_group() as group:
        life = Life(log, "a")
        group.start_soon(life.run, fold.wait_for)
        await life.begun.wait()
        knew = fold.state.decision_seq
        assert knew == 2, "its own beginning"
        await log.append(subjects.DECISION, beginning("b"), msg_id=life_id("b", subjects.DECISION))
        answer = await log.compare_and_append(
            subjects.DECISION, said("a", "x"), msg_id="a/late", expected_seq=knew
        )
        assert type(answer).__name__ == "Refused"
        group.cancel_scope.cancel()


async def test_who_reads_that_another_began_ends_before_anything_else() -> None:
    log = MemoryLog()
    async with followed(log) as fold, anyio.create_task_group() as group:
        life = Life(log, "a")
        fold.listeners.append(life.fence.on_record)
        group.start_soon(life.run, fold.wait_for)
        await life.begun.wait()
        await add(log, pod("p"), Bound(uid="p", namespace="", name="", node="", decision=1))
        await fold.wait_for(log.core.last_seq)
        await log.append(subjects.FACTS, beginning("w"), msg_id=life_id("w", subjects.FACTS))
        await fold.wait_for(log.core.last_seq)
        assert not life.over.is_set(), "neither an outcome nor an empty record elsewhere ends it"
        await log.append(subjects.DECISION, beginning("b"), msg_id=life_id("b", subjects.DECISION))
        with anyio.fail_after(10):
            await life.over.wait()
        assert life.fence.ended_by == "b, which began with record 6"


async def test_one_that_began_before_ends_nobody() -> None:
    """Its beginning may have been on the way for long: what came after it is ours."""
    log, heard = MemoryLog(), list[Record]()
    fence = Fence(log, "a", WRITTEN, lambda: True, print)
    await log.append(subjects.OUTCOME, beginning("b"), msg_id=life_id("b", subjects.OUTCOME))
    async with anyio.create_task_group() as group:

        async def told(seq: int) -> None:
            for record in log.core.records:
                heard.append(record)
                fence.on_record(record, decode_envelope(record.payload))

        async def lived() -> None:
            assert len(heard) == 3
            assert fence.ended_by == ""

        with anyio.fail_after(10):
            await fence.live(lived, told)
        group.cancel_scope.cancel()
    assert not fence.ended_by


async def test_a_life_waits_for_room_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "FULL_RETRY_S", 0.01)
    core = MemoryLogCore(max_bytes=10)
    log, words = MemoryLog(core), list[str]()
    async with followed(log) as fold, anyio.create_task_group() as group:
        life = Life(log, "a", words.append)
        group.start_soon(life.run, fold.wait_for)
        await until(lambda: len(words) > 1)
        assert set(words) == {"maximum bytes exceeded"}
        core._max_bytes = None
        with anyio.fail_after(10):
            await life.begun.wait()
        assert words[-1] == ""
        group.cancel_scope.cancel()


async def test_nothing_is_done_before_the_beginning_was_read() -> None:
    log, asked = MemoryLog(), list[int]()
    life = Life(log, "a")
    async with anyio.create_task_group() as group:

        async def reached(seq: int) -> None:
            asked.append(seq)
            assert not life.begun.is_set()

        group.start_soon(life.run, reached)
        with anyio.fail_after(10):
            await life.begun.wait()
        group.cancel_scope.cancel()
    assert asked == [2], "the last of its records"


async def test_who_does_not_hold_the_lease_begins_nothing() -> None:
    log = MemoryLog()
    async with followed(log) as fold:
        life = Life(log, "a")
        life.is_held = False
        with anyio.fail_after(10):
            await life.run(fold.wait_for)
        assert not life.begun.is_set()
        assert not life.fence.ended_by, "nobody ended it"
    assert log.core.records == []


async def test_a_binder_without_its_lease_says_nothing_of_another_and_goes(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node()) as scene:
        lease = cast(Any, scene.binder.world.lease)
        await scene.log.append(
            subjects.OUTCOME, beginning("other"), msg_id=life_id("other", subjects.OUTCOME)
        )
        await until(lambda: scene.binder.pacer is None)
        said_before = scene.told.getvalue().count("this binder stops")
        lease.is_held = False
        records = len(scene.log.core.records)
        async with anyio.create_task_group() as group:
            group.start_soon(scene.live)
            await anyio.wait_all_tasks_blocked()
            lease.gone.set()
        assert len(scene.log.core.records) == records
        assert scene.told.getvalue().count("this binder stops") == said_before
        assert "lease lost" in scene.told.getvalue()


async def test_a_beginning_that_was_on_the_way_while_another_began_ends_nobody() -> None:
    """Frozen right after it looked at its lease: what it sends then is refused."""
    log = MemoryLog()
    append, late = log.compare_and_append, Life(log, "a")

    async def frozen(subject: str, payload: bytes, **sent: Any) -> AppendResult:
        log.compare_and_append = append  # type: ignore[method-assign]
        await log.append(subject, beginning("b"), msg_id=life_id("b", subject))
        late.is_held = False
        return await append(subject, payload, **sent)

    log.compare_and_append = frozen  # type: ignore[method-assign]
    async with followed(log) as fold:
        with anyio.fail_after(10):
            await late.run(fold.wait_for)
    assert [decode_envelope(record.payload).by for record in log.core.records] == ["b"]
    assert not late.begun.is_set()


async def test_a_beginning_is_sent_again_if_only_a_decision_came_before() -> None:
    log = MemoryLog()
    append, life = log.compare_and_append, Life(log, "a")

    async def beaten(subject: str, payload: bytes, **sent: Any) -> AppendResult:
        log.compare_and_append = append  # type: ignore[method-assign]
        await log.append(subject, said("old", "1"), msg_id="old/1")
        return await append(subject, payload, **sent)

    log.compare_and_append = beaten  # type: ignore[method-assign]
    async with followed(log) as fold, anyio.create_task_group() as group:
        group.start_soon(life.run, fold.wait_for)
        with anyio.fail_after(10):
            await life.begun.wait()
        group.cancel_scope.cancel()
    assert written(log, subjects.OUTCOME) == [("old", 1), ("a", 0)]


async def test_a_log_that_fills_up_ends_no_life() -> None:
    log = MemoryLog()
    async with followed(log) as fold, anyio.create_task_group() as group:
        life = Life(log, "a")
        group.start_soon(life.run, fold.wait_for)
        await life.begun.wait()
        log.core._max_bytes = 0
        answer = await life.fence.append(subjects.OUTCOME, said("a", "1"), msg_id="a/1")
        assert isinstance(answer, Refused)
        assert answer.reason == "full"
        assert not life.fence.ended_by
        log.core._max_bytes = None
        landed = await life.fence.append(subjects.OUTCOME, said("a", "1"), msg_id="a/1")
        assert isinstance(landed, Landed)
        group.cancel_scope.cancel()


JUNK = {
    "unreadable": (b"?", ""),
    "an answer of JetStream": (b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}', ""),
    "empty, but no beginning": (beginning("b"), "b/1"),
    "a beginning elsewhere": (beginning("b"), life_id("b", subjects.FACTS)),
    "an outcome of nobody's life": (said("b", "1"), "b/1"),
}


@pytest.mark.parametrize("what", JUNK)
async def test_what_begins_no_other_life_ends_none(what: str) -> None:
    """Each append follows it; an end still comes from whoever begins, and nothing lands then."""
    payload, msg_id = JUNK[what]
    log = MemoryLog()
    async with followed(log) as fold, anyio.create_task_group() as group:
        life = Life(log, "a")
        fold.listeners.append(life.fence.on_record)
        fold.passed_over.append(life.fence.on_passed_over)
        group.start_soon(life.run, fold.wait_for)
        await life.begun.wait()
        for number in range(20):
            for subject in WRITTEN:
                await log.append(subject, payload, msg_id=msg_id or f"junk/{subject}/{number}")
            answer = await life.fence.append(
                subjects.OUTCOME, said("a", str(number)), msg_id=f"a/{number}"
            )
            assert isinstance(answer, Landed)
        assert not life.fence.ended_by
        assert not life.over.is_set()
        await log.append(subjects.OUTCOME, beginning("c"), msg_id=life_id("c", subjects.OUTCOME))
        await log.append(subjects.OUTCOME, payload, msg_id="junk/last")

        async def too_late() -> None:
            await life.fence.append(subjects.OUTCOME, said("a", "late"), msg_id="a/late")
            raise AssertionError("a life that is over appends nothing")

        group.start_soon(too_late)
        with anyio.fail_after(10):
            await life.over.wait()
        assert "c, which began with record" in life.fence.ended_by
        assert log.core.records[-1].msg_id == "junk/last"
        group.cancel_scope.cancel()


async def test_junk_while_a_life_begins_does_not_keep_it_from_beginning() -> None:
    log = MemoryLog()
    append, life = log.compare_and_append, Life(log, "a")
    junk = iter(range(5))

    async def beaten(subject: str, payload: bytes, **sent: Any) -> AppendResult:
        if (number := next(junk, None)) is not None:
            await log.append(subject, b"?", msg_id=f"junk/{number}")
        return await append(subject, payload, **sent)

    log.compare_and_append = beaten  # type: ignore[method-assign]
    async with followed(log) as fold, anyio.create_task_group() as group:
        group.start_soon(life.run, fold.wait_for)
        with anyio.fail_after(10):
            await life.begun.wait()
        group.cancel_scope.cancel()


async def test_junk_under_way_ends_no_binder(tmp_path: Path) -> None:
    """What a server answers on a subject of the log: the pod is bound, and how it ended told."""
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        lived = scene.binder.pacer
        for number, subject in enumerate(WRITTEN):
            await scene.log.append(subject, b"{}", msg_id=f"junk/{number}")
        await scene.propose("a")
        await until(lambda: b'"Bound"' in scene.log.core.records[-1].payload)
        assert scene.api.bindings == ["pod-a"]
        assert scene.binder.pacer is lived
        assert "this binder stops" not in scene.told.getvalue()


async def test_what_the_next_binder_decided_is_not_bound_by_one_that_is_over(
    tmp_path: Path,
) -> None:
    """It is woken by a record before, and has read the rest by the time it looks."""
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        fold, pacer = scene.fold, scene.binder.pacer
        assert pacer is not None
        seq = fold.state.seq
        theirs = decided(placement("a"), basis=seq, checked=seq)
        records = [
            Record(seq + number, subject, payload, 1, life_id("b", subject))
            for number, (subject, payload) in enumerate(
                [
                    *((subject, beginning("b")) for subject in WRITTEN),
                    (
                        subjects.DECISION,
                        encode(Envelope(v=1, at_ms=1, by="binder/b", events=(theirs,))),
                    ),
                ],
                1,
            )
        ]
        woken, fold._turn = fold._turn, anyio.Event()
        woken.set()
        for record in records:
            fold._take(record)
        assert "a" in fold.state.reserved
        await until(lambda: scene.binder.pacer is None)
        assert not pacer.sent
        assert scene.api.bindings == []


async def test_a_decider_that_is_over_appends_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        sent: list[str] = []

        async def append(subject: str, payload: bytes, **_: Any) -> AppendResult:
            sent.append(subject)
            return Landed(9)

        scene.log.compare_and_append = append  # type: ignore[method-assign]
        with anyio.CancelScope() as scope:
            scope.cancel()
            await scene.binder.decider._append(decided(placement("a")), 1, 0, 0)
        assert sent == []


@pytest.mark.parametrize("binds", [True, False])
async def test_lives_follow_each_other(
    binds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins on what it writes, with the proposals of its own time, and leaves no ear behind;
    between two of them there is a pause, in which the lease may turn out to be lost."""
    pauses: list[float] = []

    def drawn(low: float, high: float) -> float:
        pauses.append(low)
        return low

    monkeypatch.setattr(fences, "YIELDS_S", 0.0)
    monkeypatch.setattr(random, "uniform", drawn)
    async with at_work(tmp_path, policy(), node()) as scene:
        binder, world = scene.binder, scene.binder.world
        log = world.log = scene.log  # type: ignore[assignment]
        await log.append(subjects.OUTCOME, beginning("x"), msg_id=life_id("x", subjects.OUTCOME))
        await until(lambda: binder.pacer is None and len(pauses) == 1)
        listeners = len(scene.fold.listeners)

        async def at_once(*_: object) -> None: ...

        monkeypatch.setattr(world, "active", at_once, raising=False)
        monkeypatch.setattr(scene.bus, "subscribe", at_once, raising=False)
        ctx, stopping = binder.ctx, anyio.CancelScope()
        monkeypatch.setattr(ctx, "until_stop", lambda: stopping, raising=False)
        lives: list[tuple[int, int]] = []

        def has_lived(times: int) -> bool:
            return len(lives) == times

        async def live(decider: Decider) -> None:
            lives.append((len(decider.proposals), len(scene.fold.listeners)))
            decider.proposals.append(cast(Any, None))
            await anyio.sleep_forever()

        async def life(fence: Fence) -> None:
            binder.decider.proposals.clear()
            await live(binder.decider)

        async def closes_nothing(closer: Closer, fence: Fence) -> None:
            await anyio.sleep_forever()

        monkeypatch.setattr(Closer, "run", closes_nothing)
        monkeypatch.setattr(Decider, "run", live)
        async with anyio.create_task_group() as group:
            if binds:
                group.start_soon(binder_service._live, ctx, world, binder.decider, WRITTEN, life)
            else:
                group.start_soon(binder_service._only_decide, ctx, world)
            for number in (1, 2, 3):
                await until(partial(has_lived, number))
                await log.append(
                    subjects.DECISION,
                    beginning("x"),
                    msg_id=life_id("x", subjects.DECISION, number),
                )
            await until(lambda: len(lives) == 4)
            group.cancel_scope.cancel()
        assert lives == [(0, listeners + 1)] * 4
        assert len(pauses) == 4
        begun = [by for by, events in written(log, subjects.OUTCOME) if not events]
        assert begun.count("binder/binder-0") == (5 if binds else 1)
        begun = [by for by, events in written(log, subjects.SEGMENT) if not events]
        assert begun.count("binder/binder-0") == (1 if binds else 5)


async def test_a_binder_that_another_ended_begins_anew_if_it_holds_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that do not share a lease: they take turns, and the pods that one left are bound."""
    monkeypatch.setattr(fences, "YIELDS_S", 0.0)
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        scene.api.status = 500  # how that ended is not known
        scene.api.there["pod-a"] = {"metadata": {"name": "pod-a", "uid": "a"}, "spec": {}}
        await scene.propose("a")
        await until(lambda: scene.api.looks == ["pod-a"])
        await scene.log.append(
            subjects.OUTCOME, beginning("other"), msg_id=life_id("other", subjects.OUTCOME)
        )
        await until(lambda: scene.binder.pacer is None)
        scene.api.status = 201
        async with anyio.create_task_group() as group:
            group.start_soon(scene.live)
            await until(lambda: scene.kinds()[-1] == "Bound")
            group.cancel_scope.cancel()
        begun = [by for by, events in written(scene.log, subjects.OUTCOME) if not events]
        assert begun == ["binder/binder-0", "other", "binder/binder-0"]
        assert scene.api.looks[-2:] == ["pod-a", "pod-a"], "an earlier life may have bound it"
        assert "this binder stops" in scene.told.getvalue()
        assert "other, which began with record" in scene.told.getvalue()
