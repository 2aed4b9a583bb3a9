"""`allot job` and `allot queue` on the local API server: what they make there, show and refuse."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.contract.kube_server import kubeconfig
from tests.contract.local_apiserver import process

from allotment_cli.main import main
from allotment_local.definitions import read_definitions

SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
BATCH = "/apis/batch.volcano.sh/v1alpha1"
BUS = "/apis/bus.volcano.sh/v1alpha1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = f"{BATCH}/namespaces/default/jobs"
EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "batch"
Json = dict[str, Any]


class Scene:
    """An API server of its own, and the command that speaks to it."""

    def __init__(self, url: str, config: Path) -> None:
        self.url = url
        self.config = config

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": media},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: Json = json.load(answer)
        return found

    def allot(self, *words: str, code: int = 0) -> Result:
        environment = {"KUBECONFIG": str(self.config), "ALLOT_HOME": "/nonexistent/home"}
        result = CliRunner(env=environment).invoke(main, words)
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    def commands(self) -> list[tuple[str, str, str]]:
        """Action, kind and name of what the controllers are asked; each is taken away."""
        found = []
        for each in self.call("GET", f"{BUS}/commands")["items"]:
            target, meta = each["target"], each["metadata"]
            assert target["uid"]
            assert meta["ownerReferences"][0]["uid"] == target["uid"]
            found.append((each["action"], target["kind"], target["name"]))
            self.call("DELETE", f"{BUS}/namespaces/{meta['namespace']}/commands/{meta['name']}")
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with process() as url:
        made = Scene(url, kubeconfig(tmp_path_factory.mktemp("job") / "kubeconfig", url))
        for definition in read_definitions():
            made.call("POST", DEFINITIONS, definition)
        for name in ("root", "default"):
            made.call("POST", f"{SCHEDULING}/queues", {"metadata": {"name": name}})
        yield made


@pytest.fixture(autouse=True)
def _leave_it_empty(scene: Scene) -> Iterator[None]:
    yield
    for job in scene.call("GET", JOBS)["items"]:
        scene.call("DELETE", f"{JOBS}/{job['metadata']['name']}")


def test_a_job_made_of_flags_is_listed_suspended_resumed_and_deleted(scene: Scene) -> None:
    flags = "-N train -i busybox:1 -r 3 -m 2 -L cpu=1,memory=1Gi,volcano.sh/vgpu-number=1"
    made = scene.allot("job", "run", *flags.split())
    assert made.stdout == "run job train successfully\n"
    job = scene.call("GET", f"{JOBS}/train")
    assert (job["spec"]["minAvailable"], job["spec"]["schedulerName"]) == (2, "volcano")
    (task,) = job["spec"]["tasks"]
    assert task["replicas"] == 3
    (container,) = task["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["volcano.sh/vgpu-number"] == "1"
    assert container["resources"]["requests"] == {"cpu": "1000m", "memory": "100Mi"}

    status = {"state": {"phase": "Running"}, "running": 2, "failed": 1, "retryCount": 1}
    scene.call("PATCH", f"{JOBS}/train/status", {"status": status})
    header, line = scene.allot("job", "list").stdout.splitlines()
    assert " ".join(header.split()) == (
        "Name Creation Phase JobType Replicas Min Pending Running Succeeded Failed Unknown "
        "RetryCount"
    )
    assert " ".join(line.split()[2:]) == "Running Batch 3 2 0 2 0 1 0 1"
    assert len(line.split()[1]) == len("2026-03-01")

    assert "AbortJob" in scene.allot("job", "suspend", "-N", "train").stdout
    assert "ResumeJob" in scene.allot("job", "resume", "train").stdout
    assert scene.commands() == [("AbortJob", "Job", "train"), ("ResumeJob", "Job", "train")]
    assert scene.allot("job", "delete", "-N", "train").stdout == "delete job train successfully\n"
    assert scene.call("GET", JOBS)["items"] == []


def test_a_job_of_a_manifest(scene: Scene) -> None:
    manifest = EXAMPLES / "05-three-workers.yaml"
    result = scene.allot("job", "run", "-f", str(manifest))
    (job,) = scene.call("GET", JOBS)["items"]
    assert result.stdout == f"run job {job['metadata']['name']} successfully\n"
    again = scene.allot("job", "run", "-f", str(manifest), code=2)
    assert "already exists" in again.stderr


def test_lists_are_filtered(scene: Scene) -> None:
    for name, queue in (("train-a", "default"), ("train-b", "q"), ("eval", "q")):
        spec = {"queue": queue, "minAvailable": 1, "tasks": [{"name": "w", "replicas": 1}]}
        spec["schedulerName"] = "volcano" if name == "eval" else "allotment"
        scene.call("POST", JOBS, {"metadata": {"name": name}, "spec": spec})

    def names(*words: str) -> list[str]:
        found = json.loads(scene.allot("job", "list", "-o", "json", *words).stdout)
        assert found["schema"] == "allotment.dev/jobs/v1"
        return [row["name"] for row in found["items"]]

    assert names() == ["eval", "train-a", "train-b"]
    assert names("-q", "q") == ["eval", "train-b"]
    assert names("-S", "allotment", "--selector", "rain-b") == ["train-b"]
    assert names("-n", "elsewhere") == []
    everywhere = scene.allot("job", "list", "--all-namespaces").stdout
    assert everywhere.splitlines()[0].split()[:2] == ["Namespace", "Name"]
    nothing = scene.allot("job", "list", "-n", "elsewhere")
    assert (nothing.stdout, nothing.stderr) == ("", "No resources found\n")


def test_a_job_is_viewed_with_its_group_and_events(scene: Scene) -> None:
    scene.allot("job", "run", "-N", "train", "-r", "2", "-m", "2")
    uid = scene.call("GET", f"{JOBS}/train")["metadata"]["uid"]
    counts = {"default": {"phase": {"Pending": 2}}}
    status = {"state": {"phase": "Pending"}, "pending": 2, "taskStatusCount": counts}
    scene.call("PATCH", f"{JOBS}/train/status", {"status": status})
    groups = f"{SCHEDULING}/namespaces/default/podgroups"
    scene.call("POST", groups, {"metadata": {"name": f"train-{uid}"}, "spec": {"minMember": 2}})
    said = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
    condition = {"phase": "Inqueue", "conditions": [{**said, "message": "2/2 tasks in gang"}]}
    scene.call("PATCH", f"{groups}/train-{uid}/status", {"status": condition})
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Job", "name": "train", "namespace": "default", "uid": uid},
        "type": "Warning",
        "reason": "PodGroupPending",
        "message": "PodGroup default:train unschedulable",
        "lastTimestamp": "2026-03-01T12:00:00Z",
    }
    scene.call("POST", "/api/v1/namespaces/default/events", event)

    shown = scene.allot("job", "view", "train")
    for words in (
        "Name:           train\n",
        "Phase:          Pending\n",
        "Min Available:  2 of 2\n",
        "Unschedulable=True (NotEnoughResources): 2/2 tasks in gang",
        "PodGroupPending  Job    PodGroup default:train unschedulable",
        "default         2    2  2 Pending",
    ):
        assert words in shown.stdout
    assert shown.stderr == f"next: allot explain gang default/train-{uid}\n"
    found = json.loads(scene.allot("job", "view", "-N", "train", "-o", "json").stdout)
    assert found["podGroup"]["phase"] == "Inqueue"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "view", "nobody"], "job default/nobody does not exist"),
        (["job", "suspend", "nobody", "-n", "x"], "job x/nobody does not exist"),
        (["job", "delete"], "no job is named"),
        (["job", "run", "-N", "a", "-n", "nowhere"], "nowhere"),
        (["job", "view", "a", "-N", "b"], "two jobs are named: a and b"),
        (["job", "run"], "no job is named"),
        (["job", "run", "-N", "a", "-R", "cpu"], "--requests 'cpu' is not an amount"),
        (["job", "run", "-N", "a", "-R", "cpu=x"], "--requests cpu: 'x' is not a quantity"),
        (["job", "run", "-N", "a", "-R", "cpu=2"], "--requests cpu=2 is more than the limit"),
        (["job", "run", "-N", "a", "-m", "2"], "minAvailable"),
        (["job", "run", "-N", "A_b"], "A_b"),
        (["job", "run", "-f", "/nonexistent.yaml"], "/nonexistent.yaml cannot be read"),
        (["job", "run", "-f", "x.yaml", "-r", "2"], "--replicas and --filename exclude"),
        (["queue", "get", "nobody"], "queue nobody does not exist"),
        (["queue", "delete", "-n", "default"], "queue default cannot be deleted"),
        (["queue", "operate", "-n", "default", "-a", "close"], "queue 'default' is always open"),
        (["queue", "operate", "-n", "default", "-a", "update"], "update needs --weight"),
        (["queue", "operate", "default", "-a", "open", "-w", "2"], "open takes no --weight"),
        (["queue", "operate", "nobody", "-a", "update", "-w", "2"], "queue nobody does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(scene: Scene, words: list[str], said: str) -> None:
    result = scene.allot(*words, code=2)
    assert result.stdout == ""
    assert said in result.stderr.splitlines()[0]
    assert scene.commands() == []


def test_queues_are_made_counted_operated_and_deleted(scene: Scene) -> None:
    assert scene.allot("queue", "create", "-n", "team", "-w", "3").stdout == (
        "create queue team successfully\n"
    )
    scene.allot("queue", "create", "closed", "-S", "Closed")
    assert scene.commands() == [("CloseQueue", "Queue", "closed")]
    groups = f"{SCHEDULING}/namespaces/default/podgroups"
    for name, phase in (("g1", "Running"), ("g2", "Running"), ("g3", "")):
        spec = {"queue": "team", "minMember": 1}
        scene.call("POST", groups, {"metadata": {"name": name}, "spec": spec})
        if phase:
            scene.call("PATCH", f"{groups}/{name}/status", {"status": {"phase": phase}})
    scene.call("PATCH", f"{SCHEDULING}/queues/team/status", {"status": {"state": "Open"}})
    header, line = scene.allot("queue", "get", "-n", "team").stdout.splitlines()
    assert " ".join(header.split()) == (
        "Name Weight State Parent Inqueue Pending Running Unknown Completed"
    )
    assert " ".join(line.split()) == "team 3 Open root 0 1 2 0 0"
    listed = json.loads(scene.allot("queue", "list", "-o", "json").stdout)["items"]
    assert {"closed", "default", "root", "team"} <= {row["name"] for row in listed}

    scene.allot("queue", "operate", "-n", "team", "-a", "close")
    scene.allot("queue", "operate", "team", "-a", "open")
    assert scene.commands() == [("CloseQueue", "Queue", "team"), ("OpenQueue", "Queue", "team")]
    scene.allot("queue", "operate", "-n", "team", "-a", "update", "-w", "7")
    assert scene.call("GET", f"{SCHEDULING}/queues/team")["spec"]["weight"] == 7
    below = {"metadata": {"name": "below"}, "spec": {"parent": "team"}}
    scene.call("POST", f"{SCHEDULING}/queues", below)
    refused = scene.allot("queue", "delete", "-n", "team", code=2)
    assert "it has child queues: below" in refused.stderr
    scene.allot("queue", "delete", "below")
    assert "3 PodGroups name it" in scene.allot("queue", "delete", "team").stderr
    scene.allot("queue", "delete", "closed")


def test_a_cluster_without_definitions_and_none_at_all(tmp_path: Path) -> None:
    with process() as url:
        bare = Scene(url, kubeconfig(tmp_path / "kubeconfig", url))
        result = bare.allot("job", "list", code=2)
        assert "does not have this kind of object" in result.stderr
        assert "deploy/base/crds" in result.stderr
    gone = bare.allot("queue", "list", code=2)
    assert "gave no answer" in gone.stderr
    missing = Scene(url, tmp_path / "none").allot("queue", "list", code=2)
    assert "allot: " in missing.stderr
