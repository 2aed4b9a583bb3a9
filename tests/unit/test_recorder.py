"""Facts that gather are told by their last word, but not by a worse one."""

import gc
import tracemalloc

import anyio
import pytest

from allotment.adapters.log.recorder import Recorder
from allotment.core.logport import Record
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Event, GroupObserved
from allotment_proto.registry import subject_of_facts
from tests.build import holding, pod
from tests.memory_log import MemoryLog
from tests.waiting import patience, until


@pytest.mark.anyio
async def test_what_cannot_be_read_does_not_displace_what_was_read_just_before() -> None:
    """The cards of a bound pod whose next version is broken must not count as free."""
    log = MemoryLog()
    recorder = Recorder(log, "test", subject_of_facts, lambda _: None, lambda event, text: None)
    read = pod("a", rv=5, node="n1", holdings=(holding(),))
    broken = pod("a", rv=0, node="n1")
    later = pod("a", rv=7, node="n1", holdings=(holding(),), phase="Running")
    recorder.put([read, broken, later])
    assert recorder.waiting == 3
    async with anyio.create_task_group() as group:
        group.start_soon(recorder.run)
        with patience():
            while not log.core.records:  # noqa: ASYNC110 - the log in memory tells nobody
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    assert decode_envelope(log.core.records[0].payload).events == (read, broken, later)
    assert recorder.waiting == 0


@pytest.mark.anyio
async def test_an_event_that_no_service_can_read_is_left_out_alone() -> None:
    """It took up to 499 others of its record with it, and was sent again for ever."""
    log, refused = MemoryLog(), list[Event]()
    recorder = Recorder(
        log, "test", subject_of_facts, print, lambda event, _: refused.append(event)
    )
    poison: list[Event] = [
        GroupObserved(uid="g", namespace="a", name="huge", rv=1, min_member=1 << 70),
        pod("below", rv=-1),
        pod("half", name="\ud800"),
    ]
    good = [pod(f"u{number}") for number in range(300)]
    recorder.put([*good[:100], *poison, *good[100:]])
    async with anyio.create_task_group() as group:
        group.start_soon(recorder.run)
        await until(lambda: sum(map(_events_in, log.core.records)) == len(good))
        await until(lambda: len(refused) == len(poison))
        group.cancel_scope.cancel()
    told = [e for r in log.core.records for e in decode_envelope(r.payload).events]
    assert sorted(told, key=str) == sorted(good, key=str)
    assert {str(event) for event in refused} == {str(event) for event in poison}
    assert all(map(recorder.refuses, poison))
    assert not recorder.refuses(good[0])


@pytest.mark.anyio
async def test_events_that_were_left_out_are_remembered_without_their_texts() -> None:
    recorder = Recorder(MemoryLog(), "test", subject_of_facts, print, lambda *_: None)
    tracemalloc.start()
    try:
        large: list[Event] = [pod(f"u{n}", name="\ud800" * 20_000) for n in range(50)]
        recorder.put(large)
        async with anyio.create_task_group() as group:
            group.start_soon(recorder.run)
            await until(lambda: not recorder.waiting and recorder.refuses(large[-1]))
            group.cancel_scope.cancel()
        assert all(map(recorder.refuses, large))
        del large[:], group
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def _events_in(record: Record) -> int:
    return len(decode_envelope(record.payload).events)
