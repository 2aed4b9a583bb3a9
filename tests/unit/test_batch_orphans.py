"""Groups whose queue does not exist, and pods whose PodGroup does not: told once, and no one else
is disturbed.
"""

from allotment.core.queues.round.rounds import Rounds
from allotment.core.reasons import refusal_text
from allotment_filter.groups import Groups
from allotment_proto.events import QueueGone, QueueObserved
from tests import build
from tests.unit.filtered import Filtered
from tests.unit.node_groups import job


def told(world: Filtered, uid: str) -> str:
    refusal = world.state.pods[uid].refusal
    return "" if refusal is None else refusal_text(refusal)


def deleted_queue() -> tuple[Filtered, list[str], list[str]]:
    """A queue with a group that runs whole and one that waits; then it is deleted."""
    world = Filtered(build.node("n1", 2))
    world.tell(QueueObserved(uid="t", name="team", rv=1))
    runs = job(world, "runs", 2, "team")
    world.cycle()
    waits = job(world, "waits", 1, "team")
    world.cycle()
    assert world.placed() == set(runs)
    world.tell(QueueGone(uid="t", name="team", rv=2))
    return world, runs, waits


def test_many_orphans_leave_room_for_others() -> None:
    world = Filtered(build.node("n1", 2))
    orphans = world.pods("ghost", 12)
    ready = world.gang("a", 2)
    first = world.next(most=8)
    assert first == [*orphans[:2], *ready]
    seen: set[str] = set()
    while (batch := world.cycle()) is not None:
        seen.update(batch)
    assert seen == {*orphans, *ready}
    assert all(told(world, uid) for uid in orphans)


def test_a_service_that_starts_anew_tells_nobody_twice() -> None:
    world, _, _ = deleted_queue()
    world.pods("ghost", 1)
    while world.cycle() is not None:
        pass
    again = Groups(world.state)
    found = again.next_batch(())
    assert found is None or not Rounds(world.state).run(found.batch.uids, world.board).refusals


def test_without_any_queue_nobody_is_astray() -> None:
    world, _, _ = deleted_queue()
    world.pods("ghost", 1)
    world.tell(QueueGone(uid="q", name="default", rv=9))
    assert not world.state.is_batched
    assert world.cycle() is None
