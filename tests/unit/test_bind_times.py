"""What is timed of Bindings: from an acknowledgement to the Binding that waited for it."""

import time

import pytest

from allotment.core.ledger.state import apply
from allotment_binder.bind_times import BindTimes
from allotment_binder.pacer import Pacer
from tests.build import decided, holding, node, placement, pod, policy, state_of

PLACE = ("n1", ("vgpu", "devices", 1))


async def _ready() -> None:
    """Nothing has to be prepared."""


@pytest.mark.anyio
async def test_an_acknowledgement_counts_once_and_for_whom_it_was() -> None:
    times = BindTimes()
    turns = next(h for h in times.histograms() if h.name.startswith("allot_acknowledgement"))
    elsewhere = times.begin(0, ("n2", PLACE[1]))
    times.acknowledged(PLACE, time.time_ns() // 1_000_000 - 60_000)
    for timed in (
        elsewhere,
        times.begin(0, None),
        times.begin(0, PLACE),
        times.begin(0, PLACE),
    ):
        await timed.prepared(_ready)
    (counted,) = turns.rows.values()
    assert counted.cumulative()[-1] == 1
    assert counted.sum_us >= 60_000_000


def test_a_place_is_free_when_somebody_waits_there_and_nobody_is_served() -> None:
    state = state_of(policy(), node(), pod("a"), pod("b"))
    both = (placement("a", stamp_s=1), placement("b", "n1", holding("GPU-1"), stamp_s=2))
    apply(state, decided(*both), state.seq + 1)
    pacer = Pacer(state)
    assert pacer.is_free(PLACE)
    assert [allocation.uid for allocation in pacer.ready()] == ["a"]
    assert not pacer.is_free(PLACE)
    seen = pod("a", rv=2, node="n1", holdings=(holding(),), bind_phase="success")
    apply(state, seen, state.seq + 1)
    pacer.look("a")
    assert pacer.is_free(PLACE)
    assert not pacer.is_free(("n2", PLACE[1]))
