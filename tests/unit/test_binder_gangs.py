"""Gangs after their decision: a Binding that fails, members that hear why they wait, and where."""

from typing import cast

import msgspec
import pytest

from allotment.adapters.kube.client import KubeClient
from allotment.core.explain.causes.why import Whys
from allotment.core.ledger.check import check
from allotment.core.queues.eligible import NEVER
from allotment_binder.causes import told as whole_text
from allotment_binder.deciding import Deciding, accepted
from allotment_binder.gang_notices import GangNotices
from allotment_binder.nominations import Nominations, waiting_for
from allotment_binder.notices import Notice, Notices, Refused
from allotment_binder.readers import Readers
from allotment_proto.events import (
    Admission,
    BindFailed,
    Bound,
    Decided,
    Evicted,
    Eviction,
    Nomination,
    PodGone,
    QueueObserved,
    StageTime,
)
from allotment_proto.facts import Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.contest import Contest
from tests.unit.rounds_world import World, group

STAGE = StageTime("binder", "b", 1, 2)


def settle(world: World, uid: str, code: str = "") -> None:
    """The Binding of a pod came to this end."""
    held = world.state.pods[uid].allocation
    assert held is not None
    bound = Bound(uid=uid, namespace="default", name=uid, node=held.node, decision=held.seq)
    if not code:
        world.tell(bound)
        return
    world.tell(
        BindFailed(
            uid=uid,
            namespace="default",
            name=uid,
            node=held.node,
            decision=held.seq,
            code=code,
            message="refused",
            holdings=held.holdings,
        )
    )


def answered(world: World) -> Decided | str:
    """A round through the binder's own decision."""
    state = world.state
    found = world.round(list(state.pending))
    proposal = Proposal(
        v=MESSAGE_VERSION,
        cycle="c",
        basis=state.seq,
        policy=state.policy_seq,
        batch=tuple(state.pending),
        placements=found.placements,
        refusals=found.refusals,
        wholes=found.wholes,
        shorts=found.shorts,
        admissions=found.admissions,
        evictions=found.evictions,
        holds=found.holds,
        nominations=found.nominations,
    )
    return Deciding(state).decide(proposal, 1, STAGE).decided


def decided(world: World) -> Decided:
    """A round of which there is something to append, and its decision in the log."""
    made = answered(world)
    assert isinstance(made, Decided)
    world.tell(made)
    assert len(accepted(world.state, made, world.seq)) == len(made.placements)
    return made


def test_one_of_four_bindings_fails_and_that_one_is_placed_anew() -> None:
    world = World(build.node("n1", 4))
    uids = world.gang("a", 4)
    assert decided(world).wholes == (tuple(uids),)
    for uid in uids[:3]:
        settle(world, uid)
    settle(world, uids[3], "BindConflict")
    assert world.placed() == set(uids[:3])
    job = world.rounds.session().jobs["default/a"]
    assert job.ready_count == 3, "the bound ones count for the minimum"
    again = decided(world)
    assert [p.uid for p in again.placements] == [uids[3]]
    assert again.wholes == ((uids[3],),), "what the group lacks is placed whole"
    assert again.shorts == ()
    settle(world, uids[3])
    assert world.state.reserved == {}
    assert check(world.state) == []


def test_the_one_that_failed_waits_when_its_place_is_taken_and_nobody_bound_goes() -> None:
    world = World(build.node("n1", 4))
    uids = world.gang("a", 4)
    decided(world)
    for uid in uids[:3]:
        settle(world, uid)
    settle(world, uids[3], "BindConflict")
    world.tell(build.node("n1", 3, rv=2))  # its card is gone
    waits = decided(world)
    assert waits.placements == ()
    (short,) = waits.shorts
    assert (short.waiting, short.wanted, short.together) == (1, 1, 0)
    assert "3 Bound" in short.message
    assert "1 Pending" in short.message
    assert world.placed() == set(uids[:3])
    world.tell(build.node("n1", 4, rv=3))
    assert [p.uid for p in decided(world).placements] == [uids[3]]


