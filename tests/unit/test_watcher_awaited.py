"""Which news of a pod goes to the log at once."""

import pytest
from msgspec.structs import replace

from allotment_proto.volcano import keys
from allotment_watcher.awaited import is_awaited
from tests.build import pod

OURS = ("allotment",)
WAITING = replace(pod("p"), scheduler="allotment")
BOUND = replace(WAITING, node="n1", bind_phase=keys.PHASE_ALLOCATING)
SERVED = replace(BOUND, bind_phase=keys.PHASE_SUCCESS)
RUNNING = replace(SERVED, phase="Running")
PLAIN = replace(WAITING, node="n1")


@pytest.mark.parametrize(
    ("told", "fact"),
    [
        (WAITING, BOUND),
        (SERVED, RUNNING),
        (WAITING, PLAIN),
        (PLAIN, replace(PLAIN, phase="Running")),
    ],
)
def test_what_follows_from_the_log_is_not_awaited(told: object, fact: object) -> None:
    assert not is_awaited(told, fact, OURS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "fact"),
    [
        (None, WAITING),
        (None, BOUND),
        (WAITING, replace(WAITING, priority=7)),
        (BOUND, SERVED),
        (BOUND, replace(BOUND, bind_phase=keys.PHASE_FAILED)),
        (WAITING, SERVED),
        (BOUND, replace(BOUND, phase="Running")),
        (BOUND, RUNNING),
        (WAITING, RUNNING),
        (RUNNING, replace(RUNNING, phase="Succeeded")),
        (BOUND, replace(BOUND, phase="Failed")),
        (RUNNING, replace(RUNNING, deleting=True)),
        (WAITING, replace(BOUND, scheduler="others")),
    ],
)
def test_everything_else_is(told: object, fact: object) -> None:
    assert is_awaited(told, fact, OURS)  # type: ignore[arg-type]
