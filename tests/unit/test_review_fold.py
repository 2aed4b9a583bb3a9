"""What is absurd but well typed must not end a service."""

import io
from pathlib import Path

import pytest

from allotment.adapters.fold import Fold
from allotment.adapters.service_log import Logger, LogSink
from allotment.adapters.snapshots import SnapshotDirectory
from allotment.testing.memory_log import MemoryLog
from tests.build import node, pod, state_of


@pytest.mark.anyio
async def test_a_state_that_no_snapshot_can_hold_is_only_a_warning(tmp_path: Path) -> None:
    said = io.StringIO()
    store = SnapshotDirectory(tmp_path, log_identity="log")
    fold = Fold(MemoryLog(), Logger(LogSink("test", "0", stream=said)), store)
    fold.state = state_of(node(), pod("a", priority=1 << 70))
    await fold.save_snapshot()
    assert "snapshot not written" in said.getvalue()
    assert await store.load(10) is None
    fold.state = state_of(node(), pod("a"))
    await fold.save_snapshot()
    assert await store.load(10) is not None
