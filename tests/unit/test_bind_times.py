"""What is timed of Bindings: from an acknowledgement to the Binding that waited for it."""

import time

import pytest

from allotment.core.ledger.state import apply
from allotment_binder.bind_times import BindTimes
from allotment_binder.pacer import Pacer
from tests.build import decided, holding, node, placement, pod, policy, state_of
from tests.turns import counted

PLACE = ("n1", ("vgpu", "devices", 1))


async def _ready() -> None:
    """Nothing has to be prepared."""


def long_ago() -> int:
    return time.time_ns() // 1_000_000 - 60_000


@pytest.mark.anyio
async def test_an_acknowledgement_counts_once_and_for_whom_it_was() -> None:
    times = BindTimes()
    elsewhere = times.begin(1, 0, ("n2", PLACE[1]))
    times.acknowledged(PLACE, 3, long_ago())
    for timed in (
        elsewhere,
        times.begin(1, 0, None),
        times.begin(1, 0, PLACE),
        times.begin(2, 0, PLACE),
    ):
        await timed.prepared(_ready)
    turns, sum_us = counted(times)
    assert turns == 1
    assert sum_us >= 60_000_000


@pytest.mark.anyio
async def test_who_came_after_those_that_waited_are_gone_waited_for_nothing() -> None:
    times = BindTimes()
    times.acknowledged(PLACE, 3, long_ago())
    await times.begin(4, 0, PLACE).prepared(_ready)
    await times.begin(1, 0, PLACE).prepared(_ready)
    assert counted(times) == (0, 0)


def test_it_is_somebodys_turn_when_somebody_waits_there_and_nobody_is_served() -> None:
    state = state_of(policy(), node(), pod("a"), pod("b"))
    both = (placement("a", stamp_s=1), placement("b", "n1", holding("GPU-1"), stamp_s=2))
    apply(state, decided(*both), state.seq + 1)
    pacer = Pacer(state)
    assert pacer.turn_of(PLACE) == ["a", "b"]
    assert [allocation.uid for allocation in pacer.ready()] == ["a"]
    assert pacer.turn_of(PLACE) == []
    seen = pod("a", rv=2, node="n1", holdings=(holding(),), bind_phase="success")
    apply(state, seen, state.seq + 1)
    pacer.look("a")
    assert pacer.turn_of(PLACE) == ["b"]
    assert pacer.turn_of(("n2", PLACE[1])) == []
