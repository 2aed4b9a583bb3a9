"""Who is next, and who is worth another try."""

from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.state import apply
from allotment.core.queues.order import due, is_due
from allotment_proto.events import BindFailed, Dropped, PodGone, Refusal
from allotment_proto.facts import Problem
from tests import build


def test_priority_then_age_then_name() -> None:
    state = build.state_of(
        build.pod("d", created_ms=1, name="z"),
        build.pod("c", created_ms=1, name="a"),
        build.pod("b", created_ms=0),
        build.pod("a", created_ms=9, priority=5),
    )
    assert [pod.fact.uid for pod in due(state, {})] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (build.node("n2"), True),
        (build.policy(), True),
        (build.pod("b"), False),
        (build.pod("a", rv=2, priority=9), False),
        (build.pod("a", build.request(build.wants(1)), rv=2), True),
        (PodGone(uid="x", namespace="", name="", rv=2), True),
        (PodGone(uid="unknown", namespace="", name="", rv=2), False),
        (build.pod("x", rv=2, node="n1", phase="Succeeded"), True),
        (build.decided(build.placement("a", "n9")), True),
        (build.decided(build.placement("x")), False),
    ],
)
def test_what_wakes_a_refused_pod(event: Any, wakes: bool) -> None:
    state = build.state_of(build.node(), build.pod("x", node="n1"), build.pod("a"))
    tried = {"a": 3}
    assert due(state, tried) == []
    apply(state, event, 4)
    assert ("a" in [pod.fact.uid for pod in due(state, tried)]) == wakes


@pytest.mark.parametrize(
    "lost", ["dropped by the binder", "void in the fold", "none"], ids=lambda lost: lost
)
def test_who_was_refused_behind_a_placement_that_did_not_stand(lost: str) -> None:
    """The pod lacked what that placement was to take."""
    state = build.state_of(build.node(), build.pod("a"), build.pod("b"))
    refusal = Refusal("b", "default", "pod-b", 1, ((reasons.INSUFFICIENT_GPU_MEMORY, 1),))
    said: dict[str, Any] = {"batch": ("a", "b"), "refusals": (refusal,), "basis": 3}
    if lost == "dropped by the binder":
        event = build.decided(
            dropped=(Dropped(build.placement("a"), reasons.INSUFFICIENT_GPU_MEMORY),), **said
        )
    else:
        event = build.decided(build.placement("a", "n9" if lost != "none" else "n1"), **said)
    apply(state, event, 4)
    in_vain = {"a": 4, "b": 3}
    assert ("b" in [pod.fact.uid for pod in due(state, in_vain)]) == (lost != "none")
    again = build.decided(refusals=(refusal,), basis=4)
    apply(state, again, 5)
    assert due(state, {"a": 4, "b": 4}) == [], "it was tried again, and nothing happened since"


def test_a_failed_binding_wakes_the_pod_itself() -> None:
    state = build.state_of(build.node(), build.pod("a"), build.decided(build.placement("a")))
    failed = BindFailed(
        uid="a", namespace="", name="", node="n1", decision=3, code="APIError", message=""
    )
    apply(state, failed, 4)
    assert [pod.fact.uid for pod in due(state, {"a": 2})] == ["a"]
    assert state.pods["a"].bind_failures == 1


def test_the_log_remembers_tries_for_a_restarted_service() -> None:
    state = build.state_of(build.pod("a"))
    refusal = build.decided(refusals=(Refusal("a", "default", "pod-a", 0, ()),), basis=1)
    apply(state, refusal, 2)
    assert due(state, {}) == []
    apply(state, build.node(), 3)
    assert len(due(state, {})) == 1


def test_a_problem_waits_for_the_pod_to_change() -> None:
    problem = Problem("InvalidRequest", "", "")
    state = build.state_of(build.pod("a", problem=problem))
    pod = state.pods["a"]
    assert is_due(state, pod, 0)
    apply(state, build.node(), 2)
    assert not is_due(state, pod, 1)
    apply(state, build.pod("a", rv=2, problem=Problem("InvalidRequest", "", "other")), 3)
    assert is_due(state, pod, 1)


def refused_for(*codes: str) -> Any:
    counts = tuple((code, 1) for code in codes)
    return build.decided(refusals=(Refusal("a", "default", "pod-a", len(codes), counts),), basis=3)


def test_what_no_room_cures_is_not_asked_again_when_a_pod_ends() -> None:
    """Else each pod that fits nowhere would cost a try whenever any pod ends."""
    start = (build.node(), build.pod("x", node="n1"), build.pod("a"))
    room = PodGone(uid="x", namespace="", name="", rv=2)
    for codes, wakes in (
        ((reasons.SELECTOR_MISMATCH, reasons.NO_GPU), False),
        ((reasons.SELECTOR_MISMATCH, reasons.INSUFFICIENT_CPU), True),
        ((reasons.NO_GPU, reasons.NOT_ENOUGH_GPUS_ON_NODE), True),  # counted cards may be in use
    ):
        state = build.state_of(*start, refused_for(*codes))
        apply(state, room, 5)
        assert bool(due(state, {})) == wakes
        apply(state, build.node("n2"), 6)
        assert len(due(state, {})) == 1
        assert bool(due(state, {"a": 6})) is False
        apply(state, build.policy(), 7)
        assert len(due(state, {"a": 6})) == 1