class Said(Notices):
    """Notices that are kept instead of sent."""

    def __init__(self) -> None:
        super().__init__(cast(KubeClient, None), "binder-0", Readers())
        self.all: list[Notice] = []

    def put(self, notice: Notice) -> None:
        self.all.append(notice)

    def take(self) -> dict[str, Refused]:
        """What was said since the last time, by pod."""
        found = {n.uid: n for n in self.all if isinstance(n, Refused)}
        self.all.clear()
        return found


@pytest.fixture
def said() -> Said:
    return Said()


def test_members_hear_why_their_group_waits_by_refusals_of_their_own(said: Said) -> None:
    world = World(build.node("n1", 3))
    uids = world.gang("a", 4)
    made = decided(world)
    news = GangNotices(said)
    news.landed(world.state, made)
    assert {refusal.uid for refusal in made.refusals} == set(uids)
    assert made.shorts
    assert said.take() == {}, "not a second time"


def test_members_hear_why_their_queue_does_not_let_them_in(said: Said) -> None:
    world = World(build.node("n1", 3))
    uids = world.gang("a", 2)
    full = Admission("default/a", "QueueQuotaInsufficient", "insufficient nvidia.com/gpu")
    made = build.decided(admissions=(full,))
    world.tell(made)
    GangNotices(said).landed(world.state, made)
    told = said.take()
    assert told.keys() == set(uids)
    assert told[uids[0]].message == "QueueQuotaInsufficient: insufficient nvidia.com/gpu"


def victim(uid: str, node: str, preemptor: str) -> Eviction:
    return Eviction(uid, "default", uid, node, "preempt", preemptor)


def test_who_waits_for_a_node_says_so_until_its_victim_may_stay(said: Said) -> None:
    world = World(build.node("n1", 1), build.node("n2", 1))
    world.tell(build.pod("low", build.request(build.wants(16_000, 0))))
    decided(world)
    (uid,) = world.gang("top", 1)
    evicted = victim("low", "n1", "default/top")
    made = build.decided(
        evictions=(evicted,),
        nominations=(Nomination(uid, "default", uid, "n1", "default/top"),),
    )
    world.tell(made)
    nominations = Nominations(said)
    nominations.landed(world.state, made)
    told = said.take()[uid]
    assert told.nominated == "n1"
    assert told.message == (
        "nominated for n1: 1 pod is evicted there to make room. "
        f"Ask: allot explain pod default/{uid}"
    )
    ending = Evicted(uid="low", namespace="default", name="low", node="n1", decision=1)
    nominations.ended(world.state, evicted, ending)
    assert said.take() == {}
    protected = Evicted(
        uid="low",
        namespace="default",
        name="low",
        node="n1",
        decision=1,
        code="DisruptionBudget",
        message="not now",
    )
    nominations.ended(world.state, evicted, protected)
    back = said.take()[uid]
    assert back.nominated == ""
    assert back.message == "DisruptionBudget: pod default/low does not make room: not now"
    nominations.landed(world.state, made)
    nominations.ended(world.state, evicted, protected)
    assert said.take() == {}, "tried again and refused again, it is no news"


