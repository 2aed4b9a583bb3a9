"""What others left is its preemptor's: kept, with its part of the quota, until it was tried there.

Without that somebody who comes first in the round takes the place, and the preemptor evicts again,
and again.
"""

from typing import Any

import msgspec
import pytest

from allotment.core.ledger import snapshot
from allotment_filter.groups import Groups
from allotment_proto.events import (
    Evicted,
    GroupGone,
    NodeObserved,
    PodGone,
    PolicyLoaded,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.contest import POLICY, Contest
from tests.unit.rounds_world import group

CAPACITY = Policy(
    tiers=((PluginUse("priority"), PluginUse("gang")), (PluginUse("capacity"),)),
    actions=("enqueue", "allocate", "backfill", "preempt", "reclaim"),
)


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


def small_node(name: str, memory_mib: int, **changes: Any) -> NodeObserved:
    """A node with one card of a size."""
    return build.node(name, [build.card(0, id=f"{name}-0", memory_mib=memory_mib)], **changes)


def test_another_queue_that_comes_first_does_not_take_what_was_made_free() -> None:
    world = Contest(build.node("n1", 2))
    world.tell(QueueObserved(uid="other", name="other", rv=1))
    runs(world, world.job("low", 2))
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    assert world.state.nominated["default/top"].nodes == {top: "n1"}
    (rival,) = world.job("rival", 1, priority="high", queue="other")
    gone(world, victim)
    session = world.rounds.session()
    assert session.queue_key("other") < session.queue_key("default"), "the rival's turn is first"
    world.decide()
    assert top in world.placed()
    assert rival not in world.placed()


def test_nobody_is_evicted_again_while_victims_come_back() -> None:
    """Each pod that goes is made anew by its controller; one eviction is enough all the same."""
    world = Contest(build.node("n1", 1))
    world.tell(QueueObserved(uid="other", name="other", rv=1))
    runs(world, world.job("low", 1, members=0))
    (top,) = world.job("top", 1, priority="high", queue="default")
    evicted = victims(world)
    for number in range(1, 5):
        world.pods("low", 1, start=number)
        world.job(f"rival{number}", 1, queue="other")
        gone(world, *evicted[-1:])
        evicted += victims(world)
    assert len(evicted) == 1
    assert top in world.placed()


def test_a_job_that_outranks_the_preemptor_may_take_it() -> None:
    world = Contest(build.node("n1", 1))
    runs(world, world.job("low", 1, members=0))
    high = world.state.classes["high"]
    (middle,) = world.job("middle", 1, priority="high")
    (victim,) = victims(world)
    world.tell(msgspec.structs.replace(high, uid="top", name="top", value=high.value + 1))
    (top,) = world.job("top", 1, priority="top")
    gone(world, victim)
    world.decide()
    assert (top in world.placed(), middle in world.placed()) == (True, False)
    assert world.state.nominated == {}, "it was tried in vain"


def test_a_queue_that_gives_back_what_it_borrowed_does_not_take_it_again() -> None:
    """Its jobs outrank the one that reclaims, and their turn is first: that goes for nothing."""
    world = Contest(build.node("n1", 1))
    world.tell(PolicyLoaded(policy=CAPACITY, source="", text_sha256=""))
    for name, due_milli in (("borrower", 0), ("owner", 100)):
        due = (("cpu", due_milli),)
        world.tell(QueueObserved(uid=name, name=name, rv=1, deserved=due))
    runs(world, world.job("much", 1, priority="high", queue="borrower", members=0))
    (own,) = world.job("own", 1, priority="low", queue="owner")
    (victim,) = victims(world)
    gone(world, victim)
    (again,) = world.pods("much", 1, start=1)
    session = world.rounds.session()
    assert session.queue_key("borrower") < session.queue_key("owner")
    assert victims(world) == []
    assert (own in world.placed(), again in world.placed()) == (True, False)


def test_the_part_of_the_quota_is_kept_as_well() -> None:
    """Room for the preemptor is made on one node; on another a small job would use its quota up."""
    world = Contest(small_node("n1", 16_000), small_node("n2", 4_000))
    world.tell(PolicyLoaded(policy=CAPACITY, source="", text_sha256=""))
    quota = (("pods", 1), ("cpu", 9_000), ("memory", 1 << 50))
    world.tell(QueueObserved(uid="q", name="default", rv=2, capability=quota))
    world.tell(QueueObserved(uid="other", name="other", rv=1))
    runs(world, world.job("low", 1, members=0))
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    world.tell(group("small", 1, priority_class="high"))
    (small,) = world.pods("small", 1, memory_mib=2_000)
    world.tell(group("apart", 1, priority_class="high", queue="other"))
    (apart,) = world.pods("apart", 1, memory_mib=2_000)
    world.decide()
    assert small not in world.placed()
    assert apart in world.placed(), "what one queue was promised is no other queue's quota"
    gone(world, victim, apart)
    world.decide()
    assert top in world.placed()
    assert small not in world.placed()


def test_room_that_a_gang_found_as_it_is_is_kept_as_well() -> None:
    world = Contest(small_node("n1", 16_000), small_node("n2", 16_000))
    runs(world, world.job("low", 1, members=0))
    top = world.job("top", 2, priority="high", members=2)
    (victim,) = victims(world)
    assert set(world.state.nominated["default/top"].nodes.values()) == {"n1", "n2"}
    (small,) = world.job("small", 1)
    world.decide()
    assert small not in world.placed(), "what was free is the gang's, too"
    gone(world, victim)
    world.decide()
    assert set(top) <= world.placed()


def test_pods_go_where_they_were_nominated() -> None:
    """Spread would put the small member on the idle card, and the large one nowhere: again and
    again."""
    spread = msgspec.structs.replace(POLICY, device_policy="spread", host_policy="none")
    world = Contest(small_node("n1", 16_000))
    world.tell(group("firm", 1, priority_class="high"))
    runs(world, world.pods("firm", 1, memory_mib=8_000))
    world.tell(small_node("n2", 16_000))
    runs(world, world.job("low", 1, members=0))
    world.tell(PolicyLoaded(policy=spread, source="", text_sha256=""))
    world.tell(group("top", 2, priority_class="high"))
    (small,) = world.pods("top", 1, memory_mib=8_000)
    (large,) = world.pods("top", 1, memory_mib=16_000, start=1)
    (victim,) = victims(world)
    assert world.state.nominated["default/top"].nodes == {small: "n1", large: "n2"}
    gone(world, victim)
    placed = world.decide().placements
    assert {p.uid: p.node for p in placed} == {small: "n1", large: "n2"}


def test_what_is_kept_is_there_for_others_once_its_preemptor_cannot_use_it() -> None:
    """A fact takes one of two nodes away. The group is tried, in vain; then others are due."""
    world = Contest(small_node("n1", 16_000), small_node("n2", 16_000))
    groups = Groups(world.state)
    runs(world, world.job("low", 2, members=0))
    world.job("top", 2, priority="high", members=2)
    going = victims(world)
    assert len(going) == 2
    gone(world, *going)
    world.tell(build.node("n2", 0, rv=9))
    (small,) = world.job("small", 1)
    found = groups.next_batch(())
    assert found is not None
    world.decide(list(found.batch.uids))
    groups.tried(found)
    assert small not in world.placed()
    assert world.state.nominated == {}
    again = groups.next_batch(())
    assert again is not None
    assert small in again.batch.uids, "what was kept is there for it"
    world.decide(list(again.batch.uids))
    assert small in world.placed()


def test_a_preemptor_that_is_gone_keeps_nothing() -> None:
    world = Contest(build.node("n1", 1))
    runs(world, world.job("low", 1, members=0))
    (top,) = world.job("top", 1, priority="high")
    (victim,) = victims(world)
    gone(world, top, victim)
    (small,) = world.job("small", 1)
    world.decide()
    assert small in world.placed()
    assert world.state.nominated == {}


def test_a_group_that_is_gone_keeps_nothing() -> None:
    world = Contest(build.node("n1", 1))
    runs(world, world.job("low", 1, members=0))
    world.job("top", 1, priority="high")
    victims(world)
    world.tell(GroupGone(uid="uid-top", namespace="default", name="top", rv=9))
    assert world.state.nominated == {}


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


def test_roles_are_asked_for_too() -> None:
    """Two of one role would make up the number, but not the group: room for three is made."""
    world = Contest(*(small_node(f"n{n}", 16_000) for n in range(3)))
    runs(world, world.job("low", 3, members=0))
    roles = (("w", 1), ("x", 1))
    world.tell(group("top", 2, priority_class="high", min_task_member=roles))
    workers = world.pods("top", 2)
    request = build.request(build.wants(16_000, 0))
    member = {"group": "default/top", "role": "x", "priority_class": "high"}
    world.tell(build.pod("last", request, name="top-x-9", **member))
    going = victims(world)
    assert len(going) == 3
    gone(world, *going)
    world.decide()
    assert {*workers, "last"} <= world.placed()


def test_it_is_the_same_after_a_restart() -> None:
    world = Contest(build.node("n1", 2))
    runs(world, world.job("low", 2, members=0))
    world.job("top", 2, priority="high", members=2)
    first, _ = victims(world)
    gone(world, first)
    restored = snapshot.decode(snapshot.encode(world.state))
    assert snapshot.encode(restored) == snapshot.encode(world.state)
    assert restored.nominated["default/top"].ripe_seq == 0
