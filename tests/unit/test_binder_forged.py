"""Proposals that nobody's policy leads to: forged ones, and honest ones that a fact has overtaken.

A proposal is a message, so whoever reaches the bus can send one. Nothing of it that takes from
others is decided unless the binder's own state leads to it, and a forger cannot stop the rest.
"""

from typing import Any

import msgspec
import pytest

from allotment.core.logport import Record
from allotment.core.queues.round.objections import objection
from allotment.core.queues.round.rounds import Rounds
from allotment_binder.deciding import Answer, Deciding
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.decided import RULES
from allotment_proto.events import (
    Admission,
    Decided,
    Envelope,
    Event,
    Eviction,
    Held,
    Nomination,
    PodGone,
    PolicyLoaded,
    QueueGone,
    QueueObserved,
    Refusal,
    Short,
    StageTime,
)
from allotment_proto.facts import Problem
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.replaying import verify
from tests.unit.batch_parts import CAPACITY, LIMITED
from tests.unit.contest import Contest
from tests.unit.rounds_world import group
from tests.unit.sub_groups import halves, in_parts

STAGE = StageTime("binder", "b", 1, 2)
ENQUEUEING = msgspec.structs.replace(CAPACITY, actions=("enqueue", "allocate", "backfill"))


class Scene(Contest):
    """A contest whose decisions are the binder's, and whose log is kept for replay."""

    def __init__(self, *nodes: Event) -> None:
        self.records: list[Record] = []
        super().__init__(*nodes)
        self.deciding = Deciding(self.state)

    def tell(self, event: Event) -> None:
        subject = subjects.DECISION if isinstance(event, Decided) else subjects.FACTS
        envelope = Envelope(at_ms=0, by="t", events=(event,))
        seq = len(self.records) + 1
        self.records.append(Record(seq, subject, encode(envelope), 0, str(seq)))
        super().tell(event)

    def proposal(self, *batch: str, **changes: Any) -> Proposal:
        """What an honest scorer proposes, but for the changes."""
        uids = batch or tuple(self.state.pending)
        found = self.round(list(uids))
        honest = Proposal(
            v=MESSAGE_VERSION,
            cycle="c",
            basis=self.seq,
            policy=self.state.policy_seq,
            batch=uids,
            placements=found.placements,
            refusals=found.refusals,
            wholes=found.wholes,
            shorts=found.shorts,
            admissions=found.admissions,
            evictions=found.evictions,
            holds=found.holds,
            nominations=found.nominations,
        )
        return msgspec.structs.replace(honest, **changes)

    def settle(self, proposal: Proposal) -> Answer:
        """The binder's answer; a decision lands."""
        answer = self.deciding.decide(proposal, 0, STAGE)
        if isinstance(answer.decided, Decided):
            self.tell(answer.decided)
        return answer

    def settled(self, *batch: str) -> None:
        """An honest proposal is decided."""
        self.settle(self.proposal(*batch))

    def is_identical(self) -> bool:
        """Whether every decision can be made again from the log, bit for bit."""
        report = verify(self.records)
        return report.identical == report.decisions > 0


def contest() -> Scene:
    """Two low pods on two cards, of which one outranks the other's taker, and a high one waits."""
    scene = Scene(build.node("n1", 2))
    low = scene.job("low", 2, members=0)
    scene.settled()
    scene.run(low)
    return scene


def eviction(uid: str, preemptor: str, namespace: str = "default") -> Eviction:
    return Eviction(uid, namespace, uid, "n1", "preempt", preemptor)


def test_an_honest_eviction_is_decided_and_replays() -> None:
    scene = contest()
    (top,) = scene.job("top", 1, priority="high")
    proposal = scene.proposal()
    assert proposal.evictions
    answer = scene.settle(proposal)
    assert isinstance(answer.decided, Decided)
    assert answer.decided.evictions == proposal.evictions
    assert answer.refused == ()
    assert scene.state.nominated["default/top"].nodes == {top: "n1"}
    assert scene.is_identical()


STRANGERS: dict[str, dict[str, Any]] = {
    "a pod of the system": {"namespace": "kube-system"},
    "a critical pod": {"priority_class": "system-cluster-critical"},
    "another scheduler's pod": {"scheduler": "default-scheduler"},
    "a pod that may not be preempted": {"preemptable": False},
    "a pod of the same rank": {"group": "default/equal"},
    "a pod that nobody knows": {},
}


