"""A Job's way under the controller: begun, suspended, restarted, scaled, finished, deleted."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from tests.contract.controller_scene import COMMANDS, JOB, JOBS, Scene, cluster, phase_of

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.result import KubeResult, Ok
from allotment.core.jobs.model import JsonObject, PodView
from allotment_controller import jobs
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.writes import create, end_pod
from allotment_local.apiserver.resources import PODS, ResourceKey

pytestmark = pytest.mark.anyio
EXAMPLES = sorted((Path(__file__).parents[2] / "deploy" / "examples" / "batch").glob("*.yaml"))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cluster(tmp_path) as made:
        yield made


async def test_a_job_from_its_beginning_to_its_end(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        (group,) = scene.groups()
        assert group["spec"]["minMember"] == 3
        assert group["spec"]["minResources"] == {
            "count/pods": "3",
            "memory": "768Mi",
            "pods": "3",
            "requests.memory": "768Mi",
            "requests.volcano.sh/vgpu-number": "3",
            "volcano.sh/vgpu-number": "3",
        }
        (owner,) = group["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["blockOwnerDeletion"]) == ("Job", True)
        config = scene.store.get(ResourceKey("", "configmaps"), "default", "j-svc")["data"]
        hosts = [f"j-worker-{n}.j" for n in range(3)]
        assert config == {
            "worker.host": "\n".join(hosts),
            "VC_WORKER_HOSTS": ",".join(hosts),
            "VC_WORKER_NUM": "3",
        }
        pods = scene.pods()
        env = {
            name: {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
            for name, pod in pods.items()
        }
        assert [env[f"j-worker-{n}"]["VC_TASK_INDEX"] for n in range(3)] == ["0", "1", "2"]
        assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"volcano"}
        secret = scene.store.get(ResourceKey("", "secrets"), "default", "j-ssh")
        assert set(secret["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
        spec = pods["j-worker-0"]["spec"]
        (keys,) = [volume for volume in spec["volumes"] if volume["name"] == "j-ssh"]
        projected = {item["key"]: item["path"] for item in keys["secret"]["items"]}
        assert projected == {name: f".ssh/{name}" for name in secret["data"]}
        mount = {"name": "j-ssh", "mountPath": "/root/.ssh", "subPath": ".ssh"}
        assert mount in spec["containers"][0]["volumeMounts"], "not the top of the volume"
        await scene.until(lambda: phase_of(scene.groups()[0]) == "Running", "the PodGroup runs")
        scene.run_pods("Succeeded")
        await scene.until(lambda: scene.phase() == "Completed", "it completes")
        await scene.until(lambda: not scene.groups(), "the PodGroup is gone")
        assert len(scene.pods()) == 3, "finished pods stay"
        status = scene.job()["status"]
        assert status["taskStatusCount"] == {"worker": {"phase": {"Succeeded": 3}}}
        passed = [condition["status"] for condition in status["conditions"]]
        assert passed == ["Pending", "Running", "Completed"]


SECRETS = ResourceKey("", "secrets")


def secret_of(scene: Scene) -> Any:
    return scene.store.get(SECRETS, "default", "j-ssh")


async def test_keys_are_made_once_and_stay(scene: Scene) -> None:
    """Not even another controller, or scaling, asks for more than to create the Secret."""
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        made = secret_of(scene)
    tasks = scene.job()["spec"]["tasks"]
    scene.store.merge_patch(
        JOBS, "default", "j", {"spec": {"tasks": [{**tasks[0], "replicas": 4}]}}
    )
    async with scene.controller():
        await scene.until(lambda: len(scene.pods()) == 4, "it is scaled")
    assert secret_of(scene) == made
    assert {verb for _, resource, verb in scene.asked if resource == "secrets"} == {"create"}


async def test_a_secret_that_is_not_the_jobs_is_left_alone_and_the_job_waits(scene: Scene) -> None:
    """Somebody's Secret has the name: it is not mounted, not changed, and the Job says so. Once it
    is deleted the Job goes on by itself.
    """
    precious = {"metadata": {"name": "j-ssh"}, "data": {"config": "UFJFQ0lPVVM="}}
    scene.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", **precious}))
    before = secret_of(scene)
    text = "Secret j-ssh exists already and is not the Job's"

    def says_so() -> bool:
        state = scene.job().get("status", {}).get("state", {})
        return text in state.get("message", "") and state["reason"] == "PluginError"

    async with scene.controller():
        scene.apply(JOB)
        await scene.until(says_so, "the Job says so")
        assert scene.pods() == {}
    told = len(scene.events("PluginError"))
    async with scene.controller():  # nor does another controller take it for the Job's
        await scene.until(lambda: len(scene.events("PluginError")) > told, "it is told again")
        assert (scene.pods(), secret_of(scene)) == ({}, before)
        scene.store.delete(SECRETS, "default", "j-ssh")
        await scene.runs(3)
    assert secret_of(scene)["data"]["config"] != before["data"]["config"]


async def test_a_secret_whose_making_was_not_answered_is_the_jobs(scene: Scene) -> None:
    """The status said before that the name was free; then the controller died."""
    scene.apply(JOB)
    async with scene.controller():
        await scene.until(lambda: scene.store.list(SECRETS)[0] != [], "the Secret is made")
    async with scene.controller():
        await scene.runs(3)


async def test_suspend_and_resume(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        scene.command("AbortJob", "j")
        await scene.until(lambda: scene.phase() == "Aborting", "it aborts")
        await scene.until(lambda: scene.phase() == "Aborted", "it is aborted")
        assert (scene.groups(), scene.pods()) == ([], {})
        scene.command("ResumeJob", "j")
        await scene.runs(3)
        assert scene.store.list(COMMANDS)[0] == []
        status = scene.job()["status"]
        assert (status["retryCount"], status["version"]) == (1, 2)
        assert {
            pod["metadata"]["annotations"]["volcano.sh/job-version"]
            for pod in scene.pods().values()
        } == {"2"}


async def test_an_evicted_pod_restarts_the_job_and_our_own_deletions_do_not(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        scene.store.delete(PODS, "default", "j-worker-1", grace_seconds=0)
        await scene.until(
            lambda: scene.phase() == "Restarting" or scene.job()["status"]["retryCount"], "restart"
        )
        await scene.until(lambda: len(scene.pods()) == 3, "new pods")
        await scene.runs(3)
        assert scene.job()["status"]["retryCount"] == 1
        assert len(scene.events("ExecuteAction")) == 1


async def test_scaling_and_the_lists_of_hosts(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        tasks = scene.job()["spec"]["tasks"]

        def hosts() -> list[str]:
            config = scene.store.get(ResourceKey("", "configmaps"), "default", "j-svc")["data"]
            names = list(config["worker.host"].split("\n"))
            assert config["VC_WORKER_HOSTS"] == ",".join(names)
            assert config["VC_WORKER_NUM"] == str(len(names))
            return names

        async def scale(replicas: int) -> None:
            spec = {"minAvailable": 2, "tasks": [{**tasks[0], "replicas": replicas}]}
            scene.store.merge_patch(JOBS, "default", "j", {"spec": spec})
            await scene.until(lambda: len(scene.pods()) == replicas, f"{replicas} pods")
            assert sorted(scene.pods()) == [f"j-worker-{n}" for n in range(replicas)]
            await scene.until(lambda: len(hosts()) == replicas, "the hosts follow")
            scene.run_pods()

        await scale(5)
        await scale(2)
        await scene.until(lambda: scene.groups()[0]["spec"]["minMember"] == 2, "the group follows")
        assert scene.job()["status"].get("retryCount") == 0


async def test_a_new_controller_goes_on_where_the_old_one_was(scene: Scene) -> None:
    scene.apply(JOB)
    async with scene.controller():
        await scene.until(lambda: len(scene.pods()) > 0, "first pods")
    scene.store.delete(PODS, "default", "j-worker-0", grace_seconds=0)
    async with scene.controller():
        await scene.runs(3)
    created = [pod["metadata"]["uid"] for pod in scene.pods().values()]
    async with scene.controller():
        await anyio.sleep(0.3)
    assert [pod["metadata"]["uid"] for pod in scene.pods().values()] == created
    assert scene.job()["status"]["retryCount"] == 0


@pytest.mark.parametrize("is_marked", [False, True])
async def test_a_pod_made_anew_under_the_name_of_one_that_is_to_end_stays(
    scene: Scene, is_marked: bool
) -> None:
    """Whoever decided that a pod must end decided it of that pod, not of its name."""
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    first = scene.store.create(PODS, "default", body)["metadata"]["uid"]
    scene.store.delete(PODS, "default", "p", grace_seconds=0)
    second = scene.store.create(PODS, "default", body)["metadata"]["uid"]
    old = PodView("p", first, "worker", 0, is_marked=is_marked)
    assert isinstance(await end_pod(scene.client, "default", old), Ok)
    there = scene.pods()["p"]["metadata"]
    assert (there["uid"], "deletionTimestamp" in there) == (second, False)
    new = PodView("p", second, "worker", 0, is_marked=is_marked)
    assert isinstance(await end_pod(scene.client, "default", new), Ok)
    scene.reap()
    assert scene.pods() == {}


async def test_a_failed_create_is_told_and_tried_again(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB.replace("restartPolicy: Never", "priorityClassName: later"))
        await scene.until(lambda: scene.events("FailedCreate"), "it is told")
        assert "no PriorityClass with name later" in scene.events("FailedCreate")[0]
        scene.apply(
            "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: later},"
            " value: 7}"
        )
        await scene.runs(3)


async def test_a_job_whose_pods_are_refused_is_tried_ever_more_seldom(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else anybody's Job that goes beyond a quota keeps the controller and the API server busy."""
    tries: list[str] = []

    async def counted(client: KubeClient, body: JsonObject) -> KubeResult:
        if body["kind"] == "Pod":
            tries.append(body["metadata"]["name"])
        return await create(client, body)

    monkeypatch.setattr(jobs, "create", counted)
    async with scene.controller():
        scene.apply(JOB.replace("restartPolicy: Never", "priorityClassName: never"))
        await scene.until(lambda: scene.events("FailedCreate"), "it is told")
        await anyio.sleep(3.0)
    assert 2 <= len(tries) / 3 <= 12, "each try is for three pods"


