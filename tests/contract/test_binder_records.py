"""Records of pods that ended unserved: found, in the way, and erased."""

from pathlib import Path
from typing import Any

import pytest
from tests.build import decided, holding, node, placement, pod, policy, state_of
from tests.contract.kube_server import client_of, hang_up, refuse, reply, scripted

from allotment.core.acknowledgement import LATE_AFTER_S, standing
from allotment.core.state import apply
from allotment_binder.pacing import bindable
from allotment_binder.records import HOLDS_MAX, PASSED_AFTER_S, Deleted, Unserved, erase
from allotment_proto.events import PodGone, PodObserved
from allotment_proto.facts import Holding


def rejected(**changes: Any) -> PodObserved:
    values = {
        "node": "n1",
        "phase": "Failed",
        "bind_phase": "allocating",
        "holdings": (holding("GPU-0"),),
        "rv": 2,
    }
    return pod("dead", **{**values, **changes})


PLACE = ("n1", ("vgpu", "devices", 1))


def test_only_a_pod_that_waits_no_more_and_left_its_record_is_in_the_way() -> None:
    assert standing(rejected(phase="Running")) == PLACE
    assert standing(rejected()) == ("n1", ("vgpu", "devices", 1))
    assert standing(rejected(phase="Succeeded")) == ("n1", ("vgpu", "devices", 1))
    assert standing(rejected(phase="Pending")) is None
    assert standing(rejected(bind_phase="success")) is None
    assert standing(rejected(bind_phase="failed")) is None
    assert standing(rejected(node="")) is None
    assert standing(rejected(holdings=())) is None
    # The plugin for shared memory looks at the phase, and passes over ended pods by itself.
    assert standing(rejected(holdings=(Holding("gpushare", 0, "0", 10, 0),))) is None


def test_until_it_is_erased_no_pod_that_could_be_mistaken_is_bound_there() -> None:
    state = state_of(policy(), node("n1"), node("n2"), rejected(), pod("a"), pod("b"), pod("two"))
    both = (holding("GPU-0"), holding("GPU-1"))
    apply(
        state,
        decided(
            placement("a", "n1", stamp_s=1),
            placement("b", "n2", stamp_s=1),
            placement("two", "n1", *both, stamp_s=2),
        ),
        8,
    )
    records = Unserved()
    records.begin(state)

    def free() -> list[str]:
        return [a.uid for a in bindable(state, (), records.places())]

    assert free() == ["b", "two"]
    apply(state, rejected(rv=3, bind_phase="failed"), 9)
    records.look(state, "dead")
    assert free() == ["a", "b", "two"]
    apply(state, rejected(rv=4), 10)
    records.look(state, "dead")
    assert free() == ["b", "two"]
    apply(state, PodGone(uid="dead", namespace="default", name="pod-dead", rv=4), 11)
    records.look(state, "dead")
    assert free() == ["a", "b", "two"]


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking")
async def test_erasing_goes_on_until_it_is_done_or_the_pod_is_gone(tmp_path: Path) -> None:
    problems: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(
            hang_up,
            refuse(403, "Forbidden", "may not patch"),
            reply({"metadata": {"resourceVersion": "17"}}),
        )
        assert await erase(client, rejected(), problems.append) == 17
        assert len(problems) == 2
        assert problems[1] == "may not patch"
        assert script.requests[2].path == "/api/v1/namespaces/default/pods/pod-dead/status"
        assert script.bodies[2] == {
            "metadata": {
                "uid": "dead",
                "annotations": {
                    "volcano.sh/devices-to-allocate": "",
                    "volcano.sh/bind-phase": "failed",
                },
            }
        }
        for gone in (404, 409):
            script.then(refuse(gone, "Gone"))
            assert await erase(client, rejected(), problems.append) == 0
    assert len(problems) == 2


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking")
async def test_a_pod_that_runs_is_not_said_to_have_failed(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply({}))
        assert await erase(client, rejected(phase="Running"), lambda text: None) == 0
        annotations = script.bodies[0]["metadata"]["annotations"]
        assert annotations["volcano.sh/bind-phase"] == "success"


def test_what_is_older_than_the_erasing_is_no_news() -> None:
    state = state_of(policy(), node("n1"), rejected(rv=5))
    records = Unserved()
    records.begin(state)
    assert records.places() == {PLACE}
    records.erased(state, "dead", 7)
    assert records.places() == frozenset()
    apply(state, rejected(rv=6, labels=(("a", "b"),)), 9)
    records.look(state, "dead")
    assert not records.pods
    apply(state, rejected(rv=8), 10)
    records.look(state, "dead")
    assert records.places() == {PLACE}


def test_an_owner_who_writes_a_record_anew_for_ever_keeps_nobody_waiting() -> None:
    state = state_of(policy(), node("n1"), rejected())
    records = Unserved()
    records.begin(state)
    for version in range(1, HOLDS_MAX + 1):
        assert records.places() == {PLACE}
        records.erased(state, "dead", version)
        apply(state, rejected(rv=version + 2), 9 + version)
        records.look(state, "dead")
    assert records.pods, "it is erased all the same"
    assert records.places() == frozenset()


def test_what_was_decided_is_in_the_way_too_whatever_the_annotations_say_now() -> None:
    other = ("n1", ("vgpu", "devices", 2))
    state = state_of(policy(), node("n1"), rejected())
    records = Unserved()
    records.look(state, "dead", other)
    assert records.places() == {PLACE, other}
    records.look(state, "dead")
    assert records.places() == {PLACE, other}


def test_the_place_of_a_deleted_pod_is_free_when_its_kubelet_is_past_it() -> None:
    now_s = 100.0
    served = {"a", "b"}
    deleted = Deleted(lambda: now_s)
    deleted.hold(PLACE, frozenset("ab"))
    assert deleted.places(served.__contains__) == {PLACE}
    now_s += PASSED_AFTER_S + 1
    served.discard("a")
    assert deleted.places(served.__contains__) == {PLACE}, "another is still before it"
    served.discard("b")
    assert deleted.places(served.__contains__) == {PLACE}, "its turn is now"
    assert deleted.left_s() == PASSED_AFTER_S
    now_s += PASSED_AFTER_S
    assert deleted.places(served.__contains__) == frozenset()
    assert deleted.left_s() == float("inf")


def test_nobody_waits_for_a_deleted_pod_for_ever() -> None:
    now_s = 100.0
    deleted = Deleted(lambda: now_s)
    deleted.hold(PLACE, frozenset("a"))
    assert LATE_AFTER_S > 120
    now_s += LATE_AFTER_S - 1
    assert deleted.places(lambda uid: True) == {PLACE}
    now_s += 1
    assert deleted.places(lambda uid: True) == frozenset()
