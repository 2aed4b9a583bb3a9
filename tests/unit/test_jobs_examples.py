"""The worked examples of the rules for Jobs and PodGroups, by name."""

import pytest

from allotment.core.jobs import minimum
from allotment.core.jobs.groups import Members, phase_of
from allotment.core.jobs.machine import Counts, settle
from tests.unit.jobs_parts import Json, at, job, look, phase_in, pod, spec, task, template

PS_AND_WORKERS = (
    task("ps", 2, minAvailable=1, template=template({"cpu": "1"})),
    task("worker", 4, minAvailable=4, template=template({"cpu": "2", "nvidia.com/gpu": "1"})),
)


@pytest.mark.parametrize(("least", "cpu", "gpu"), [(3, "4", "1"), (5, "9", "4"), (6, "10", "4")])
def test_ex_minres(least: int, cpu: str, gpu: str) -> None:
    amounts = minimum.of_job(spec(*PS_AND_WORKERS, minAvailable=least), {})
    assert amounts["cpu"] == amounts["requests.cpu"] == cpu
    assert amounts["nvidia.com/gpu"] == amounts["requests.nvidia.com/gpu"] == gpu
    assert amounts["pods"] == str(least)


def test_ex_minres_by_priority() -> None:
    important = template({"cpu": "2"}, priorityClassName="high")
    roles = spec(task("a", 2), task("b", 2, template=important), minAvailable=3)
    assert minimum.pods_counted(roles, {"high": 9}) == {"a": 1, "b": 2}
    assert minimum.pods_counted(roles, {}) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("containers", "init", "cpu"), [(("1", "1"), "3", "3"), (("2", "2"), "3", "4")]
)
def test_ex_pod(containers: tuple[str, ...], init: str, cpu: str) -> None:
    def of(amount: str) -> Json:
        return {"resources": {"requests": {"cpu": amount}}}

    body = {"containers": [of(amount) for amount in containers], "initContainers": [of(init)]}
    assert minimum.of_pods(body, 1)["cpu"] == cpu


def test_what_a_pod_asks_itself_is_what_its_group_needs() -> None:
    body = {
        "resources": {"requests": {"cpu": "12"}, "limits": {"memory": "4Gi"}},
        "overhead": {"cpu": "500m", "memory": "1Gi"},
        "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
    }
    found = minimum.of_pods(body, 2)
    assert found["cpu"] == found["requests.cpu"] == "25"
    assert found["memory"] == found["limits.memory"] == "10Gi"
    assert found["limits.cpu"] == "5"


def test_what_a_group_needs_is_spelled_as_kubernetes_spells_it() -> None:
    """Memory in binary suffixes stays so; what is written in decimal, or as a plain number, too."""
    roles = spec(
        task("none", 1, template=template({"memory": "0"})),
        task("a", 2, template=template({"memory": "256Mi", "cpu": "0.5", "x.io/chip": "500"})),
        task("b", 1, template=template({"memory": "1G", "ephemeral-storage": "2000M"})),
    )
    assert minimum.of_job(roles, {}) == {
        "count/pods": "4",
        "cpu": "1",
        "ephemeral-storage": "2G",
        "memory": str((512 << 20) + 10**9),
        "pods": "4",
        "requests.cpu": "1",
        "requests.ephemeral-storage": "2G",
        "requests.memory": str((512 << 20) + 10**9),
        "requests.x.io/chip": "1k",
        "x.io/chip": "1k",
    }
    assert minimum.of_job(spec(task("a", 4, template=template({"memory": "256Mi"}))), {}) == {
        "count/pods": "4",
        "memory": "1Gi",
        "pods": "4",
        "requests.memory": "1Gi",
    }


def test_a_sidecar_runs_beside_all_that_comes_after_it() -> None:
    body = {
        "containers": [{"resources": {"limits": {"cpu": "1", "volcano.sh/vgpu-number": 2}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
            {"resources": {"requests": {"cpu": "2"}}},
        ],
        "overhead": {"cpu": "250m"},
    }
    assert minimum.of_pods(body, 2) == {
        "count/pods": "2",
        "cpu": "5500m",
        "limits.cpu": "2500m",
        "pods": "2",
        "requests.cpu": "5500m",
        "requests.volcano.sh/vgpu-number": "4",
        "volcano.sh/vgpu-number": "4",
    }


def test_ex_retry() -> None:
    """maxRetry 3: two restarts have an effect, the third fails the Job."""
    worker = task(policies=[{"event": "PodFailed", "action": "RestartJob"}])
    ends = []
    for retried in (0, 1, 2):
        running = job(worker, status=at("Running", retryCount=retried), maxRetry=3)
        restarted = look(running, pod("worker-0", "Failed"))
        assert phase_in(restarted, running) == "Restarting"
        assert restarted.status["retryCount"] == retried + 1
        restarting = job(worker, status=at("Restarting", retryCount=retried + 1), maxRetry=3)
        ends.append(phase_in(look(restarting, group=None), restarting))
    assert ends == ["Pending", "Pending", "Failed"]


@pytest.mark.parametrize(
    ("before", "members", "unschedulable", "phase"),
    [
        ("Inqueue", Members(bound=3), False, "Running"),
        ("Running", Members(running=2), True, "Unknown"),
        ("Running", Members(succeeded=3), False, "Completed"),
        ("Running", Members(running=1, succeeded=2), False, "Running"),
        ("Inqueue", Members(), False, "Inqueue"),
        ("Running", Members(), False, "Pending"),
        ("Running", Members(succeeded=2, failed=1), False, "Completed"),
    ],
)
def test_ex_phase(before: str, members: Members, unschedulable: bool, phase: str) -> None:
    assert phase_of(before, 3, members, is_unschedulable=unschedulable) == phase


def test_a_job_scaled_to_nothing_keeps_its_phase() -> None:
    assert settle("Running", spec(task(replicas=0)), Counts(), 0) == "Running"
