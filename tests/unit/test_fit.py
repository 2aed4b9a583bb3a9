"""`allot fit`: manifests are read as watcher and controller read them, and asked of a round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment.core.explain import fitting
from allotment.core.explain.fitting import Fit
from allotment_cli.main import main
from allotment_proto.events import QueueObserved
from allotment_proto.facts import Policy
from tests import build
from tests.recording import Recorder
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
    assert "wants 96.7 GiB of one GPU; the largest GPU that the pod accepts has 40.0 GiB" in (
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
    for name in ("advice", "codes", "fits_empty_cluster", "lacks"):
        really = getattr(fitting, name)

        def called(*args: Any, _name: str = name, _really: Any = really, **named: Any) -> Any:
            asked.append(_name)
            return _really(*args, **named)

        monkeypatch.setattr(fitting, name, called)
    found = fitting.fit(world.state, [f"p{n}" for n in range(8)], world.seq, 1_000)
    waiting = [each for each in found.pods if not each.fits]
    assert len(waiting) == (7 if queue == "default" and not is_gang else 8)
    assert len({each.counterfactuals for each in waiting}) == 1
    assert sorted(asked) == ["advice", "codes", "fits_empty_cluster", "lacks"]
