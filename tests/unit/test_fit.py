"""`allot fit`: manifests are read as watcher and controller read them, and asked of a round."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment.answers import surroundings as module
from allotment.answers.cluster import Access
from allotment.answers.screen import Screen
from allotment.answers.source import FileSource, Origin
from allotment.core.explain import fitting
from allotment.core.explain.causes import why
from allotment.core.explain.fitting import Fit
from allotment_cli.main import main
from allotment_proto.events import QueueObserved
from allotment_proto.facts import Policy
from tests import build
from tests.recording import Recorder
from tests.recording_batch import POLICY, BatchRecorder
from tests.unit.rounds_world import World, group

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
LISTED = (
    ("nvidia.com/gpu", 8),
    ("volcano.sh/vgpu-cores", 800),
    ("volcano.sh/vgpu-memory", 327_680),
    ("volcano.sh/vgpu-number", 80),
)
POD = """
kind: Pod
apiVersion: v1
metadata: {name: NAME, creationTimestamp: 2026-11-20T14:00:00Z}
spec:
  schedulerName: allotment
  containers:
  - name: main
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: MEMORY}}
"""
TEMPLATE = """
kind: Deployment
apiVersion: apps/v1
metadata: {name: web}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: allotment
      containers:
      - name: main
        resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 20000}}
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    log = Recorder()
    log.policy(Policy(scheduler_names=("allotment", "volcano")))
    log.node("gpu-a", "NVIDIA-A100", cards=2, extended=LISTED)
    return log.write(tmp_path / "log.jsonl")


def fit(log_file: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["fit", *arguments, "--file", str(log_file)], input=stdin)


def answer(log_file: Path, *arguments: str, stdin: str = "") -> Fit:
    result = fit(log_file, *arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=Fit)


def pod(name: str, memory_mib: int) -> str:
    return POD.replace("NAME", name).replace("MEMORY", str(memory_mib))


def places(found: Fit) -> Sequence[tuple[str, bool, str, tuple[str, ...]]]:
    return [(p.name, p.fits, p.node, p.devices) for p in found.pods]


def test_an_example_gets_its_node_and_card(log_file: Path) -> None:
    found = answer(log_file, "-f", str(EXAMPLES / "01-hami-core.yaml"))
    (only,) = found.pods
    assert (only.fits, only.node, only.nodes_fit, only.nodes) == (True, "gpu-a", 1, 1)


def test_pods_are_tried_each_next_to_those_before_it(log_file: Path) -> None:
    text = "---".join(pod(name, 30_000) for name in "abc")
    found = answer(log_file, "-f", "-", stdin=text)
    assert [p[1] for p in places(found)] == [True, True, False]
    assert len({p.devices for p in found.pods[:2]}) == 2
    refused = found.pods[2]
    assert refused.fits_empty_cluster is True
    assert "ask for 10.7 GiB of card memory, 18.6 GiB less" in [
        each.text for each in refused.counterfactuals
    ]


def test_templates_are_taken_as_often_as_they_are_asked_for(log_file: Path) -> None:
    found = answer(log_file, "-f", "-", stdin=TEMPLATE)
    assert [(p.name, p.fits) for p in found.pods] == [
        ("web-0", True),
        ("web-1", True),
        ("web-2", True),
    ]


def test_a_job_of_volcano_is_made_into_its_gang(log_file: Path) -> None:
    found = answer(log_file, "-f", str(EXAMPLES / "batch" / "09-gang-too-big.yaml"))
    assert len(found.pods) > 1
    assert not any(p.fits for p in found.pods)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("[0-9]*.yaml")), ids=lambda p: p.stem)
def test_every_example_is_read(path: Path, log_file: Path) -> None:
    found = answer(log_file, "-f", str(path))
    assert found.pods
    for each in found.pods:
        assert each.fits or each.cause or each.problem or each.notes, each.name


