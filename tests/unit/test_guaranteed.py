"""A guarantee that is larger than the cluster is named wherever somebody else waits for it."""

from typing import Any, cast

import pytest

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import findings
from allotment.core.explain.queue import explain_queue
from allotment_binder.notices import Notices, Warned
from allotment_binder.troubles import Troubles
from allotment_proto.facts import Problem
from tests import build
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.rounds_world import World, group

CPU_8 = build.node("n1", 0, cpu_milli=8_000)
GREEDY = queue("greedy", guarantee=(("cpu", 10_000_000),))
SAID = "queue greedy is guaranteed 10000 cpu, and the cluster has 8"


class Told(list[Warned]):
    """Collects notices."""

    def put(self, notice: Warned) -> None:
        self.append(notice)


def test_a_pod_of_another_queue_is_told_whose_guarantee_it_is() -> None:
    world = World(CPU_8, GREEDY, policy=GATED)
    world.tell(lone("a"))
    world.decide()
    why = Whys(world.state).of(world.state.pods["a"])
    assert why.code == "QueueQuotaInsufficient"
    assert why.text == f"queue default is at its limit: 0 of 0 cpu in use, 2 requested; {SAID}"
    (group_,) = explain_queue(world.state, "default", 0).waiting
    assert group_.reason is not None
    assert SAID in group_.reason.message


def test_doctor_names_the_queue_and_what_follows_from_it() -> None:
    world = World(CPU_8, GREEDY, policy=GATED)
    (found,) = findings(world.state, 0)
    assert (found.code, found.subject) == ("GuaranteeTooLarge", "queue greedy")
    assert found.message == f"{SAID}: other queues get no cpu"
    world.tell(lone("a"))
    world.decide()
    waits = next(one for one in findings(world.state, 0) if one.code == "QueueQuotaInsufficient")
    assert waits.message == f"pod default/pod-a waits for its quota; {SAID}"


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ({"a": 6_000, "b": 4_000}, "queues are guaranteed 10 cpu together (a 6, b 4), and the"),
        ({"a": 6_000, "b": 2_000}, ""),
        ({}, ""),
    ],
)
def test_guarantees_count_together(queues: dict[str, int], said: str) -> None:
    guarantees = [queue(name, guarantee=(("cpu", n),)) for name, n in queues.items()]
    world = World(CPU_8, *guarantees, policy=GATED)
    found = [one.message for one in findings(world.state, 0)]
    assert len(found) == bool(said)
    assert "".join(found).startswith(said)


def test_what_a_queue_may_have_itself_is_no_fault_of_others() -> None:
    world = World(CPU_8, queue("other", guarantee=(("cpu", 1_000),)), policy=GATED)
    world.tell(queue("default", rv=9, capability=(("cpu", 1_000),)))
    world.tell(lone("a"))
    world.decide()
    assert "guaranteed" not in Whys(world.state).of(world.state.pods["a"]).text


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"guarantee": (("cpu", 10_000_000),)}, "GuaranteeTooLarge", SAID),
        (
            {"problem": Problem("UnknownField", "spec.capabilty", "is not a field of a Queue")},
            "UnknownField",
            "spec.capabilty is not a field of a Queue",
        ),
    ],
)
def test_a_queue_hears_of_it_when_it_is_created_and_once(
    changes: dict[str, Any], reason: str, says: str
) -> None:
    told, world = Told(), World(CPU_8, policy=GATED)
    troubles = Troubles(cast(Notices, told))
    troubles.begin(world.state)
    for rv in (2, 3):
        fact = queue("greedy", rv=rv, weight=rv, **changes)
        world.tell(fact)
        troubles.look_at_object(world.state, fact)
    (warned,) = told
    assert (warned.kind, warned.namespace, warned.name) == ("Queue", "", "greedy")
    assert warned.reason == reason
    assert warned.message.startswith(says)
    troubles.begin(world.state)
    troubles.look_at_object(world.state, fact)
    assert len(told) == 1


def test_a_group_hears_of_a_field_that_does_not_exist() -> None:
    told, world = Told(), World(CPU_8, policy=GATED)
    troubles = Troubles(cast(Notices, told))
    troubles.begin(world.state)
    problem = Problem("UnknownField", "spec.minMembers", "is not a field of a PodGroup")
    fact = group("g", 2, problem=problem)
    world.tell(fact)
    troubles.look_at_object(world.state, fact)
    (warned,) = told
    assert (warned.kind, warned.namespace, warned.name) == ("PodGroup", "default", "g")
