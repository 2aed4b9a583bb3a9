"""Absurd amounts are refused where they enter: the scheduling services reckon in 64 bits."""

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NodeSource
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.facts import PodRequest
from allotment_proto.volcano import keys
from allotment_proto.volcano.vgpu import decode_register
from allotment_watcher import objects
from allotment_watcher.normalise import AMOUNT_MAX, node_fact
from tests import build
from tests.build import node, state_of
from tests.unit.kube_json import container, pod_json, refused, seen


@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu", keys.VGPU_MEMORY])
def test_containers_that_are_absurd_only_together(resource: str) -> None:
    """Each is an amount that Kubernetes takes; their sum is one that 64 bits do not."""
    text = "4Ei" if resource == "memory" else "4E"
    limits = {resource: text if resource != "cpu" else "4P", keys.VGPU_NUMBER: 1}
    fact = seen(pod_json(container("a", limits), container("b", {resource: limits[resource]})))
    refused(fact, resource, "absurdly large" if resource != keys.VGPU_MEMORY else "without")
    state = state_of(node(), fact)
    outcome = run_cycle(state, [fact.uid], Board(state))
    assert outcome == run_cycle(state, [fact.uid], Evaluator(state))
    assert outcome.refusals[0].problem == fact.problem


def test_a_node_cannot_have_absurd_amounts() -> None:
    document = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7" * 30},
        "status": {"allocatable": {"cpu": "8", "memory": "4Ei", "x.io/y": str(AMOUNT_MAX + 1)}},
    }
    fact = node_fact(msgspec.json.decode(msgspec.json.encode(document), type=objects.NodeObject))
    assert (fact.cpu_milli, fact.memory_bytes, fact.extended) == (8_000, 0, (("x.io/y", 0),))
    assert fact.rv == 0
    assert [p.place for p in fact.problems] == [
        "status.allocatable memory",
        "status.allocatable x.io/y",
    ]


def test_a_card_cannot_have_absurd_memory() -> None:
    register = decode_register("GPU-a,10,1000000000,NVIDIA-X,true,hami-core:")
    assert register.cards[0].memory_mib == 0
    assert "at most 9 digits" in register.problems[0].message
    capacity = {keys.GPU_MEMORY: "4Ei", keys.GPU_NUMBER: "2"}
    inventory, problems = FAMILIES["gpushare"].inventory(NodeSource({}, capacity, {}))
    assert inventory is None
    assert problems[0].place == f"status.capacity {keys.GPU_MEMORY}"
    none = FAMILIES["gpushare"].inventory(
        NodeSource({}, {keys.GPU_MEMORY: "0", keys.GPU_NUMBER: "0"}, {})
    )
    assert none == (None, ())


def test_strangers_who_take_more_of_a_resource_than_can_be_counted() -> None:
    state = build.state_of(
        build.node("n1", extended=(("example.com/x", 4),)), build.node("n2"), build.pod("a")
    )
    taken = PodRequest(0, 0, (("example.com/x", 1 << 62),))
    for number in range(3):
        apply(state, build.pod(f"x{number}", taken, node="n1", scheduler="other"), 10 + number)
    wanted = build.request(build.wants(), extended=(("example.com/x", 1),))
    apply(state, build.pod("b", wanted), 20)
    outcome = run_cycle(state, ["a", "b"], Board(state))
    assert outcome == run_cycle(state, ["a", "b"], Evaluator(state))
    assert [placement.uid for placement in outcome.placements] == ["a"]


@pytest.mark.parametrize("cores_pct", [9_000, 1 << 53])
def test_more_compute_asked_for_than_any_card_has(cores_pct: int) -> None:
    state = build.state_of(
        build.node("n1"), build.pod("a", build.request(build.wants(1, cores_pct)))
    )
    outcome = run_cycle(state, ["a"], Board(state))
    assert outcome == run_cycle(state, ["a"], Evaluator(state))
    assert outcome.refusals[0].reasons == ((reasons.INSUFFICIENT_GPU_COMPUTE, 1),)
