"""Containers with devices that fail as they start, read from what kubelet says."""

from typing import Any

import pytest

from allotment.core.ledger.model import ClusterState
from allotment_proto.events import PodObserved
from allotment_proto.observed import Death
from allotment_watcher.reported import Reported
from tests.build import pod
from tests.unit.kube_json import container, pod_json, seen

GPU = {"volcano.sh/vgpu-number": 1}
HOOK = "error running prestart hook #0: nvidia-container-cli: initialization error"
MISSING = 'exec: "nvidia-smi-typo": executable file not found in $PATH'


def ended(code: int = 1, seconds: int = 2, reason: str = "Error", **more: Any) -> dict[str, Any]:
    times = {"startedAt": "2026-01-02T03:04:05Z", "finishedAt": f"2026-01-02T03:04:{5 + seconds}Z"}
    return {"terminated": {"exitCode": code, "reason": reason, **times, **more}}


def waits(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def told(status: dict[str, Any], limits: Any = GPU, **of_pod: Any) -> PodObserved:
    made = pod_json(container("main", limits, image="team/train:1"), container("sidecar"))
    made["spec"]["nodeName"] = "n1"
    made["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", **status}]}
    made["status"] |= of_pod
    return seen(made)


@pytest.mark.parametrize(
    ("status", "died"),
    [
        ({"state": ended(1)}, Death("main", "Error", 1)),
        ({"state": ended(134, 10)}, Death("main", "Error", 134)),
        (
            {"state": waits("CrashLoopBackOff", "back-off 10s"), "lastState": ended(1)},
            Death("main", "Error", 1),
        ),
        ({"state": {"running": {}}, "lastState": ended(1)}, Death("main", "Error", 1)),
        (
            {"state": waits("RunContainerError", HOOK)},
            Death("main", "RunContainerError", 0, HOOK),
        ),
        (
            {"state": waits("CreateContainerError", "unresolvable CDI devices")},
            Death("main", "CreateContainerError", 0, "unresolvable CDI devices"),
        ),
        (
            {"state": ended(128, reason="StartError", message=HOOK)},
            Death("main", "StartError", 128, HOOK),
        ),
    ],
)
def test_a_container_with_devices_that_fails_as_it_starts_has_died(
    status: dict[str, Any], died: Death
) -> None:
    assert told(status).died == died


@pytest.mark.parametrize(
    "status",
    [
        {"state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}, "lastState": {}},
        {"state": ended(0, reason="Completed")},
        {"state": ended(1, 11)},
        {"state": ended(127)},
        {"state": ended(126)},
        {"state": ended(137, reason="OOMKilled")},
        {"state": ended(137)},
        {"state": ended(143)},
        {"state": ended(1, startedAt=None)},
        {"state": ended(1, startedAt="soon")},
        {"state": ended(128, reason="StartError", message=MISSING)},
        {"state": waits("CreateContainerConfigError", 'configmap "nvidia" not found')},
        {"state": waits("ImagePullBackOff", "no /dev/nvidia image")},
        {"state": None, "lastState": None},
        {"name": "sidecar", "state": ended(1)},
    ],
)
def test_what_is_its_owners_doing_or_no_failure_is_no_death(status: dict[str, Any]) -> None:
    assert told(status).died is None


def test_neither_is_what_kubelet_ended_nor_a_pod_without_devices() -> None:
    assert told({"state": ended(1)}, reason="Evicted", phase="Failed").died is None
    assert told({"state": ended(1)}, limits={"cpu": "1"}).died is None


def test_what_a_container_wrote_of_its_end_is_not_repeated() -> None:
    assert told({"state": ended(1, message="\x1b[31mpay")}).died == Death("main", "Error", 1)


def test_the_image_of_the_container_with_devices_is_told_cut() -> None:
    assert told({}).image == "team/train:1"
    assert told({}, limits={"cpu": "1"}).image == ""
    long = pod_json(container("main", GPU, image="x" * 9_000))
    assert seen(long).image == "x" * 256
    other = pod_json(container("main", GPU, image="i"), schedulerName="other")
    assert seen(other).image == ""


def test_a_crash_loop_is_one_piece_of_news() -> None:
    reported = Reported(ClusterState())
    reported.pods.seen(pod("a", rv=1, node="n1", phase="Running"))
    first = pod("a", rv=2, node="n1", phase="Running", died=Death("main", "Error", 1))
    again = pod("a", rv=3, node="n1", phase="Running", died=Death("main", "Error", 139))
    assert reported.pods.seen(first) == [first]
    assert reported.pods.seen(again) == []
