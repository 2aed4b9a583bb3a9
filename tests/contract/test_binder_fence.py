"""What a life of a binder wrote too late is refused once another one has begun."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.build import node, pod, policy
from tests.contract.binder_loops import add, at_work
from tests.waiting import until

from allotment.adapters.log.fold import Fold
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.logport import Record
from allotment.testing.memory_log import MemoryLog, MemoryLogCore
from allotment_binder import fence as fences
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
        self.fence = Fence(log, by, WRITTEN, full)
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
        group.start_soon(unaware.run, fold.wait_for)
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
        await log.append(subjects.DECISION, beginning("b"), msg_id="b/began")
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
        await log.append(subjects.FACTS, beginning("w"), msg_id="w/1")
        await fold.wait_for(log.core.last_seq)
        assert not life.over.is_set(), "neither an outcome nor an empty record elsewhere ends it"
        await log.append(subjects.DECISION, beginning("b"), msg_id="b/began")
        with anyio.fail_after(10):
            await life.over.wait()
        assert life.fence.ended_by == "b"


async def test_one_that_began_before_ends_nobody() -> None:
    """Its beginning may have been on the way for long: what came after it is ours."""
    log, heard = MemoryLog(), list[Record]()
    fence = Fence(log, "a", WRITTEN, print)
    await log.append(subjects.OUTCOME, beginning("b"), msg_id="b/began")
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
        await scene.log.append(subjects.OUTCOME, beginning("other"), msg_id="other/began")
        await until(lambda: scene.binder.pacer is None)
        scene.api.status = 201
        async with anyio.create_task_group() as group:
            group.start_soon(scene.live)
            await until(lambda: scene.kinds()[-1] == "Bound")
            group.cancel_scope.cancel()
        begun = [by for by, events in written(scene.log, subjects.OUTCOME) if not events]
        assert begun == ["binder/binder-0", "other", "binder/binder-0"]
        assert scene.api.looks[-2:] == ["pod-a", "pod-a"], "an earlier life may have bound it"
        assert "another binder began to write" in scene.told.getvalue()