@pytest.mark.parametrize("name", STRANGERS)
def test_who_may_not_be_evicted_stays(name: str) -> None:
    """Even for a preemptor that waits, and has victims of its own."""
    scene = contest()
    scene.tell(group("equal", 0, priority_class="high"))
    if STRANGERS[name]:
        facts = {"node": "n1", "phase": "Running", "scheduler": "allotment", **STRANGERS[name]}
        scene.tell(build.pod("v", name="v", **facts))
    scene.job("top", 1, priority="high")
    honest = scene.proposal()
    forged = eviction("v", "default/top", STRANGERS[name].get("namespace", "default"))
    answer = scene.settle(msgspec.structs.replace(honest, evictions=(forged, *honest.evictions)))
    assert isinstance(answer.decided, Decided)
    assert answer.decided.evictions == honest.evictions
    assert [(part.part, part.about) for part in answer.refused] == [
        ("eviction", f"pod {forged.namespace}/v for default/top")
    ]
    assert "v" not in scene.state.evicting
    assert scene.is_identical()


@pytest.mark.parametrize("preemptor", ["default/low", "default/nobody", "", "default/later"])
def test_nobody_is_evicted_for_who_may_not_preempt(preemptor: str) -> None:
    """For a group that does not outrank the victim, does not exist, or does not wait."""
    scene = contest()
    scene.job("later", 0, priority="high")
    (waiting,) = scene.job("equal", 1)
    evictions = tuple(eviction(f"low-w-{n}", preemptor) for n in range(2))
    answer = scene.settle(scene.proposal(waiting, evictions=evictions))
    assert [part.part for part in answer.refused] == ["eviction"] * 2
    assert scene.state.evicting == {}
    assert scene.is_identical()


def test_no_more_go_than_the_preemptor_needs() -> None:
    scene = contest()
    scene.job("top", 1, priority="high")
    everybody = tuple(eviction(f"low-w-{n}", "default/top") for n in range(2))
    answer = scene.settle(scene.proposal(evictions=everybody))
    assert len(scene.state.evicting) == 1
    assert [part.part for part in answer.refused] == ["eviction"]
    assert scene.is_identical()


def test_victims_that_left_meanwhile_cost_nothing_but_another_look() -> None:
    """The proposal is honest and late: what is decided is right for the state as it is."""
    scene = contest()
    (top,) = scene.job("top", 1, priority="high")
    late = scene.proposal()
    (victim,) = late.evictions
    scene.tell(PodGone(uid=victim.uid, namespace="default", name=victim.name, rv=9))
    answer = scene.settle(late)
    assert isinstance(answer.decided, Decided)
    assert answer.decided.evictions == ()
    assert top in scene.placed(), "there is room now"
    assert scene.is_identical()


def test_evictions_come_about_however_often_facts_overtake_proposals() -> None:
    """A fact lands between each proposal and its decision: the first evicts all the same."""
    scene = contest()
    scene.job("top", 1, priority="high")
    late = scene.proposal()
    scene.tell(build.node("n2", 0, rv=7))
    scene.settle(late)
    assert len(scene.state.evicting) == 1
    assert scene.is_identical()


def test_without_queues_nothing_is_said_about_groups() -> None:
    scene = contest()
    scene.tell(build.pod("a"))
    for queue in list(scene.state.queues.values()):
        scene.tell(QueueGone(uid=queue.uid, name=queue.name, rv=99))
    assert not scene.state.is_batched
    honest = scene.proposal("a")
    for changes in (
        {"evictions": (eviction("low-w-0", "default/top"),)},
        {"nominations": (Nomination("a", "default", "a", "n1", "default/top"),)},
        {"admissions": (Admission("default/low"),)},
        {"holds": (Held("default/low", 1, ("n1",), ""),)},
        {"shorts": (Short("default/low", "", "x", 1, 1, 0, tried=True),)},
    ):
        answer = scene.deciding.decide(msgspec.structs.replace(honest, **changes), 0, STAGE)
        assert answer.objection, changes
        assert len(answer.refused) == 1, changes
        assert not isinstance(answer.decided, Decided) or answer.decided.evictions == ()


def quotas() -> Scene:
    """A queue for two pods; two groups at its gate, each for two."""
    scene = Scene(build.node("n1", 8))
    scene.tell(PolicyLoaded(policy=ENQUEUEING, source="", text_sha256=""))
    scene.tell(QueueObserved(uid="q", name="default", rv=2, capability=LIMITED))
    return scene


def test_a_group_is_let_in_by_its_queue_only() -> None:
    scene = quotas()
    for name in ("a", "b"):
        need = (("pods", 2), ("cpu", 200))
        scene.tell(group(name, 2, phase="Pending", min_resources=need))
    honest = scene.proposal()
    assert [admission.code for admission in honest.admissions] == ["", "PromisedBefore"]
    forged = (Admission("default/a"), Admission("default/b"), Admission("default/none"))
    answer = scene.settle(msgspec.structs.replace(honest, admissions=forged))
    assert [part.about for part in answer.refused] == ["group default/b", "group default/none"]
    groups = scene.state.groups
    assert (groups["default/a"].admitted_seq > 0, groups["default/b"].admitted_seq) == (True, 0)
    assert scene.is_identical()


