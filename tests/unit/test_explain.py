"""Explanations: what they count, whom they name, and that they never contradict the scheduler."""

from collections.abc import Callable

import msgspec
import pytest

from allotment.core.explain.causes.competition import decided_by
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.pod import explain, fits_empty_cluster
from allotment.core.explain.rows.schema import Candidate, Explanation
from allotment.core.explain.rows.views import node_views
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.reasons import main_cause
from allotment.core.trace_ids import trace_id
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Refusal
from allotment_proto.facts import (
    Constraints,
    Expression,
    NodeTerm,
    PluginUse,
    PodRequest,
    Policy,
    Preference,
    Selection,
)
from tests.recording import Recorder, busy_cluster, fold, uid_of, vgpu


def explained(log: Recorder, namespace: str, name: str, node: str | None = None) -> Explanation:
    story, state = PodStory(namespace, name), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    before = None if story.placed is None else fold(log.records[: story.placed.decided.basis])
    return explain(state, story, log.now_ms, before=before, node=node)


def test_the_funnel_counts_every_node_once_and_agrees_with_the_refusal() -> None:
    log = busy_cluster()
    found = explained(log, "research", "llama")
    assert found.funnel[0].left == len(log.state.nodes)
    left = found.funnel[0].left
    counted: dict[str, int] = {}
    for step in found.funnel:
        left -= step.lost
        assert step.left == left
        assert step.lost == sum(step.reasons.values())
        counted.update(step.reasons)
    outcome = run_cycle(fold(log.records[:28]), [uid_of("research/llama")], Evaluator(log.state))
    assert outcome.placements == ()
    refusal = log.state.pods[uid_of("research/llama")].refusal
    assert isinstance(refusal, Refusal)
    assert counted == dict(refusal.reasons)


def test_a_cordon_is_not_never() -> None:
    log = Recorder()
    log.node("n1", unschedulable=True)
    log.pod("a")
    assert fits_empty_cluster(log.state, vgpu())
    assert not fits_empty_cluster(log.state, vgpu(count=3))


def test_earlier_pods_of_the_same_batch_are_counted_in() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    a, b = log.pod("a", vgpu(1, 1000, 10)), log.pod("b", vgpu(1, 1000, 10))
    log.decide(a, b)
    first, second = (explained(log, "default", name).candidates[0] for name in "ab")
    assert first.free_before_bytes - second.free_before_bytes == 1000 << 20


def test_one_node_in_every_step() -> None:
    log = busy_cluster()
    steps = explained(log, "research", "llama", node="gpu-02").node_steps
    assert steps is not None
    assert steps.verdict == "InsufficientGPUMemory"
    assert {step.verdict for step in steps.host} == {"fits"}
    assert [(card.device, card.verdict) for card in steps.cards] == [
        ("GPU-0", "InsufficientGPUMemory"),
        ("GPU-1", "GPUUnhealthy"),
    ]
    tainted = explained(log, "research", "llama", node="gpu-04").node_steps
    assert tainted is not None
    assert [s.verdict for s in tainted.host if s.step == "nodeConstraints"] == ["TaintNotTolerated"]


def candidate(node: str, *, free_after_bytes: int = 0, **terms: int) -> Candidate:
    return Candidate(
        rank=0,
        node=node,
        devices=(),
        free_before_bytes=0,
        free_after_bytes=free_after_bytes,
        terms=terms,
        total_micro=sum(terms.values()),
        chosen=False,
    )


@pytest.mark.parametrize(
    ("second", "term"),
    [
        (candidate("n2", device=80, host=25), "device"),
        (candidate("n2", device=99, host=5), "host"),
        (candidate("n2", device=90, host=20, free_after_bytes=7), "leftover"),
        (candidate("n2", device=90, host=20), "name"),
    ],
)
def test_the_deciding_term(second: Candidate, term: str) -> None:
    found = decided_by((candidate("n1", device=100, host=10), second))
    assert found is not None
    assert (found.term, found.second) == (term, "n2")


def test_without_a_second_nothing_decides() -> None:
    alone = decided_by((candidate("n1", device=1),))
    assert alone is not None
    assert alone.term == "only"
    assert decided_by(()) is None


def test_the_cause_is_what_a_release_could_cure() -> None:
    assert main_cause((("NoGPU", 5), ("InsufficientGPUMemory", 1))) == "InsufficientGPUMemory"
    assert main_cause((("NoGPU", 5), ("NodeCordoned", 1))) == "NoGPU"
    assert main_cause(()) == "NoNodes"


def test_trace_ids() -> None:
    uid = "275ecb36-5aa8-4c2a-9c47-d8bb681b9aff"
    assert trace_id(uid) == uid.replace("-", "")
    assert len(trace_id("static-pod")) == 32
    assert len(trace_id("0" * 32)) == 32
    assert trace_id("0" * 32) != "0" * 32


SHAPES: list[Callable[[], PodRequest]] = [
    lambda: vgpu(),
    lambda: vgpu(count=2),
    lambda: vgpu(1, 30000, 100),
    lambda: PodRequest(extended=(("nvidia.com/gpu", 3),)),
    lambda: PodRequest(cpu_milli=10_000_000),
    lambda: msgspec.structs.replace(vgpu(), selection=Selection(mode="mig")),
    lambda: msgspec.structs.replace(vgpu(), selection=Selection(indexes=(1,))),
]


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_every_shape_has_a_json_of_integers_only(shape: int) -> None:
    log = busy_cluster()
    log.pod("asked", SHAPES[shape]())
    found = explained(log, "default", "asked", node="gpu-01")
    assert found.status.fits_now == found.funnel[-1].left
    encoded = msgspec.json.encode(found)
    assert not any(isinstance(leaf, float) for leaf in leaves(msgspec.json.decode(encoded)))
    assert b'"schema":"allotment.dev/explain/v1"' in encoded


def leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def test_nodes_show_what_is_wrong_with_them() -> None:
    log = busy_cluster()
    log.node("gpu-01", "NVIDIA-GeForce-RTX-4090", cards=4, memory_mib=2000)
    problems = {v.name: [(p.code, p.place) for p in v.problems] for v in node_views(log.state)}
    assert problems["broken-01"] == [("BrokenRegister", "annotation volcano.sh/node-vgpu-register")]
    assert problems["gpu-02"] == [("CardUnhealthy", "GPU-1")]
    assert ("CardOversold", "GPU-2") in problems["gpu-01"]
    assert problems["gpu-04"] == []


@pytest.mark.parametrize(
    ("tiers", "notes"),
    [
        (
            ((PluginUse("predicates"),),),
            ("preferred node affinity: no effect, the policy has no plugin nodeorder",),
        ),
        (((PluginUse("nodeorder"),),), ()),
    ],
)
def test_a_placed_pod_says_that_what_it_prefers_did_not_count(
    tiers: tuple[tuple[PluginUse, ...], ...], notes: tuple[str, ...]
) -> None:
    log = Recorder()
    log.policy(Policy(tiers=tiers))
    log.node("n1")
    zone = NodeTerm((Expression("zone", "In", ("b",)),))
    prefers = Constraints(preferred=(Preference(100, zone),))
    uid = log.pod("a", constraints=prefers)
    assert explained(log, "default", "a").status.notes == ()  # not why it waits
    log.decide()
    log.bind(uid)
    found = explained(log, "default", "a")
    assert (found.status.phase, found.status.notes) == ("Running", notes)
