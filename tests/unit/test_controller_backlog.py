"""Which pods go without a PodGroup for a while, and for how long."""

import msgspec
import pytest

from allotment_controller.backlog import (
    BURST_MIN,
    CATCH_UP_EVERY_S,
    RECHECK_S,
    WAIT_MOST_S,
    Backlog,
    Place,
)
from allotment_controller.objects import Condition, PodObject

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}


def pod(name: str = "p", *, node: str = "", **more: object) -> PodObject:
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, **more},
        "spec": {"schedulerName": "allotment", "nodeName": node or None},
        "status": {"phase": "Pending"},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=PodObject)


def place(number: int) -> Place:
    return "ns", f"p{number}"


def observe(backlog: Backlog, number: int, found: PodObject, now_s: float = 0.0) -> None:
    backlog.observe(place(number), found, found.glimpse(), now_s)


def full(pods: int = BURST_MIN) -> Backlog:
    backlog = Backlog()
    for number in range(pods):
        observe(backlog, number, pod(f"p{number}"))
    return backlog


def test_few_pods_get_their_podgroups_at_once() -> None:
    backlog = full(BURST_MIN - 1)
    assert backlog.delay_s(place(0), 0.0) == 0.0


def test_in_a_burst_they_wait_but_not_for_ever() -> None:
    backlog = full()
    assert backlog.delay_s(place(0), 0.0) == RECHECK_S
    assert backlog.delay_s(place(0), WAIT_MOST_S - RECHECK_S / 2) == RECHECK_S / 2
    assert backlog.delay_s(place(0), WAIT_MOST_S) == 0.0


def test_who_waited_gets_one_after_the_other_and_keeps_its_turn() -> None:
    backlog = full()
    for number in range(3):
        assert backlog.delay_s(place(number), 0.0) > 0.0
    backlog.forget(place(3))
    turns = [backlog.delay_s(place(number), 100.0) for number in (0, 1, 2, 1, 4)]
    assert turns == pytest.approx(
        [0.0, CATCH_UP_EVERY_S, 2 * CATCH_UP_EVERY_S, CATCH_UP_EVERY_S, 0]
    )
    assert backlog.delay_s(place(2), 200.0) == 0.0


def test_a_pod_that_is_bound_or_refused_or_gone_is_no_longer_in_the_backlog() -> None:
    backlog = full(BURST_MIN + 2)
    observe(backlog, 0, pod("p0", node="n1"))
    refused = pod("p1")
    refused.status.conditions = [Condition("PodScheduled", "False")]
    observe(backlog, 1, refused)
    assert backlog.delay_s(place(2), 0.0) == RECHECK_S
    backlog.forget(place(2))
    backlog.forget(place(2))
    assert backlog.delay_s(place(3), 0.0) == 0.0


def test_seen_again_a_pod_counts_once_and_keeps_its_age() -> None:
    backlog = full(BURST_MIN - 1)
    observe(backlog, 0, pod("p0"), now_s=5.0)
    assert backlog.delay_s(place(0), 5.0) == 0.0
    observe(backlog, BURST_MIN, pod("another"), now_s=5.0)
    assert backlog.delay_s(place(0), WAIT_MOST_S) == 0.0
    assert backlog.delay_s(place(BURST_MIN), WAIT_MOST_S) == RECHECK_S
