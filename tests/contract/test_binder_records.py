"""Records of pods that ended unserved: found, in the way, and erased."""

from pathlib import Path
from typing import Any

import pytest
from tests.build import decided, holding, node, placement, pod, policy, state_of
from tests.contract.kube_server import client_of, hang_up, refuse, reply, scripted

from allotment.core.state import apply
from allotment_binder.pacing import bindable
from allotment_binder.records import Unserved, erase, unserved
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


def test_only_an_ended_pod_with_an_unserved_record_is_in_the_way() -> None:
    assert unserved(rejected()) == ("n1", ("vgpu", "devices", 1))
    assert unserved(rejected(phase="Succeeded")) == ("n1", ("vgpu", "devices", 1))
    assert unserved(rejected(phase="Pending")) is None
    assert unserved(rejected(bind_phase="success")) is None
    assert unserved(rejected(bind_phase="failed")) is None
    assert unserved(rejected(node="")) is None
    assert unserved(rejected(holdings=())) is None
    # The plugin for shared memory looks at the phase, and passes over ended pods by itself.
    assert unserved(rejected(holdings=(Holding("gpushare", 0, "0", 10, 0),))) is None


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
        script.then(hang_up, refuse(403, "Forbidden", "may not patch"), reply({}))
        await erase(client, "default", "dead", "uid-1", problems.append)
        assert len(problems) == 2
        assert problems[1] == "may not patch"
        assert script.requests[2].path == "/api/v1/namespaces/default/pods/dead/status"
        assert script.bodies[2] == {
            "metadata": {
                "uid": "uid-1",
                "annotations": {
                    "volcano.sh/devices-to-allocate": "",
                    "volcano.sh/bind-phase": "failed",
                },
            }
        }
        for gone in (404, 409):
            script.then(refuse(gone, "Gone"))
            await erase(client, "default", "dead", "uid-1", problems.append)
    assert len(problems) == 2
