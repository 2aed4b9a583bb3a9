"""Explanations: what they count, whom they name, and that they never contradict the scheduler."""

from collections.abc import Callable

import msgspec
import pytest

from allotment.core.explain.competition import decided_by
from allotment.core.explain.pod import explain, fits_empty_cluster
from allotment.core.explain.pod_story import PodStory
from allotment.core.explain.schema import Candidate, Explanation
from allotment.core.explain.views import node_views
from allotment.core.explain.words import fragmentation_text, near_words
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
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, state)
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


def test_the_closest_card_names_what_is_short_and_who_holds_it() -> None:
    found = explained(busy_cluster(), "research", "llama")
    closest = found.closest[0]
    assert (closest.node, closest.device) == ("gpu-02", "GPU-0")
    assert closest.short == {"memoryBytes": (30000 + 16384 - 40960) << 20, "computePercent": 10}
    assert [(h.namespace, h.name) for h in closest.holders] == [("research", "a100-only")]
    assert len(found.closest) == 1  # unhealthy and cordoned cards would not help


def test_counted_resources_have_closest_nodes() -> None:
    closest = explained(busy_cluster(), "default", "whole-more").closest
    assert [(c.node, c.device, c.free_count, c.short) for c in closest] == [
        ("whole-01", "nvidia.com/gpu", 2, {"count": 2})
    ]
    assert closest[0].holders[0].name == "whole"


def test_never_and_not_now_are_told_apart() -> None:
    log = busy_cluster()
    assert explained(log, "research", "llama").status.fits_empty_cluster is True
    never = explained(log, "research", "never")
    assert never.status.fits_empty_cluster is False
    assert never.fragmentation is None


def test_a_cordon_is_not_never() -> None:
    log = Recorder()
    log.node("n1", unschedulable=True)
    log.pod("a")
    assert fits_empty_cluster(log.state, vgpu())
    assert not fits_empty_cluster(log.state, vgpu(count=3))


def test_what_would_wake_a_waiting_pod() -> None:
    log = busy_cluster()
    for name, kind in (("llama", "Release"), ("never", None)):
        waiting = explained(log, "research", name).waiting_for
        assert (waiting.kind if waiting is not None else None) == kind
    cordoned = Recorder()
    cordoned.node("n1", unschedulable=True)
    cordoned.pod("a")
    change = explained(cordoned, "default", "a").waiting_for
    assert change is not None
    assert (change.kind, change.nodes) == ("NodeChange", 1)


def test_fragmentation_is_said_when_the_pieces_would_do() -> None:
    log = Recorder()
    log.node("n1", cards=2)
    for name in ("a", "b"):
        log.decide(log.pod(name, vgpu(1, 25000, 60)))
    log.decide(log.pod("c", vgpu(1, 20000, 10)))
    piece = explained(log, "default", "c").fragmentation
    assert piece is not None
    assert piece.free_bytes == 2 * (40960 - 25000) << 20
    assert piece.largest_usable_bytes == (40960 - 25000) << 20
    assert piece.needed_bytes == 20000 << 20
    assert piece.dimension == "memory"
    assert fragmentation_text(piece) == (
        "31.2 GiB of suitable card memory is free, at most 15.6 GiB of it on one card; 19.5 GiB "
        "requested"
    )


def test_fragmentation_names_what_is_short() -> None:
    """Each card has 30 GiB free in one piece, and not the compute for the pod."""
    log = Recorder()
    log.node("n1", cards=2)
    for name in ("a", "b"):
        log.decide(log.pod(name, vgpu(1, 10000, 60)))
    log.decide(log.pod("c", vgpu(1, 1000, 50)))
    piece = explained(log, "default", "c").fragmentation
    assert piece is not None
    assert piece.dimension == "compute"
    assert fragmentation_text(piece) == (
        "80% compute is free on suitable cards, at most 40% of it on one card with 1000 MiB free; "
        "50% requested"
    )


def test_too_little_compute_in_whatever_pieces_is_not_fragmented() -> None:
    log = Recorder()
    log.node("n1", cards=2)
    for name in ("a", "b"):
        log.decide(log.pod(name, vgpu(1, 10000, 80)))
    log.decide(log.pod("c", vgpu(1, 1000, 50)))
    assert explained(log, "default", "c").fragmentation is None


def test_a_pod_that_asks_for_no_share_of_compute_is_short_of_none_in_particular() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    log.decide(log.pod("a", vgpu(1, 10000, 100)))
    log.decide(log.pod("b", vgpu(1, 40000, 0)))
    (entry,) = explained(log, "default", "b").closest
    assert near_words(entry).short == "8.8 GiB memory, compute (none is free)"


def test_a_placed_pod_shows_the_table_its_decision_saw() -> None:
    log = busy_cluster()
    found = explained(log, "default", "big")
    placement = decode_envelope(log.records[10].payload).events[0].placements[2]  # type: ignore[union-attr]
    chosen, second = found.candidates
    assert chosen.chosen
    assert (chosen.node, chosen.total_micro) == (placement.node, placement.score_micro)
    assert chosen.terms == dict(placement.terms)
    runner = placement.runners_up[0]
    assert (second.node, second.total_micro) == (runner.node, runner.score_micro)
    assert found.candidates_total == placement.feasible
    assert found.funnel[-1].left == placement.feasible
    assert found.placement is not None
    assert [d.device for d in found.placement.devices] == ["GPU-2"]


def test_earlier_pods_of_the_same_batch_are_counted_in() -> None:
    log = Recorder()
    log.node("n1", cards=1)
    a, b = log.pod("a", vgpu(1, 1000, 10)), log.pod("b", vgpu(1, 1000, 10))
    log.decide(a, b)
    first, second = (explained(log, "default", name).candidates[0] for name in "ab")
    assert first.free_before_bytes - second.free_before_bytes == 1000 << 20


def test_a_bad_request_shows_its_problem_and_no_funnel() -> None:
    found = explained(busy_cluster(), "default", "wrong")
    assert found.status.cause == "InvalidRequest"
    assert "is 120; 0 to 100" in found.status.problem
    assert found.funnel == ()
    assert found.closest == ()


def test_a_pod_that_is_gone_still_tells_what_it_held() -> None:
    found = explained(busy_cluster(), "default", "half")
    assert (found.status.phase, found.status.node) == ("Gone", "gpu-01")
    assert found.placement is not None
    assert (found.placement.phase, found.placement.devices[0].device) == ("released", "GPU-0")


def test_a_pod_bound_by_others_is_said_to_be() -> None:
    log = Recorder()
    log.node("n1")
    uid = log.pod("theirs", scheduler="default-scheduler")
    log.observe(uid, phase="Running", node="n1")
    found = explained(log, "default", "theirs")
    assert found.placement is not None
    assert found.placement.others
    assert found.decision is None


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
