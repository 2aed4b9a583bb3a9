"""A cluster without nodes: that is the cause, and neither too little room nor a quota."""

from pathlib import Path

from click.testing import CliRunner

from allotment.core.explain.doctor import findings
from allotment_cli.main import main
from allotment_proto.facts import Policy
from tests.recording import Recorder
from tests.recording_batch import POLICY, BatchRecorder

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: asked}
spec:
  schedulerName: allotment
  containers:
  - name: main
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000}}
"""


def without_nodes() -> Recorder:
    log = Recorder()
    log.policy(Policy())
    log.pod("tried")
    log.decide()
    log.pod("untried")
    return log


def queues_without_nodes() -> BatchRecorder:
    log = BatchRecorder()
    log.policy(POLICY)
    log.queue("default")
    log.group("gang", 2, 2, 3000)
    log.group("gated", 2, 2, 3000, phase="Pending", min_resources=(("cpu", 1000),))
    log.group("lost", 1, 1, 3000, queue="nowhere")
    log.round()
    log.queue("other")
    return log


def test_the_doctor_says_it_once_for_all_pods() -> None:
    log = queues_without_nodes()
    error, other = findings(log.state, log.now_ms)
    assert (error.severity, error.code, error.pods_total) == ("error", "NoNodes", 4)
    assert error.never_start == 0, "they start as they are once there is a node"
    assert other.code == "QueueUnknown"


def test_a_cluster_where_nobody_waits_has_nothing_to_say() -> None:
    log = Recorder()
    log.policy(Policy())
    assert findings(log.state, log.now_ms) == []


def test_fit_says_so(tmp_path: Path) -> None:
    log = without_nodes().write(tmp_path / "log.jsonl")
    result = CliRunner().invoke(main, ["fit", "-f", "-", "--file", str(log)], input=MANIFEST)
    assert "default/asked does not fit now" in result.stdout
    assert "Cause      NoNodes" in result.stdout
    assert "Because    the cluster has no node" in result.stdout
    assert "never" not in result.stdout