def test_each_preemptor_counts_its_own_victims_on_a_node(said: Said) -> None:
    """Two groups evict one pod each on the same node; a third comes to what they leave there."""
    world = World(build.node("n1", 2))
    for name in ("low-1", "low-2"):
        world.tell(build.pod(name, build.request(build.wants(16_000, 0))))
    decided(world)
    uids = {f"default/{name}": world.gang(name, 1)[0] for name in ("a", "b", "rider")}
    made = build.decided(
        evictions=(victim("low-1", "n1", "default/a"), victim("low-2", "n1", "default/b")),
        nominations=tuple(Nomination(uid, "default", uid, "n1", p) for p, uid in uids.items()),
    )
    world.tell(made)
    Nominations(said).landed(world.state, made)
    told = said.take()
    assert {p: told[uid].message.partition(". ")[0] for p, uid in uids.items()} == {
        "default/a": "nominated for n1: 1 pod is evicted there to make room",
        "default/b": "nominated for n1: 1 pod is evicted there to make room",
        "default/rider": "nominated for n1: room is being made there",
    }


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_what_is_kept_ends_for_who_cannot_come_although_nothing_else_is_news(action: str) -> None:
    """One victim of two is protected: none goes, and no other pair would do. The preemptor is
    refused as before; what was kept for it has to be there for others all the same.
    """
    gib = 1 << 30
    world = Contest(
        build.node("n1", 2, cpu_milli=200, memory_bytes=2 * gib),
        build.node("n2", 1, cpu_milli=100, memory_bytes=gib),
    )
    mine = theirs = "default"
    if action == "reclaim":  # of the host two thirds are deserved by the one, one by the other
        mine, theirs = "owner", "borrower"
        world.tell(QueueObserved(uid="o", name=mine, rv=1, weight=2))
        world.tell(QueueObserved(uid="b", name=theirs, rv=1, weight=1))
    running = world.job("old", 3, members=0, queue=theirs)
    decided(world)
    world.run(running)
    old = [uid for uid in running if uid in world.state.nodes["n1"].allocations]
    world.tell(group("top", 1, priority_class="high", queue=mine))
    whole = {"cpu_milli": 200, "memory_bytes": 2 * gib}
    both = build.request(build.wants(16_000, 0, count=2), **whole)
    member = {"group": "default/top", "role": "w", "priority_class": "high"}
    world.tell(build.pod("top-w-0", both, name="top-w-0", **member))
    made = decided(world)
    assert [(each.uid, each.action) for each in made.evictions] == [(uid, action) for uid in old]
    for uid, code in zip(old, ("DisruptionBudget", "OtherVictimStays"), strict=True):
        name = {"uid": uid, "namespace": "default", "name": uid, "node": "n1"}
        world.tell(Evicted(**name, decision=world.seq, code=code))
    assert world.state.spared.keys() == {old[0]}
    ended = decided(world)
    assert (ended.evictions, ended.nominations) == ((), ())
    assert world.state.nominated == {}
    assert answered(world) == "nothing"


def test_every_member_says_for_which_node_it_waits_until_its_place_is_lost(said: Said) -> None:
    world = World(build.node("n1", 1), build.node("n2", 1))
    for name in ("low-1", "low-2"):
        world.tell(build.pod(name, build.request(build.wants(16_000, 0))))
    decided(world)
    first, second, _ = world.gang("top", 3, members=2)
    wanted = {first: "n1", second: "n2"}
    made = build.decided(
        evictions=(victim("low-1", "n1", "default/top"), victim("low-2", "n2", "default/top")),
        nominations=tuple(
            Nomination(uid, "default", uid, node, "default/top") for uid, node in wanted.items()
        ),
    )
    world.tell(made)
    nominations = Nominations(said)
    nominations.landed(world.state, made)
    assert {uid: told.nominated for uid, told in said.take().items()} == wanted
    nominations.begin(world.state)
    assert {told.is_news for told in said.take().values()} == {False}, "a successor makes sure"
    for name in ("low-1", "low-2"):
        world.tell(PodGone(uid=name, namespace="default", name=name, rv=9))
    world.tell(build.node("n1", 0, rv=9))
    lost = decided(world)
    assert world.placed() == set()
    nominations.landed(world.state, lost)
    told = said.take()
    assert {uid: t.nominated for uid, t in told.items()} == {first: "", second: ""}
    assert "at most 1 fit" in told[first].message
    assert waiting_for(world.state, "default/top") == {}


def test_who_never_preempts_is_told_so(said: Said) -> None:
    world = World(build.node("n1", 1), policy=Policy(actions=("allocate", "preempt")))
    first, second = world.gang("a", 2)
    world.tell(msgspec.structs.replace(world.state.pods[second].fact, rv=2, preempts=False))
    made = build.decided(admissions=(Admission("default/a", "QueueClosed", "it is closed"),))
    world.tell(made)
    GangNotices(said).landed(world.state, made)
    told = said.take()
    whole = {uid: whole_text(world.state, Whys(world.state), told[uid], Readers()) for uid in told}
    assert "QueueClosed: it is closed. Ask: " in whole[first]
    assert f"QueueClosed: it is closed. {NEVER} Ask: " in whole[second]
