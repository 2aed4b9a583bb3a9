"""What is absurd but well typed must not end a service."""

import io
from pathlib import Path
from typing import Any

import pytest

from allotment.adapters.log.fold import Fold
from allotment.adapters.log.snapshots import SnapshotDirectory, digests_of
from allotment.adapters.telemetry.log import Logger, LogSink
from allotment.core.ledger.check import check
from allotment.core.ledger.state import apply
from tests.build import decided, holding, node, placement, pod, request, state_of, wants
from tests.memory_log import MemoryLog


@pytest.mark.anyio
async def test_a_state_that_no_snapshot_can_hold_is_only_a_warning(tmp_path: Path) -> None:
    said = io.StringIO()
    store = SnapshotDirectory(tmp_path, log_identity="log")
    log = MemoryLog()
    await log.append("allot.log.facts", b"1", msg_id="1")
    (fold_record,) = log.core.records
    fold = Fold(log, Logger(LogSink("test", "0", stream=said)), store)
    fold.state = state_of(node(), pod("a", priority=1 << 70))
    fold._last = fold_record
    fold._link(fold_record)
    await fold.save_snapshot()
    assert "snapshot not written" in said.getvalue()
    assert await store.load(10, digests_of(log)) is None
    fold.state = state_of(node(), pod("a"))
    await fold.save_snapshot()
    assert await store.load(10, digests_of(log)) is not None


def test_a_pod_resized_in_place_is_booked_with_what_it_takes_now() -> None:
    """Both of ours and of others: the cards stay as they are, the host's books follow."""
    seen: dict[str, Any] = {"node": "n1", "holdings": (holding(),), "phase": "Running"}
    state = state_of(node(), pod("a"), decided(placement("a")), pod("a", rv=2, **seen))
    before = state.pods["a"].allocation
    apply(state, pod("a", request(wants(), cpu_milli=4_000), rv=3, **seen), 5)
    after = state.pods["a"].allocation
    assert before is not None
    assert after is not None
    assert (after.seq, after.stamp_s, after.holdings) == (3, before.stamp_s, before.holdings)
    assert state.nodes["n1"].cpu_milli_free == 8_000 - 4_000
    assert check(state) == []
