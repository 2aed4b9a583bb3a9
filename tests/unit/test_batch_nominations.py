"""What others left is its preemptor's: kept, with its part of the quota, until it was tried there.

Without that somebody who comes first in the round takes the place, and the preemptor evicts again,
and again.
"""

import pytest

from allotment_proto.events import (
    Evicted,
    PodGone,
)
from tests import build
from tests.unit.contest import Contest


def gone(world: Contest, *uids: str) -> None:
    for uid in uids:
        world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=99))


def runs(world: Contest, uids: list[str]) -> list[str]:
    """They are placed, and run."""
    world.decide()
    assert set(uids) <= world.placed()
    world.run(uids)
    return uids


def victims(world: Contest) -> list[str]:
    """Who goes by a decision about all that wait."""
    return [eviction.uid for eviction in world.decide().evictions]


def test_a_placement_that_did_not_stand_was_no_trial() -> None:
    """A node's fact lands between proposal and decision: the place is tried again."""
    world = Contest(build.node("n1", 1))
    runs(world, world.job("low", 1, members=0))
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    gone(world, victim)
    basis, found = world.seq, world.round([top])
    world.tell(build.node("n1", 0, rv=9))
    world.tell(build.decided(*found.placements, basis=basis, batch=(top,), wholes=found.wholes))
    assert world.state.nominated["default/top"].nodes == {top: "n1"}
    world.tell(build.node("n1", 1, rv=10))
    (small,) = world.job("small", 1)
    world.decide()
    assert (top in world.placed(), small in world.placed()) == (True, False)


@pytest.mark.parametrize("code", ["", "DisruptionBudget"])
def test_a_decision_on_an_older_state_was_no_trial(code: str) -> None:
    world = Contest(build.node("n1", 2))
    runs(world, world.job("low", 2))
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    basis = world.seq
    if code:
        name = {"uid": victim, "namespace": "default", "name": victim}
        world.tell(Evicted(**name, node="n1", decision=world.seq, code=code))
    else:
        gone(world, victim)
    nominated = world.state.nominated["default/top"]
    assert nominated.ripe_seq == world.seq
    world.tell(build.decided(basis=basis, batch=(top,)))
    assert world.state.nominated["default/top"] is nominated
    again = world.decide()
    assert (top in world.placed()) == (not code)
    assert len(again.evictions) == (1 if code else 0), "another one goes in its place"
