"""A cluster without nodes: that is the cause, and neither too little room nor a quota."""

from pathlib import Path

from click.testing import CliRunner

from allotment.core.explain.doctor import findings
from allotment.core.explain.gang import explain_gang
from allotment.core.explain.pod import explain
from allotment.core.explain.pod_story import PodStory
from allotment.core.explain.words import status_text
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_cli.main import main
from allotment_proto.codec import decode_envelope
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


def story_of(log: Recorder, name: str) -> tuple[ClusterState, PodStory]:
    story, state = PodStory("default", name), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload, record.subject)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, state)
    return state, story


def test_a_pod_is_told_so_and_not_that_it_can_never_fit() -> None:
    for name in ("tried", "untried"):
        state, story = story_of(without_nodes(), name)
        found = explain(state, story, 0)
        assert found.status.cause == "NoNodes"
        assert found.status.fits_empty_cluster is None
        assert status_text(found) == "Pending 0s: the cluster has no node"
        assert "add a node" in found.advice


def test_what_queues_may_have_of_nothing_is_no_cause() -> None:
    log = queues_without_nodes()
    for name in ("gang-worker-0", "gated-worker-0"):
        found = explain(*story_of(log, name), 0)
        assert (found.status.cause, found.status.refused) == ("NoNodes", None)
        assert found.status.quota == ()
    for name in ("gang", "gated"):
        gang = explain_gang(log.state, f"default/{name}", log.now_ms)
        assert gang.status.cause is not None
        assert gang.status.cause.code == "NoNodes"
        assert gang.status.fits_empty_cluster is gang.status.at_most_empty is None


def test_a_queue_that_does_not_exist_is_still_the_cause() -> None:
    log = queues_without_nodes()
    assert explain(*story_of(log, "lost-worker-0"), 0).status.cause == "QueueUnknown"


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
