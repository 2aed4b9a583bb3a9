"""Rounds over groups: whole or not at all, in the log as in the books, and the same again."""

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.ledger.check import check
from allotment.core.placement.cycle import recheck_all
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_proto.events import (
    PodGone,
    QueueObserved,
)
from tests import build
from tests.unit.rounds_world import World, group


def test_two_gangs_race_for_room_for_one() -> None:
    world = World(build.node("n1", 2))
    first, second = world.gang("a", 2), world.gang("b", 2)
    decided = world.decide()
    assert decided.wholes == (tuple(first),)
    assert world.placed() == set(first)
    (short,) = decided.shorts
    assert (short.group, short.together, short.wanted) == ("default/b", 0, 2)
    assert "2/2 tasks in gang unschedulable: pod group is not ready" in short.message
    for uid in first:
        world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=9))
    assert world.decide().wholes == (tuple(second),)


def test_a_gang_that_fits_in_part_leaves_no_trace() -> None:
    world = World(build.node("n1", 3))
    world.gang("a", 4)
    decided = world.decide()
    assert decided.placements == ()
    assert world.placed() == set()
    (short,) = decided.shorts
    assert (short.together, short.waiting, short.code) == (3, 4, "NotEnoughResources")


def test_a_refusal_is_said_once() -> None:
    world = World(build.node("n1", 1))
    world.gang("a", 2)
    assert world.decide().shorts
    again = world.round(list(world.state.pending))
    assert (again.shorts, again.refusals, again.placements) == ((), (), ())


def test_what_is_beyond_the_minimum_comes_pod_by_pod() -> None:
    world = World(build.node("n1", 3))
    uids = world.gang("a", 4, members=2)
    decided = world.decide()
    assert decided.wholes == (tuple(uids[:2]),)
    assert world.placed() == set(uids[:3])


def test_an_elastic_job_does_not_take_what_another_gang_needs() -> None:
    world = World(build.node("n1", 4))
    first = world.gang("a", 4, members=2)
    second = world.gang("b", 2)
    world.decide()
    assert world.placed() == {*first[:2], *second}


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


def test_pods_without_a_group_take_their_turn() -> None:
    world = World(build.node("n1", 1))
    world.tell(build.pod("solo", build.request(build.wants(16_000, 0))))
    assert [p.uid for p in world.decide().placements] == ["solo"]


def test_a_group_waits_for_admission() -> None:
    """What asks for no more than its queue may have is let in, and placed in the same round."""
    world = World(build.node("n1", 3))
    world.tell(group("a", 1, phase="Pending", min_resources=(("cpu", 100),)))
    (uid,) = world.pods("a", 1)
    decided = world.decide()
    assert [a.group for a in decided.admissions] == ["default/a"]
    assert world.placed() == {uid}, "let in and placed in one round"


def test_a_closed_queue_lets_nobody_in() -> None:
    world = World(build.node("n1", 3))
    world.tell(QueueObserved(uid="c", name="closed", rv=1, state="Closed"))
    world.tell(group("a", 1, phase="Pending", queue="closed", min_resources=(("cpu", 100),)))
    world.pods("a", 1)
    decided = world.decide()
    assert world.placed() == set()
    assert [(a.group, a.code) for a in decided.admissions] == [("default/a", "QueueClosed")]
    assert world.round(list(world.state.pending)).admissions == (), "said once"


@pytest.mark.parametrize("patience", [64])
def test_a_big_gang_is_not_starved_by_small_jobs(patience: int) -> None:
    """Small pods come all the time; a gang of all cards of a node is passed by, then held for."""
    world = World(build.node("n1", 4), build.node("n2", 4))
    running = world.gang("s0", 8, members=1)
    world.decide()
    assert world.placed() == set(running)
    big = world.gang("big", 4)
    world.decide()
    number, rounds = 0, 0
    while not set(big) <= world.placed():
        rounds += 1
        assert rounds < 4 * patience, "the gang starves"
        number += 1
        oldest = next(uid for uid in world.state.pods if uid in world.placed())
        world.tell(PodGone(uid=oldest, namespace="default", name=oldest, rv=9))
        world.gang(f"s{number}", 1)
        world.decide()
    assert world.state.groups["default/big"].passed == 0


def test_replay_of_a_round() -> None:
    world = World(build.node("n1", 2))
    uids = world.gang("a", 2)
    first = world.round(uids)
    second = Rounds(world.state).run(uids, Board(world.state))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
