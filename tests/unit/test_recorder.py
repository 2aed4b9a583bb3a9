"""Facts that gather are told by their last word, but not by a worse one."""

import anyio
import pytest

from allotment.adapters.recorder import Recorder
from allotment.testing.memory_log import MemoryLog
from allotment_proto.codec import decode_envelope
from allotment_watcher.diary import subject_of
from tests.build import holding, pod
from tests.waiting import patience


@pytest.mark.anyio
async def test_what_cannot_be_read_does_not_displace_what_was_read_just_before() -> None:
    """The cards of a bound pod whose next version is broken must not count as free."""
    log = MemoryLog()
    recorder = Recorder(log, "test", subject_of, lambda _: None, lambda event, text: None)
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
