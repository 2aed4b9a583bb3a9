"""Which pods go without a PodGroup for a while, and for how long."""

from typing import Any

import msgspec
import pytest

from allotment.core.jobs import keys
from allotment_controller.crowd import (
    CATCH_UP_EVERY_S,
    CROWD,
    LOOK_AGAIN_S,
    WAIT_MOST_S,
    Crowd,
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


def look(crowd: Crowd, number: int, found: PodObject, now_s: float = 0.0) -> None:
    crowd.look(place(number), found, found.glimpse(), now_s)


def full(pods: int = CROWD) -> Crowd:
    crowd = Crowd()
    for number in range(pods):
        look(crowd, number, pod(f"p{number}"))
    return crowd


def test_few_pods_get_their_podgroups_at_once() -> None:
    crowd = full(CROWD - 1)
    assert crowd.delay_s(place(0), 0.0) == 0.0


def test_in_a_crowd_they_wait_but_not_for_ever() -> None:
    crowd = full()
    assert crowd.delay_s(place(0), 0.0) == LOOK_AGAIN_S
    assert crowd.delay_s(place(0), WAIT_MOST_S - LOOK_AGAIN_S / 2) == LOOK_AGAIN_S / 2
    assert crowd.delay_s(place(0), WAIT_MOST_S) == 0.0


def test_who_waited_gets_one_after_the_other_and_keeps_its_turn() -> None:
    crowd = full()
    for number in range(3):
        assert crowd.delay_s(place(number), 0.0) > 0.0
    crowd.forget(place(3))
    turns = [crowd.delay_s(place(number), 100.0) for number in (0, 1, 2, 1, 4)]
    assert turns == pytest.approx(
        [0.0, CATCH_UP_EVERY_S, 2 * CATCH_UP_EVERY_S, CATCH_UP_EVERY_S, 0]
    )
    assert crowd.delay_s(place(2), 200.0) == 0.0


def test_a_pod_that_is_bound_or_refused_or_gone_is_in_the_crowd_no_more() -> None:
    crowd = full(CROWD + 2)
    look(crowd, 0, pod("p0", node="n1"))
    refused = pod("p1")
    refused.status.conditions = [Condition("PodScheduled", "False")]
    look(crowd, 1, refused)
    assert crowd.delay_s(place(2), 0.0) == LOOK_AGAIN_S
    crowd.forget(place(2))
    crowd.forget(place(2))
    assert crowd.delay_s(place(3), 0.0) == 0.0


def test_seen_again_a_pod_counts_once_and_keeps_its_age() -> None:
    crowd = full(CROWD - 1)
    look(crowd, 0, pod("p0"), now_s=5.0)
    assert crowd.delay_s(place(0), 5.0) == 0.0
    look(crowd, CROWD, pod("another"), now_s=5.0)
    assert crowd.delay_s(place(0), WAIT_MOST_S) == 0.0
    assert crowd.delay_s(place(CROWD), WAIT_MOST_S) == LOOK_AGAIN_S


@pytest.mark.parametrize(
    "more",
    [
        {"ownerReferences": [OWNER]},
        {"annotations": {keys.POD_QUEUE: "q"}},
        {"annotations": {keys.PREEMPTABLE: "true"}},
        {"labels": {keys.PREEMPTABLE: "true"}},
    ],
)
def test_a_pod_whose_podgroup_says_more_than_the_pod_never_waits(more: dict[str, Any]) -> None:
    crowd = full()
    odd = pod("odd", **more)
    look(crowd, CROWD, odd)
    assert crowd.delay_s(place(CROWD), 0.0) == 0.0


def test_a_pod_whose_namespace_names_a_queue_never_waits() -> None:
    crowd = full()
    odd = pod("odd")
    crowd.look(place(CROWD), odd, odd.glimpse(), 0.0, "default")
    assert crowd.delay_s(place(CROWD), 0.0) > 0.0
    crowd.look(place(CROWD), odd, odd.glimpse(), 0.0, "q")
    assert crowd.delay_s(place(CROWD), 0.0) == 0.0
