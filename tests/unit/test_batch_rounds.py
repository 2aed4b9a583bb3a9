"""Rounds over groups: whole or not at all, in the log as in the books, and the same again."""

from allotment.core import reasons
from allotment.core.ledger.check import check
from allotment.core.placement.cycle import recheck_all
from tests import build
from tests.unit.rounds_world import World


def test_the_fold_upholds_a_whole_or_nothing() -> None:
    """A fact that landed between check and append takes room from one member: both are void."""
    world = World(build.node("n1", 1), build.node("n2", 1))
    uids = world.gang("a", 2)
    found = world.round(uids)
    world.tell(build.node("n2", 0, rv=9))
    decided = build.decided(*found.placements, wholes=found.wholes)
    world.tell(decided)
    assert world.placed() == set()
    assert set(world.state.voided) == set(uids)
    assert check(world.state) == []


def test_the_binder_drops_a_whole_or_nothing() -> None:
    world = World(build.node("n1", 1), build.node("n2", 1), build.node("n3", 1))
    uids = world.gang("a", 2)
    found = world.round(uids)
    gone = found.placements[0].node
    world.tell(build.node(gone, 0, rv=9))
    kept, dropped, wholes = recheck_all(world.state, found.placements, found.wholes)
    assert (kept, wholes) == ((), ())
    assert {d.code for d in dropped} == {reasons.NO_GPU, reasons.GANG_INCOMPLETE}