def test_nobody_is_placed_beyond_the_quota_of_its_queue() -> None:
    scene = quotas()
    for number in range(4):
        scene.tell(build.pod(f"p{number}", name=f"p{number}"))
    with_quota = scene.proposal()
    assert len(with_quota.placements) == 2
    scene.tell(QueueObserved(uid="q", name="default", rv=3))
    greedy = scene.proposal()
    assert len(greedy.placements) == 4
    scene.tell(QueueObserved(uid="q", name="default", rv=4, capability=LIMITED))
    answer = scene.settle(greedy)
    assert "quota" in answer.objection
    assert len(scene.placed()) == 2
    assert scene.is_identical()


def test_a_gang_is_not_placed_in_part() -> None:
    scene = Scene(build.node("n1", 4))
    scene.gang("a", 3)
    honest = scene.proposal()
    assert len(honest.placements) == 3
    some = msgspec.structs.replace(honest, placements=honest.placements[:1], wholes=())
    loose = msgspec.structs.replace(honest, wholes=())
    for forged in (some, loose):
        answer = scene.deciding.decide(forged, 0, STAGE)
        assert isinstance(answer.decided, Decided)
        assert answer.decided.wholes == honest.wholes
        assert len(answer.decided.placements) == 3


def test_a_group_that_is_not_admitted_gets_nothing() -> None:
    scene = quotas()
    need = (("pods", 9), ("cpu", 900))
    scene.tell(group("a", 1, phase="Inqueue", min_resources=need))
    scene.pods("a", 1)
    early = scene.proposal()
    assert early.placements
    scene.tell(group("a", 1, phase="Pending", min_resources=need, rv=2))
    answer = scene.settle(early)
    assert "its group is not admitted" in answer.objection
    assert scene.placed() == set()
    assert scene.is_identical()


FORGED: dict[str, dict[str, Any]] = {
    "holds for nobody": {"holds": (Held("default/low", 1, ("n1",), ""),)},
    "nominations": {"nominations": (Nomination("equal-w-0", "default", "x", "n1", "default/x"),)},
    "a group that has nobody waiting": {
        "shorts": (Short("default/low", "", "x", 1, 1, 0, tried=True),)
    },
    "a group that nobody knows": {"shorts": (Short("a/b", "", "x", 1, 1, 0, tried=True),)},
    "another policy": {"policy": 1_000},
    "rules that are not known yet": {"rules": RULES + 1},
    "another pod's name": {
        "refusals": (Refusal("equal-w-0", "kube-system", "dns", 1, (("InsufficientCPU", 1),)),)
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_what_else_may_be_forged(name: str) -> None:
    scene = contest()
    scene.job("equal", 1)
    honest = scene.proposal()
    answer = scene.settle(msgspec.structs.replace(honest, **FORGED[name]))
    assert answer.objection
    made = answer.decided
    assert isinstance(made, Decided)
    assert made.refusals == honest.refusals
    assert (made.holds, made.nominations, made.shorts) == (None, (), honest.shorts)
    assert scene.is_identical()


def test_a_placement_under_another_pods_name_does_not_stand() -> None:
    """The Binding would go to the pod of that name."""
    scene = Scene(build.node("n1", 2))
    scene.tell(build.pod("a", name="a"))
    honest = scene.proposal()
    wrong = msgspec.structs.replace(honest.placements[0], namespace="other", name="b")
    answer = scene.settle(msgspec.structs.replace(honest, placements=(wrong,)))
    assert answer.decided == "conflict"


@pytest.mark.parametrize("whole", [True, False])
def test_part_of_a_sub_group_is_not_believed(whole: bool) -> None:
    """The minimum runs; a forger places one pod of another partition, called a whole or not."""
    scene = Scene(build.node("n1", 6))
    scene.tell(group("a", 2, sub_groups=halves(2, 1)))
    uids = in_parts(scene, "xxyyzz")
    honest = scene.proposal()
    assert len(honest.placements) == 6
    five = honest.placements[:5]
    wholes = (tuple(p.uid for p in five),) if whole else (tuple(uids[:2]),)
    forged = msgspec.structs.replace(honest, placements=five, wholes=wholes)
    expected = "is not placed as a whole" if whole else "has to be placed as a whole"
    assert expected in objection(Rounds(scene.state), forged, five)
    scene.settle(forged)
    assert scene.placed() == set(uids), "the binder ran the round itself"
    assert scene.is_identical()


def test_a_refusal_for_no_reason_that_there_is_is_not_believed() -> None:
    scene = Scene(build.node("n1", 1), build.pod("p"))
    for forged in (
        Refusal("p", "default", "pod-p", 1, (("\x1b[31mOwned", 1),)),
        Refusal("p", "default", "pod-p", 0, (), Problem("Pay1BTC", "", "call 555")),
    ):
        answer = scene.settle(scene.proposal("p", placements=(), refusals=(forged,)))
        assert "which is no reason" in answer.objection
        assert isinstance(answer.decided, Decided)
        assert forged not in answer.decided.refusals
        scene = Scene(build.node("n1", 1), build.pod("p"))