def test_the_screen_says_why_and_the_exit_code_that_some_do_not_fit(log_file: Path) -> None:
    result = fit(log_file, "-f", "-", "--exit-code", stdin=pod("big", 99_000))
    assert result.exit_code == 3
    assert "0 of 1 pod fit now" in result.stdout
    assert "default/big can never fit on these nodes" in result.stdout
    assert "96.7 GiB of one GPU requested; the largest GPU that the pod accepts has 40.0 GiB" in (
        result.stdout
    )
    assert "What would fit these nodes if they were empty" in result.stdout
    assert fit(log_file, "-f", "-", "--exit-code", stdin=pod("small", 99)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Service\nmetadata: {name: s}\n", "the manifests make no pods: Service s"),
        ("a: [", "stdin is no YAML"),
        ("- 1\n", "stdin is no manifest"),
        ("kind: Pod\nspec: {containers: 7}\n", "stdin: Expected"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(text: str, said: str, log_file: Path) -> None:
    result = fit(log_file, "-f", "-", stdin=text)
    assert result.exit_code != 0
    assert said in result.output


def test_a_pod_for_another_scheduler_is_told_so(log_file: Path) -> None:
    text = pod("foo", 99).replace("  schedulerName: allotment\n", "")
    (only,) = answer(log_file, "-f", "-", stdin=text).pods
    assert not only.fits
    assert only.notes[0].startswith(
        "its schedulerName is default-scheduler; this scheduler answers to"
    )


def test_the_log_and_what_it_says_stay_as_they_were(log_file: Path) -> None:
    before = log_file.read_bytes()
    first = answer(log_file, "-f", "-", stdin=pod("a", 30_000))
    assert answer(log_file, "-f", "-", stdin=pod("a", 30_000)) == first
    assert log_file.read_bytes() == before
    assert first.as_of.seq == 2


@pytest.mark.parametrize(
    "text",
    [
        "{kind: Pod, metadata: {name: p}, spec: }",
        "{kind: Pod, metadata: , spec: {}}",
        "{kind: Pod, metadata: [name], spec: {}}",
        "{kind: Pod, metadata: name, spec: {}}",
        "{kind: Pod, metadata: {name: p}, spec: x}",
        "{kind: List, items: [{metadata: {name: p}}]}",
        "{kind: List, items: [text]}",
        "{kind: Deployment, metadata: {name: d}, spec: {template: [1]}}",
        "{kind: Deployment, metadata: {name: d}, spec: {replicas: many, template: {}}}",
        "{kind: CronJob, metadata: {name: c}, spec: {jobTemplate: 3}}",
        "&a {kind: Pod, metadata: {name: p}, spec: {containers: [*a]}}",
        "{kind: Pod, metadata: {name: p}, spec: " + 3000 * "[" + 3000 * "]" + "}",
        "{kind: Job, apiVersion: batch.volcano.sh/v1alpha1, metadata: {name: j}, spec: 7}",
    ],
)
def test_a_mistake_in_a_manifest_is_no_defect_of_ours(text: str, tmp_path: Path) -> None:
    log = Recorder()
    log.node("n1")
    path = log.write(tmp_path / "log.jsonl")
    manifest = tmp_path / "m.yaml"
    manifest.write_text(text)
    result = CliRunner().invoke(main, ["fit", "-f", str(manifest), "--file", str(path)])
    assert result.exit_code in (0, 2), result.exception
    assert result.exit_code == 0 or str(manifest) in result.stderr


@pytest.mark.parametrize("is_gang", [True, False])
@pytest.mark.parametrize("queue", ["default", "closed"])
def test_what_equal_pods_hear_is_asked_once(
    is_gang: bool, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes once for each request; what would help once for a gang, or for equal pods."""
    world = World(build.node("n1", 1))
    world.tell(QueueObserved(uid="c", name="closed", rv=1, state="Closed"))
    request = build.request(build.wants(9_000, 0))
    if is_gang:
        world.tell(group("g", 8, queue=queue))
    for number in range(8):
        where = {"group": "default/g"} if is_gang else {"queue": queue}
        world.tell(build.pod(f"p{number}", request, name=f"p{number}", **where))
    asked: list[str] = []
    for room, name in ((fitting, "advice"), (why, "codes"), (why, "lacks")):
        really = getattr(room, name)

        def called(*args: Any, _name: str = name, _really: Any = really, **named: Any) -> Any:
            asked.append(_name)
            return _really(*args, **named)

        monkeypatch.setattr(room, name, called)
    found = fitting.fit(world.state, [f"p{n}" for n in range(8)], world.seq, 1_000)
    waiting = [each for each in found.pods if not each.fits]
    assert len(waiting) == (7 if queue == "default" and not is_gang else 8)
    assert len({each.counterfactuals for each in waiting}) == 1
    assert sorted(asked) == ["advice", "codes", "lacks"]


# What is not in the log: queues of namespaces, and claims

OF_TEAM = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  schedulerName: volcano
  containers:
  - name: main
    resources: {limits: {cpu: 1, volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 90000}}
"""
NAMESPACE = """
---
apiVersion: v1
kind: Namespace
metadata: {name: team, annotations: {scheduling.volcano.sh/queue-name: QUEUE}}
"""
WITH_CLAIM = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: volcano
  volumes: [VOLUME]
  containers:
  - name: main
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000}}
"""
DATA = "{name: data, persistentVolumeClaim: {claimName: data}}"
CLAIM = """
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast, resources: {requests: {storage: 1Gi}}}
"""
CLASS = """
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: PROVISIONER
volumeBindingMode: MODE
allowedTopologies:
- matchLabelExpressions: [{key: kubernetes.io/hostname, values: [HOST]}]
"""


def classed(mode: str, host: str, provisioner: str = "csi.example.com") -> str:
    text = CLASS.replace("MODE", mode).replace("HOST", host)
    return text.replace("PROVISIONER", provisioner)


@pytest.fixture
def queues_file(tmp_path: Path) -> Path:
    log = BatchRecorder()
    log.policy(POLICY)
    log.queue("default")
    log.queue("closed", state="Closed")
    log.node("gpu-a", cards=2, extended=LISTED)
    return log.write(tmp_path / "queues.jsonl")


class OfCluster:
    """An API server with these objects, by path."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.asked: list[str] = []
        self._objects = objects

    async def find(self, path: str, what: str, kind: Any) -> Any:
        self.asked.append(path)
        found = self._objects.get(path)
        return None if found is None else msgspec.convert(found, kind)

    async def list(self, path: str, what: str, kind: Any) -> list[Any]:
        self.asked.append(path)
        return [msgspec.convert(each, kind) for each in self._objects.get(path, [])]


