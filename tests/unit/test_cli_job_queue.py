"""Jobs and queues as the command makes and shows them, without a cluster."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment.answers.recorded import ShownQueue, queue_rows
from allotment.core.errors import AllotError
from allotment.core.jobs.admission import defaulted, problems_of
from allotment.core.jobs.model import Job, JobSpec, PodGroup
from allotment_cli.act.job import job_lines, job_row
from allotment_cli.act.job_run import WantedJob, amounts, job_of_file, job_of_flags
from allotment_cli.act.job_view import job_view, view_lines
from allotment_cli.main import main

BATCH = "batch.volcano.sh/v1alpha1"
WANTED = WantedJob("train", "ml", "i:1", 2, 3, "cpu=1", "cpu=2,memory=1Gi", "volcano")
EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "batch"


def job(**fields: Any) -> Job:
    meta = {"name": "train", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-03-01T0"}
    return msgspec.convert({"metadata": {**meta, **fields.pop("meta", {})}, **fields}, Job)


def test_flags_become_a_job_that_the_controller_takes() -> None:
    body = job_of_flags(WANTED)
    assert problems_of("train", defaulted(msgspec.convert(body["spec"], JobSpec), "x")) == []
    assert (body["apiVersion"], body["metadata"]["namespace"]) == (BATCH, "ml")
    resources = body["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}


def test_amounts() -> None:
    assert amounts("", "-R") == {}
    assert amounts(" cpu=1 , volcano.sh/vgpu-number=2", "-R") == {
        "cpu": "1",
        "volcano.sh/vgpu-number": "2",
    }
    for text in ("cpu", "=1", "cpu=", "cpu=-1", "cpu=1x"):
        with pytest.raises(AllotError):
            amounts(text, "-R")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("", "holds 0 documents"),
        ("kind: Pod\napiVersion: v1\n", "holds no Job"),
        ("- 1\n", "holds no Job"),
        (f"kind: Job\napiVersion: {BATCH}\n", "metadata.name is missing"),
        (
            f"kind: Job\napiVersion: {BATCH}\nmetadata: {{name: a}}\n",
            "spec cannot be read",
        ),
        (
            f"kind: Job\napiVersion: {BATCH}\nmetadata: {{name: a}}\nspec: {{minAvailable: x}}\n",
            "minAvailable",
        ),
        (f"kind: Job\napiVersion: {BATCH}\nmetadata: {{name: a}}\nspec: {{}}\n", "spec.tasks"),
    ],
)
def test_a_manifest_that_is_none_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(AllotError) as raised:
        job_of_file(path, "default")
    assert str(path) in raised.value.message
    assert said in raised.value.message


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_of_one_job_are_taken(path: Path) -> None:
    if path.read_text().count("\nkind: ") + path.read_text().startswith("kind: ") != 1:
        with pytest.raises(AllotError, match="documents, not one Job"):
            job_of_file(path, "default")
    else:
        assert job_of_file(path, "default")["kind"] == "Job"


def test_a_line_has_the_columns_in_order_and_zeros_for_what_is_not_said() -> None:
    tasks = [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1, "minAvailable": 0}]
    status = {"state": {"phase": "Running"}, "running": 2, "retryCount": 1}
    row = job_row(job(spec={"tasks": tasks}, status=status))
    assert msgspec.structs.astuple(row) == (
        *("ml", "train", "2026-03-01", "Running", "Batch", 3, 2),
        *(0, 2, 0, 0, 0, 1),
    )
    typed = job(meta={"labels": {"volcano.sh/job-type": "Spark"}}, spec={})
    assert job_row(typed).job_type == "Spark"
    header, line = job_lines([row], with_namespace=True)
    assert header.split()[0] == "Namespace"
    assert line.split()[:2] == ["ml", "train"]


def test_a_view_names_what_was_said_of_job_and_group() -> None:
    spec = {
        "queue": "q",
        "minAvailable": 1,
        "plugins": {"ssh": [], "env": None},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [{"name": "w", "replicas": 2}],
    }
    state = {"phase": "Failed", "reason": "Invalid", "message": "spec.tasks: none"}
    found = job_view(job(spec=spec, status={"state": state}), None, [])
    text = "\n".join(view_lines(found))
    for words in (
        "Phase:          Failed (Invalid)",
        "Message:        spec.tasks: none",
        "Queue:          q",
        "Plugins:        ssh, env",
        "Policies:       PodEvicted -> RestartJob",
        "Min Available:  1 of 2",
        "Events:         <none>",
    ):
        assert words in text
    assert "PodGroup" not in text


def test_queues_count_their_groups_and_the_root_has_no_parent() -> None:
    def group(queue: str, phase: str) -> PodGroup:
        body = {"metadata": {}, "spec": {"queue": queue}, "status": {"phase": phase}}
        return msgspec.convert(body, PodGroup)

    names = ("root", "default", "a")
    queues = [msgspec.convert({"metadata": {"name": name}}, ShownQueue) for name in names]
    groups = [group("", "Running"), group("a", ""), group("a", "Inqueue"), group("b", "Running")]
    root, usual, one = queue_rows(queues, groups)
    assert (root.parent, usual.parent, one.weight) == ("", "root", 1)
    assert (usual.running, one.pending, one.inqueue, one.running) == (1, 1, 1, 0)


@pytest.mark.parametrize("name", ["job", "queue", "explain"])
def test_every_subcommand_has_help(name: str) -> None:
    group = main.get_command(None, name)  # type: ignore[arg-type]
    assert group is not None
    for subcommand in group.list_commands(None):  # type: ignore[attr-defined]
        result = CliRunner().invoke(main, [name, subcommand, "-h"])
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Usage: ")
