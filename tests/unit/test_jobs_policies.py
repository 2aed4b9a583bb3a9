"""Which policy answers to what: precedence, versions, exit codes, time limits."""

from typing import Any

import pytest

from allotment.core.jobs.policies import Happened, answer, choose, due_actions, happenings
from tests.unit.jobs_parts import NOW, at, job, look, phase_in, pod, spec, task


def on(event: str, action: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "action": action, **more}


def action_for(happened: Happened, *tasks: Any, version: int = 0, **fields: Any) -> str:
    policy = answer(spec(*tasks, **fields), happened, version)
    return policy.action if policy else ""


FAILED = Happened("PodFailed", "worker", "j-worker-0", exit_code=3)


def test_a_roles_policy_comes_before_the_jobs() -> None:
    worker = task(policies=[on("PodFailed", "RestartTask")])
    job_policy = [on("PodFailed", "AbortJob")]
    assert action_for(FAILED, worker, policies=job_policy) == "RestartTask"
    assert action_for(FAILED, task(), policies=job_policy) == "AbortJob"
    other = Happened("PodFailed", "ps", "j-ps-0")
    assert action_for(other, worker, task("ps"), policies=job_policy) == "AbortJob"


def test_a_role_without_an_answer_leaves_it_to_the_job() -> None:
    worker = task(policies=[on("PodEvicted", "RestartTask")])
    assert action_for(FAILED, worker, policies=[on("*", "TerminateJob")]) == "TerminateJob"
    assert action_for(FAILED, worker) == ""


def test_the_first_of_a_list_counts_and_lists_of_events_do() -> None:
    policies = [
        {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"},
        on("TaskCompleted", "CompleteJob"),
    ]
    assert action_for(FAILED, task(), policies=policies) == "RestartJob"


@pytest.mark.parametrize(("code", "action"), [(3, "RestartJob"), (4, "")])
def test_exit_codes(code: int, action: str) -> None:
    policies = [{"exitCode": code, "action": "RestartJob"}]
    assert action_for(FAILED, task(), policies=policies) == action
    evicted = Happened("PodEvicted", "worker", "j-worker-0", exit_code=code)
    assert action_for(evicted, task(), policies=policies) == ""


def test_what_happened_to_an_older_version_is_nobodys_concern() -> None:
    policies = [on("*", "RestartJob")]
    assert action_for(FAILED, task(), policies=policies, version=1) == ""
    running = job(task(replicas=2), policies=policies, status=at("Running", version=1))
    made = look(running, pod("worker-0", "Failed", version=0), pod("worker-1", version=1))
    assert "version" not in made.status
    assert phase_in(made, running) == "Running"


def test_a_star_does_not_restart_a_job_because_its_pods_wait() -> None:
    waiting = Happened("PodPending", "worker", "j-worker-0")
    assert action_for(waiting, task(), policies=[on("*", "AbortJob")]) == ""
    assert action_for(waiting, task(), policies=[on("*", "AbortJob", timeout="5m")]) == "AbortJob"


def test_what_is_seen_of_pods() -> None:
    roles = spec(task("ps", 1), task("worker", 2, maxRetry=3))
    pods = [
        pod("ps-0", "Succeeded"),
        pod("worker-0", "Failed", exit_code=137),
        pod("worker-1", "Pending", restarts=4),
        pod("worker-9", "Failed", is_marked=True),
    ]
    seen = {(h.event, h.role, h.pod, h.exit_code) for h in happenings(roles, pods, "Unknown", 0)}
    assert seen == {
        ("TaskCompleted", "ps", "", 0),
        ("PodFailed", "worker", "j-worker-0", 137),
        ("PodPending", "worker", "j-worker-1", 0),
        ("TaskFailed", "worker", "", 0),
        ("Unknown", "", "", 0),
    }


def test_an_unlimited_role_never_fails_by_restarts() -> None:
    roles = spec(task("worker", 1, maxRetry=-1))
    assert list(happenings(roles, [pod("worker-0", restarts=99)], "", 0)) == []


def test_a_time_limit_delays_and_is_void_when_the_pod_recovers() -> None:
    policies = [on("PodPending", "RestartPod", timeout="60s")]
    waiting = job(task(), policies=policies, status=at("Pending"))
    early = look(waiting, pod("worker-0", "Pending", changed_s=NOW.s - 10))
    assert phase_in(early, waiting) == "Pending"
    assert early.look_again_s == NOW.s + 50
    late = look(waiting, pod("worker-0", "Pending", changed_s=NOW.s - 60))
    assert phase_in(late, waiting) == "Restarting"
    recovered = look(waiting, pod("worker-0", "Running", changed_s=NOW.s - 60))
    assert phase_in(recovered, waiting) == "Running"
    assert recovered.look_again_s is None


def test_a_lost_pod_is_remembered_until_its_time_or_until_it_is_back() -> None:
    policies = [on("PodEvicted", "RestartJob", timeout="60s")]
    running = job(task(replicas=2), policies=policies, status=at("Running"))
    lost = Happened("PodEvicted", "worker", "j-worker-0", since_s=NOW.s - 5)
    waits = look(running, pod("worker-1"), happened=(lost,))
    assert waits.remember == (lost,)
    assert waits.look_again_s == NOW.s + 55
    back = look(running, pod("worker-0"), pod("worker-1"), happened=(lost,))
    assert back.remember == ()
    long_ago = Happened("PodEvicted", "worker", "j-worker-0", since_s=NOW.s - 60)
    acts = look(running, pod("worker-1"), happened=(long_ago,))
    assert phase_in(acts, running) == "Restarting"
    assert acts.remember == ()


def test_the_stronger_of_two_actions_takes_the_weaker_with_it() -> None:
    roles = spec(
        task("a", policies=[on("PodFailed", "RestartPod")]),
        task("b", policies=[on("PodFailed", "AbortJob")]),
    )
    failed = [Happened("PodFailed", role, f"j-{role}-0") for role in ("a", "b")]
    due = due_actions(roles, failed, 0)
    chosen = choose(due, NOW.s)
    assert chosen is not None
    assert chosen.action == "AbortJob"


def test_typical_policies_of_gpu_users() -> None:
    roles = (task("master", policies=[on("TaskCompleted", "CompleteJob")]), task("worker", 2))
    policies = [on("PodEvicted", "RestartJob"), on("PodFailed", "RestartTask")]
    running = job(*roles, policies=policies, status=at("Running"))
    all_there = [pod("master-0"), pod("worker-0"), pod("worker-1")]
    done = look(running, pod("master-0", "Succeeded"), *all_there[1:])
    assert phase_in(done, running) == "Completing"
    assert {view.name for view in done.end} == {"j-worker-0", "j-worker-1"}
    failed = look(running, *all_there[:2], pod("worker-1", "Failed"))
    assert phase_in(failed, running) == "Restarting"
    assert {view.name for view in failed.end} == {"j-worker-0", "j-worker-1"}
    lost = look(running, *all_there[:2], happened=(Happened("PodEvicted", "worker", "j-worker-1"),))
    assert phase_in(lost, running) == "Restarting"
    assert lost.status["version"] == 1