async def test_an_invalid_job_says_what_is_wrong_and_begins_when_it_is_mended(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(JOB.replace("minAvailable: 3", "minAvailable: 4"))
        await scene.until(lambda: scene.events("InvalidJob"), "it is told")
        state = scene.job()["status"]["state"]
        assert state["message"] == "spec.minAvailable: 4 is more than all replicas (3)"
        assert (scene.pods(), scene.groups()) == ({}, [])
        scene.store.merge_patch(JOBS, "default", "j", {"spec": {"minAvailable": 3}})
        await scene.runs(3)


def frameworks_job(plugins: str, *roles: str) -> str:
    tasks = [
        f"""
  - name: {role}
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers: [{{name: {role}, image: i}}]"""
        for role in roles
    ]
    return f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: j}}
spec:
  plugins: {plugins}
  tasks:{"".join(tasks)}
"""


async def test_jobs_with_plugins_of_frameworks_run(scene: Scene) -> None:
    """All that they need beside them is made, owned by the Job."""

    def names(resource: str) -> list[str]:
        return sorted(found["metadata"]["name"] for found in scene.store.list(key(resource))[0])

    def key(resource: str) -> ResourceKey:
        return ResourceKey("", resource)

    async with scene.controller():
        told = "{mpi: [--master=head], ray: [], tensorflow: [], hcclrank: [--master=head]}"
        scene.apply(frameworks_job(told, "head", "worker"))
        await scene.runs(2)
        assert names("services") == ["j", "j-head-svc"]
        assert (names("configmaps"), names("secrets")) == (["j-svc"], ["j-ssh"])
        for resource in ("services", "configmaps", "secrets"):
            for found in scene.store.list(key(resource))[0]:
                (owner,) = found["metadata"]["ownerReferences"]
                assert owner["uid"] == scene.job()["metadata"]["uid"]
        head, worker = (scene.pods()[f"j-{role}-0"] for role in ("head", "worker"))
        variables = {e["name"]: e.get("value") for e in head["spec"]["containers"][0]["env"]}
        assert variables["MPI_HOST"] == "j-worker-0.j"
        assert '"task":{"type":"head","index":0}' in (variables["TF_CONFIG"] or "")
        assert worker["metadata"]["annotations"]["hccl/rankIndex"] == "1"
        assert worker["spec"]["containers"][0]["command"][2].endswith("--address=j-head-0.j:6379")
        assert set(scene.job()["status"]["controlledResources"]) == {
            f"plugin-{name}" for name in ("hcclrank", "mpi", "ray", "ssh", "svc", "tensorflow")
        }


async def test_a_plugin_without_its_task_says_which_and_begins_when_it_is_named(
    scene: Scene,
) -> None:
    async with scene.controller():
        scene.apply(frameworks_job("{mpi: []}", "launcher", "worker"))
        await scene.until(lambda: scene.events("InvalidJob"), "it is told")
        assert scene.job()["status"]["state"]["message"] == (
            "spec.plugins[mpi]: there is no task 'master': name the master with --master=TASK"
        )
        told = {"spec": {"plugins": {"mpi": ["--master=launcher"]}}}
        scene.store.merge_patch(JOBS, "default", "j", told)
        await scene.runs(2)


async def test_a_jobs_topology_reaches_its_podgroup_and_unknown_tasks_are_named(
    scene: Scene,
) -> None:
    annotations = {
        "volcano.sh/task-topology-affinity": "worker",
        "volcano.sh/task-topology-anti-affinity": "ps",
        "volcano.sh/task-topology-task-order": "worker",
    }
    given = f"name: j, annotations: {json.dumps(annotations)}"
    async with scene.controller():
        scene.apply(JOB.replace("name: j", given, 1))
        await scene.runs(3)
        (group,) = scene.groups()
        assert annotations.items() <= group["metadata"]["annotations"].items()
        assert scene.events("NoEffect") == [
            "annotation volcano.sh/task-topology-anti-affinity names the task 'ps', which is none"
            " of the group's: worker; until that is mended the annotations"
            " volcano.sh/task-topology-* have no effect"
        ]


async def test_partitions_are_marked_and_restart_alone(scene: Scene) -> None:
    policy = "{totalPartitions: 3, partitionSize: 2, minPartitions: 2}"
    job = JOB.replace("minAvailable: 3", "queue: default").replace(
        "replicas: 3",
        f"replicas: 6\n    partitionPolicy: {policy}\n"
        "    policies: [{event: PodFailed, action: RestartPartition}]",
    )
    async with scene.controller():
        scene.apply(job)
        await scene.runs(6)
        (group,) = scene.groups()
        assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (4, {"worker": 4})
        (sub_groups,) = group["spec"]["subGroupPolicy"]
        assert (sub_groups["subGroupSize"], sub_groups["minSubGroups"]) == (2, 2)
        before = {name: pod["metadata"]["uid"] for name, pod in scene.pods().items()}
        labels = {name: pod["metadata"]["labels"] for name, pod in scene.pods().items()}
        assert [labels[name]["volcano.sh/partition-id"] for name in sorted(labels)] == list(
            "001122"
        )
        assert scene.events("NoEffect") == []
        scene.run_pods("Failed", "j-worker-3")

        def anew() -> set[str]:
            found = {name: pod["metadata"]["uid"] for name, pod in scene.pods().items()}
            return {name for name, uid in found.items() if uid != before[name]}

        await scene.until(lambda: anew() == {"j-worker-2", "j-worker-3"}, "its partition is new")
        await scene.runs(6)
        assert anew() == {"j-worker-2", "j-worker-3"}


async def test_a_job_far_too_large_does_not_hold_up_others(scene: Scene) -> None:
    """Neither when it is made nor when it is restarted: nothing is built of its 2·10⁹ pods."""
    huge = JOB.replace("minAvailable: 3", "minAvailable: 1").replace("name: j}", "name: huge}")
    async with scene.controller():
        scene.apply(huge.replace("replicas: 3", "replicas: 2000000000\n    minAvailable: 1"))
        await scene.until(lambda: scene.events("InvalidJob"), "it is told")
        assert scene.job("huge")["status"]["state"]["message"] == (
            "spec.tasks: 2000000000 replicas in all are too many (at most 100000)"
        )
        scene.command("RestartJob", "huge")
        await scene.until(lambda: scene.job("huge")["status"].get("retryCount") == 1, "restarted")
        await scene.until(lambda: scene.phase("huge") == "Pending", "and waits again")
        scene.apply(JOB)
        await scene.runs(3)
        assert {group["metadata"]["labels"]["volcano.sh/job-name"] for group in scene.groups()} == {
            "j"
        }


async def test_a_large_job_does_not_hold_up_others(scene: Scene) -> None:
    """Its pods are made some at a time, and what each of their changes costs does not grow."""
    large = yaml.safe_load(JOB)
    large["metadata"]["name"] = "large"
    large["spec"] |= {"plugins": {}, "minAvailable": 1}
    large["spec"]["tasks"][0]["replicas"] = 5_000
    async with scene.controller() as controller:
        looks = 0
        pods_of_job = controller.known.pods_of_job

        def counted(uid: str) -> list[Any]:
            nonlocal looks
            looks += 1
            return pods_of_job(uid)

        controller.known.pods_of_job = counted  # type: ignore[method-assign]
        scene.store.create(JOBS, "default", large)
        await scene.until(lambda: len(scene.pods()) > 50, "it has begun")
        scene.apply(JOB)
        await scene.until(
            lambda: sum(name.startswith("j-") for name in scene.pods()) == 3, "the other's pods"
        )
        made = len(scene.pods())
        assert made < 1_500
        assert looks < made / 2, "not for each pod's change"


async def test_a_finished_job_is_deleted_after_its_time(scene: Scene) -> None:
    completed, failed = (gauge.name for gauge in JobMetrics().gauges())
    async with scene.controller():
        scene.apply(JOB)
        await scene.runs(3)
        scene.run_pods("Succeeded")
        await scene.until(lambda: scene.phase() == "Completed", "it is over")
        counted = {completed: {("default/j", "default"): 1}, failed: {}}
        await scene.until(
            lambda: {gauge.name: gauge.rows for gauge in scene.metrics.gauges()} == counted,
            "it is counted",
        )
        assert sum(scene.metrics.creation.rows[()].counts) == 3
        scene.store.merge_patch(JOBS, "default", "j", {"spec": {"ttlSecondsAfterFinished": 1}})
        await scene.until(lambda: not scene.store.list(JOBS)[0], "the Job is gone")
        await scene.until(lambda: not scene.pods(), "and its pods")


@pytest.mark.parametrize("text", [file.read_text() for file in EXAMPLES])
async def test_the_examples_run(scene: Scene, text: str) -> None:
    assert text.startswith("# "), "a comment says what it shows"
    async with scene.controller():
        scene.apply(text)
        wanted = sum(
            task["replicas"]
            for body in yaml.safe_load_all(text)
            if body["kind"] == "Job"
            for task in body["spec"]["tasks"]
        ) + text.count("kind: Pod\n")
        await scene.until(lambda: len(scene.pods()) == wanted, f"{wanted} pods")
        assert not scene.events("InvalidJob")
