"""Preemption within one group: higher pods take from lower ones, and the minimum stays."""

import msgspec

from allotment_proto.events import PodGone, PolicyLoaded
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.contest import POLICY, Contest
from tests.unit.rounds_world import group

HUNGRY = Policy(
    tiers=((PluginUse("priority"),), (PluginUse("gang"), PluginUse("proportion"))),
    actions=("enqueue", "allocate", "preempt"),
)
"""Groups that have their minimum may still have others evicted: no gang in the first tier."""


def world(cards: int, policy: Policy = HUNGRY) -> Contest:
    found = Contest(build.node("n1", cards))
    found.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    return found


def member(there: Contest, name: str, priority: int, role: str = "w", job: str = "job") -> str:
    request = build.request(build.wants(16_000, 0))
    fact = build.pod(name, request, name=name, group=f"default/{job}", role=role, priority=priority)
    there.tell(fact)
    return name


def runs(there: Contest, *uids: str) -> None:
    there.decide()
    assert set(uids) <= there.placed()
    there.run(list(uids))


def victims(there: Contest) -> list[str]:
    return [eviction.uid for eviction in there.decide().evictions]


def test_a_higher_pod_takes_from_a_lower_one_of_its_group() -> None:
    there = world(2)
    there.tell(group("job", 1))
    runs(there, member(there, "low", 1), member(there, "middle", 5))
    top = member(there, "top", 9)
    (eviction,) = there.decide().evictions
    assert (eviction.uid, eviction.action) == ("low", "preempt")
    assert eviction.preemptor == "default/job"
    again = member(there, "low-again", 1)
    there.tell(PodGone(uid="low", namespace="default", name="low", rv=9))
    assert there.decide().evictions == ()
    assert top in there.placed()
    assert again not in there.placed()
    assert victims(there) == [], "it is the lowest: nobody goes for it"


def test_it_takes_what_was_made_free_also_where_priority_orders_no_pods() -> None:
    """The lower pod that is made anew comes first by its name; the room is the higher one's."""
    off = PluginUse("priority", off=("enableTaskOrder",))
    there = world(1, msgspec.structs.replace(HUNGRY, tiers=((off,), HUNGRY.tiers[1])))
    there.tell(group("job", 0))
    runs(there, member(there, "job-w-0", 1))
    top = member(there, "job-w-1", 9)
    assert victims(there) == ["job-w-0"]
    there.tell(PodGone(uid="job-w-0", namespace="default", name="job-w-0", rv=9))
    member(there, "job-w-00", 1)
    assert victims(there) == []
    assert there.placed() == {top}


def test_equals_are_left_alone() -> None:
    there = world(2)
    there.tell(group("job", 1))
    runs(there, member(there, "one", 5), member(there, "two", 5))
    member(there, "three", 5)
    assert victims(there) == []


def test_the_minimum_stays() -> None:
    there = world(2)
    there.tell(group("job", 2))
    runs(there, member(there, "one", 1), member(there, "two", 1))
    member(there, "top", 9)
    assert victims(there) == []


def test_the_minimum_of_every_role_stays() -> None:
    there = world(4)
    there.tell(group("job", 3, min_task_member=(("w", 2), ("x", 1))))
    workers = [member(there, f"w{n}", 1) for n in range(2)]
    others = [member(there, f"x{n}", 3, role="x") for n in range(2)]
    runs(there, *workers, *others)
    member(there, "top", 9, role="y")
    assert victims(there) == ["x0"], "the lowest are the workers, and none can be spared"


def test_other_groups_are_asked_first() -> None:
    there = world(2)
    there.tell(group("other", 0, priority_class="low"))
    there.tell(group("job", 0, priority_class="high"))
    runs(there, member(there, "other", 50, job="other"), member(there, "low", 1))
    member(there, "top", 9)
    assert victims(there) == ["other"]


def test_a_group_that_has_its_minimum_does_not_starve_where_gang_is_asked() -> None:
    there = world(2, POLICY)
    there.tell(group("job", 1))
    runs(there, member(there, "low", 1), member(there, "middle", 5))
    member(there, "top", 9)
    assert victims(there) == []


def test_a_higher_pod_that_never_preempts_waits() -> None:
    there = world(2)
    there.tell(group("job", 1))
    runs(there, member(there, "low", 1), member(there, "middle", 5))
    top = member(there, "top", 9)
    there.tell(msgspec.structs.replace(there.state.pods[top].fact, rv=2, preempts=False))
    assert victims(there) == []
