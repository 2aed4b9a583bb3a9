"""Facts on their way to the log: together when they gather, in order, none lost."""

import itertools
from collections.abc import Callable

import anyio
import pytest
from tests.build import node, pod
from tests.memory_log import MemoryLog
from tests.waiting import patience

from allotment.adapters.log import recorder
from allotment.adapters.log.recorder import EVENTS_PER_RECORD_MAX, Recorder
from allotment.core.logport import AppendResult, Refused
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Event, PodGone
from allotment_proto.observed import Standing
from allotment_proto.registry import subject_of_facts

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]


class NarrowLog(MemoryLog):
    """A log that takes records up to a size, and can be full."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes_max = bytes_max
        self.is_full = False

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        if len(payload) > self.bytes_max:
            return Refused("too_large", None, f"{len(payload)} bytes")
        if self.is_full:
            return Refused("full", None, "no space")
        return await super().append(subject, payload, msg_id=msg_id)


class Scene:
    def __init__(self, log: MemoryLog, gather_s: float = 0.0) -> None:
        self.log = log
        self.full: list[str] = []
        self.too_large: list[Event] = []
        self.recorder = Recorder(
            log,
            "test",
            subject_of_facts,
            self.full.append,
            lambda event, message: self.too_large.append(event),
            gather_s=gather_s,
        )

    async def run_until(self, done: Callable[[], bool]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.recorder.run)
            with patience():
                while not done():  # noqa: ASYNC110 - the log in memory tells nobody
                    await anyio.sleep(0.005)
            group.cancel_scope.cancel()

    @property
    def events(self) -> list[Event]:
        return [e for r in self.log.core.records for e in decode_envelope(r.payload).events]


def gone(uid: str) -> PodGone:
    return PodGone(uid=uid, namespace="default", name=f"pod-{uid}", rv=9)


async def test_what_gathers_travels_together_and_the_last_word_about_a_pod_counts() -> None:
    scene = Scene(MemoryLog())
    scene.recorder.put([pod("a", rv=1), node("n1"), pod("b"), pod("a", rv=2), gone("b")])
    scene.recorder.put([pod("a", rv=3)])
    await scene.run_until(lambda: bool(scene.log.core.records))
    assert scene.events == [pod("a", rv=3), node("n1"), pod("b"), gone("b")]
    assert [r.subject for r in scene.log.core.records] == [subjects.FACTS]


async def test_a_record_that_may_have_been_served_is_told_however_short_it_stood() -> None:
    scene = Scene(MemoryLog())
    stood = pod("a", rv=2, standing=Standing("n1", "vgpu", 1))
    scene.recorder.put([pod("a", rv=1), stood, pod("a", rv=3), pod("a", rv=4)])
    await scene.run_until(lambda: bool(scene.log.core.records))
    assert scene.events == [stood, pod("a", rv=4)]


async def test_where_nobody_waits_what_comes_one_by_one_shares_a_record() -> None:
    scene = Scene(MemoryLog(), gather_s=0.2)
    many = [node(f"n{number}") for number in range(20)]
    left = iter(many)

    def another() -> bool:
        scene.recorder.put(itertools.islice(left, 1))
        return len(scene.events) == len(many)

    await scene.run_until(another)
    assert scene.events == many
    assert len(scene.log.core.records) < len(many) / 2


async def test_what_nobody_waits_for_lies_until_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(MemoryLog())
    scene.recorder.put([pod("a", rv=1)], awaited=False)
    await scene.run_until(lambda: scene.events == [pod("a", rv=1)])
    monkeypatch.setattr(recorder, "UNAWAITED_S", 3600.0)
    turns = itertools.count()

    def told() -> bool:
        match next(turns):
            case 0:
                scene.recorder.put([pod("b", rv=1), pod("c", rv=1)], awaited=False)
            case 5:
                assert len(scene.log.core.records) == 1
                scene.recorder.put([pod("b", rv=2)])
            case _:
                pass
        return len(scene.log.core.records) > 1

    await scene.run_until(told)
    assert scene.events == [pod("a", rv=1), pod("b", rv=2), pod("c", rv=1)]
    assert len(scene.log.core.records) == 2


async def test_after_it_was_told_a_pod_can_be_told_again() -> None:
    scene = Scene(MemoryLog())
    scene.recorder.put([pod("a", rv=1)])
    await scene.run_until(lambda: len(scene.log.core.records) == 1)
    scene.recorder.put([pod("a", rv=2)])
    await scene.run_until(lambda: len(scene.log.core.records) == 2)
    assert scene.events == [pod("a", rv=1), pod("a", rv=2)]
    assert {r.subject for r in scene.log.core.records} == {subjects.pod("a")}


async def test_a_great_many_are_parted_in_order() -> None:
    scene = Scene(MemoryLog())
    many = [node(f"n{number}") for number in range(EVENTS_PER_RECORD_MAX * 2 + 1)]
    scene.recorder.put(many)
    await scene.run_until(lambda: len(scene.events) == len(many))
    assert scene.events == many
    assert len(scene.log.core.records) == 3


async def test_a_record_that_is_too_large_is_parted_and_one_that_cannot_be_is_left_out() -> None:
    huge = node("huge", labels=tuple((f"label-{n}", "x" * 60) for n in range(100)))
    scene = Scene(NarrowLog(4_000))
    rest = [node(f"n{number}", 1) for number in range(20)]
    scene.recorder.put([*rest[:10], huge, *rest[10:]])
    await scene.run_until(lambda: len(scene.events) == len(rest) and bool(scene.too_large))
    assert scene.events == rest
    assert scene.too_large == [huge]


async def test_a_full_log_is_said_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.adapters.log.recorder.FULL_RETRY_S", 0.01)
    log = NarrowLog(1 << 20)
    log.is_full = True
    scene = Scene(log)
    scene.recorder.put([pod("a")])

    def done() -> bool:
        log.is_full = len(scene.full) < 3
        return bool(scene.events)

    await scene.run_until(done)
    assert scene.events == [pod("a")]
    assert scene.full[:3] == ["no space"] * 3
    assert scene.full[-1] == "", "it says that it goes on"