@pytest.fixture
def cluster(queues_file: Path, monkeypatch: pytest.MonkeyPatch) -> OfCluster:
    """`--home` reads the log of a local mode whose API server has these objects."""
    pod_queue = {"annotations": {"scheduling.volcano.sh/queue-name": "closed"}}
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "none"}}
    made = OfCluster(
        {
            "/api/v1/namespaces/team": {"metadata": {"name": "team", **pod_queue}},
            "/api/v1/namespaces/default": {"metadata": {"name": "default"}},
            "/api/v1/namespaces/default/persistentvolumeclaims": [claim],
        }
    )

    @asynccontextmanager
    async def log(origin: Origin) -> AsyncIterator[FileSource]:
        yield FileSource(queues_file)

    @asynccontextmanager
    async def server(access: Access, screen: Screen) -> AsyncIterator[OfCluster]:
        yield made

    monkeypatch.setattr("allotment_cli.plan.fit.open_source", log)
    monkeypatch.setattr(module, "open_cluster", server)
    return made


def asked(*arguments: str, stdin: str) -> Fit:
    result = CliRunner().invoke(main, ["fit", "-f", "-", *arguments, "-o", "json"], input=stdin)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout, type=Fit)


def test_the_queue_that_a_namespace_names_is_read_from_the_cluster(cluster: OfCluster) -> None:
    found = asked(stdin=OF_TEAM)
    assert found.pods[0].cause == "QueueClosed"
    assert [lack.code for lack in found.pods[0].lacks] == ["InsufficientGPUMemory"]
    assert found.assumed == ()
    assert cluster.asked == ["/api/v1/namespaces/team"], "claims only where pods have some"
    manifest = asked(stdin=OF_TEAM + NAMESPACE.replace("QUEUE", "default"))
    assert manifest.pods[0].cause == "InsufficientGPUMemory", "the manifest says otherwise"
    absent = asked(stdin=OF_TEAM.replace("team", "elsewhere"))
    assert absent.assumed == ("namespace elsewhere does not exist; it is made and names no queue",)


def test_what_the_nodes_lack_stands_beside_what_the_queue_says(queues_file: Path) -> None:
    text = fit(queues_file, "-f", "-", stdin=OF_TEAM + NAMESPACE.replace("QUEUE", "closed")).stdout
    assert "Cause      QueueClosed" in text
    assert "Because    queue closed is Closed" in text
    assert text.count("takes new pods only when Open") == 1
    assert "Nodes      87.9 GiB of one GPU requested; the largest" in text


def test_more_than_the_cluster_has_is_what_no_node_takes(queues_file: Path) -> None:
    """What the cluster lacks as a whole is no cause where no pod's end would help."""
    huge = POD.replace("NAME", "a").replace("MEMORY", "4Gi").replace("allotment", "volcano")
    text = fit(queues_file, "-f", "-", stdin=huge).stdout
    assert "Cause      InsufficientGPUMemory\nBecause    volcano.sh/vgpu-memory counts MiB" in text


def test_what_nobody_can_say_is_taken_for_granted_and_said(queues_file: Path) -> None:
    claiming = WITH_CLAIM.replace("VOLUME", DATA)
    found = answer(queues_file, "-f", "-", stdin=claiming)
    assert found.pods[0].fits
    assert found.assumed == (
        "claim default/data is there, within reach of every node"
        " (an exported log has no API server)",
        "namespace default names no queue (an exported log has no API server)",
    )
    text = fit(queues_file, "-f", "-", stdin=claiming).stdout
    assert "Assumed    claim default/data is there" in text
    of_past = answer(queues_file, "-f", "-", "--at", "4", stdin=OF_TEAM)
    assert "(the API server knows the present only)" in of_past.assumed[0]


def test_claims_are_looked_up_in_the_cluster(cluster: OfCluster) -> None:
    found = asked(stdin=WITH_CLAIM.replace("VOLUME", DATA))
    assert "VolumeNotReady" in found.pods[0].problem
    assert "storage class none, which does not exist" in found.pods[0].problem
    missing = asked(stdin=WITH_CLAIM.replace("VOLUME", DATA.replace("data}", "other}")))
    assert "PersistentVolumeClaim default/other does not exist" in missing.pods[0].problem
    assert missing.assumed == ()


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
@pytest.mark.parametrize(("host", "fits"), [("gpu-a", True), ("gpu-b", False)])
def test_a_claim_of_the_manifests_is_had_where_its_class_makes_volumes(
    mode: str, host: str, fits: bool, queues_file: Path
) -> None:
    found = answer(
        queues_file,
        "-f",
        "-",
        stdin=WITH_CLAIM.replace("VOLUME", DATA) + CLAIM + classed(mode, host),
    )
    (pod,) = found.pods
    assert (pod.fits, pod.cause) == (fits, "" if fits else "VolumeOutOfReach")
    assert found.skipped == ()


def test_claims_that_are_made_for_pods_are_known(queues_file: Path) -> None:
    template = "{volumeClaimTemplate: {spec: {storageClassName: fast}}}"
    own = WITH_CLAIM.replace("VOLUME", f"{{name: v, ephemeral: {template}}}")
    spec = "metadata: {name: data}, spec: {storageClassName: fast}"
    of_set = (
        TEMPLATE.replace("Deployment", "StatefulSet")
        .replace(
            "spec:\n  replicas: 3", f"spec:\n  volumeClaimTemplates: [{{{spec}}}]\n  replicas: 2"
        )
        .replace("allotment", "volcano")
    )
    for manifests, number in ((own, 1), (of_set, 2)):
        out = answer(queues_file, "-f", "-", stdin=manifests + classed("Immediate", "gpu-b"))
        assert [pod.cause for pod in out.pods] == ["VolumeOutOfReach"] * number
        there = answer(queues_file, "-f", "-", stdin=manifests + classed("Immediate", "gpu-a"))
        assert all(pod.fits for pod in there.pods)


def test_resource_claims_are_refused_with_what_to_do(queues_file: Path) -> None:
    claiming = OF_TEAM.replace(
        "schedulerName", "resourceClaims: [{name: g, resourceClaimName: g}]\n  schedulerName"
    )
    (pod,) = answer(queues_file, "-f", "-", stdin=claiming).pods
    assert "spec.resourceClaims dynamic resource allocation is not supported" in pod.problem


def test_manifests_without_a_namespace_are_in_that_of_n(queues_file: Path) -> None:
    (pod,) = answer(
        queues_file, "-f", "-", "-n", "team", stdin=WITH_CLAIM.replace("VOLUME", "")
    ).pods
    assert pod.namespace == "team"


def test_pods_of_one_shape_are_one_row(log_file: Path) -> None:
    def shown(replicas: int, memory: int, *words: str) -> list[str]:
        text = TEMPLATE.replace("replicas: 3", f"replicas: {replicas}")
        text = text.replace("vgpu-memory: 20000", f"vgpu-memory: {memory}")
        result = CliRunner(env={"COLUMNS": "200"}).invoke(
            main, ["fit", "-f", "-", "--file", str(log_file), *words], input=text
        )
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    never = shown(200, 900_000)
    (row,) = [line for line in never if line.startswith("200 × default/web-")]
    assert "900000" in row or "GiB" in row
    assert len(never) < 40
    assert sum("web-" in line for line in shown(200, 900_000, "--all")) > 200
    small = shown(3, 1_000)
    (row,) = [line for line in small if line.startswith("3 × default/web-")]
    assert "GPU-" in row, "where all are on one node, its cards"
    mixed = shown(60, 20_000)
    rows = [line for line in mixed if " × default/web-" in line]
    assert len(rows) == 2, "those that fit, and those that do not"
    assert sum(int(row.split()[0]) for row in rows) == 60
