"""What screens say of NPUs: no percent of AI cores, no memory that is not given out by amount."""

import pytest

from allotment.core.explain.causes.nodes import closest, node_steps
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.amounts import compute_text, part_text
from allotment.core.explain.rows.pod_views import pod_views, request_of
from allotment.core.explain.rows.views import cards_of, node_problems, node_views, usable_compute
from allotment.core.explain.rows.words import near_words, wants_text
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices.base import PodSource
from allotment.core.reasons import main_cause
from allotment_cli.read.ledger import ledger_lines, ledgers
from allotment_proto.facts import CardFact, Geometry, Holding, Inventory, Problem, Profile
from allotment_proto.volcano import ascend, mindcluster
from tests import build, chips


def cluster() -> ClusterState:
    """A 310P node with a piece given out, and a 910B3 node with a template and a whole chip."""
    word = chips.B910.common_word
    registered = chips.ascend_source(chips.entry("a", word), chips.entry("b", word))
    piece = Holding(mindcluster.FAMILY, 0, "0", 0, 2, "vir02")
    template = Holding(ascend.FAMILY, 0, "a", 16384, 0, f"{word}/vir05_1c_16g")
    whole = Holding(ascend.FAMILY, 0, "b", 65536, 5, f"{word}/")
    return build.state_of(
        chips.node(
            "n310", chips.inventory(mindcluster.FAMILY, chips.npu_source(2, unhealthy=(1,)))
        ),
        chips.node("n910", chips.inventory(ascend.FAMILY, registered)),
        build.pod("p", node="n310", phase="Running", holdings=(piece,)),
        build.pod("t", node="n910", phase="Running", holdings=(template,)),
        build.pod("w", node="n910", phase="Running", holdings=(whole,)),
    )


def test_parts_in_words() -> None:
    assert (compute_text(50, 100), compute_text(1, 8), compute_text(2, 8)) == (
        "50%",
        "1 AI core",
        "2 AI cores",
    )
    assert part_text(2 << 30, 0, 100) == "2.0 GiB memory, no compute limit"
    assert part_text(2 << 30, 0, 20) == "2.0 GiB memory"
    assert part_text(0, 2, 8) == "2 AI cores"


def test_the_ledger_of_chips_is_in_ai_cores_and_names_templates() -> None:
    lines = "\n".join(ledger_lines(ledgers(cluster())))
    assert "default/pod-p 2 AI cores [vir02]" in lines
    assert "default/pod-t 16.0 GiB [vir05_1c_16g]" in lines
    assert "default/pod-w 64.0 GiB 5 AI cores" in lines
    assert "%" not in lines
    of_310p = lines.partition("n910")[0]
    assert "MiB" not in of_310p
    assert "2/8" in of_310p


def test_a_chip_that_is_taken_whole_has_no_cores_left() -> None:
    word = chips.B910.common_word
    registered = chips.ascend_source(chips.entry("a", word), chips.entry("b", word))
    whole = Holding(ascend.FAMILY, 0, "a", 65536, 0, f"{word}/")
    state = build.state_of(
        chips.node("n910", chips.inventory(ascend.FAMILY, registered)),
        build.pod("w", node="n910", phase="Running", holdings=(whole,)),
    )
    taken, idle = cards_of(state, state.nodes["n910"])
    assert (usable_compute(taken), usable_compute(idle)) == (0, 20)
    lines = ledger_lines(ledgers(state))
    assert "  20/20  default/pod-w" in lines[2]
    assert "  0/20  -" in lines[3]


def test_a_chip_in_two_halves_has_no_cores_left_for_who_looks_for_the_nearest() -> None:
    """Pieces by memory book no AI cores, and leave none to others all the same."""
    word = chips.B910.common_word
    half = f"{word}/vir10_3c_32g"
    held = (
        build.pod(
            name,
            node="n910",
            phase="Running",
            holdings=(Holding(ascend.FAMILY, 0, "a", 32768, 0, half),),
        )
        for name in ("one", "other")
    )
    registered = chips.ascend_source(chips.entry("a", word))
    state = build.state_of(chips.node("n910", chips.inventory(ascend.FAMILY, registered)), *held)
    asked = chips.request(ascend.FAMILY, chips.pod_source(chips.asks("Ascend910B3", memory=16384)))
    assert wants_text(request_of(asked)) == "1 NPU: 16.0 GiB memory"
    (nearest,) = closest(state, asked, "InsufficientGPUMemory")
    assert near_words(nearest) == ("0 MiB", "0 AI cores", "16.0 GiB memory")
    (step,) = node_steps(state, state.nodes["n910"], asked, build.pod("a", asked)).cards
    assert (step.free_memory_bytes, step.free_compute_percent) == (0, 0)


def test_pods_that_hold_chips() -> None:
    state = cluster()
    views = {view.name: view for view in pod_views(state, Whys(state).of)}
    assert (views["pod-p"].compute_percent, views["pod-p"].compute_whole) == (2, 8)
    assert (views["pod-w"].compute_percent, views["pod-w"].compute_whole) == (5, 20)


def test_an_unhealthy_chip_without_memory_of_its_own_is_unhealthy_and_not_idle() -> None:
    state = cluster()
    (found,) = node_problems(state, state.nodes["n310"])
    assert found.message == "registered as unhealthy by its device plugin; the card is idle"
    assert [view.cards_idle for view in node_views(state)] == [0, 0]


@pytest.mark.parametrize(
    ("family", "source", "words"),
    [
        (mindcluster.FAMILY, chips.pod_source(chips.npu(2)), "1 NPU: 2 AI cores"),
        (mindcluster.FAMILY, chips.pod_source(chips.npu(16)), "2 NPUs: each 8 AI cores"),
        (
            ascend.FAMILY,
            chips.pod_source(chips.asks("Ascend910B3", memory=16384)),
            "1 NPU: 16.0 GiB memory",
        ),
    ],
)
def test_a_request_for_chips_in_words(family: str, source: PodSource, words: str) -> None:
    assert wants_text(request_of(chips.request(family, source))) == words


def test_the_cause_is_that_of_the_nodes_that_came_nearest() -> None:
    assert main_cause((("NoGPU", 10), ("GPUModeMismatch", 1))) == "GPUModeMismatch"
    counted = (("GPUModelMismatch", 4), ("GPUUnhealthy", 1), ("NoGPU", 6))
    assert main_cause(counted) == "GPUUnhealthy"
    assert main_cause((*counted, ("NoFittingInstance", 1))) == "NoFittingInstance"


def test_instances_that_no_geometry_has_are_a_problem_of_their_card() -> None:
    card = CardFact("GPU-a", 0, "NVIDIA-A100", 10, 40960, 100, True, "mig", 0)
    table = (Geometry("group1", (Profile("1g.5gb", 5120, 7),)),)
    cut = Inventory("vgpu", "mig", (card,), (table,))
    odd = Holding("vgpu", 0, "GPU-a", 5000, 0, "group1-9")
    held = build.pod("a", node="n1", phase="Running", holdings=(odd,))
    state = build.state_of(chips.node("n1", cut), held)
    (found,) = node_problems(state, state.nodes["n1"])
    assert (found.code, found.place) == ("InstancesContradict", "GPU-0")
    assert "[group1-9]" in found.message


def test_a_quarantine_is_shown_with_the_node() -> None:
    broken = Problem("BrokenAssignment", "annotation volcano.sh/vgpu-ids-new", "is 'x'")
    held = build.pod("a", node="n1", phase="Running", broken=broken)
    (view,) = node_views(build.state_of(build.node("n1", 1), held))
    (problem,) = view.problems
    assert (problem.code, problem.place) == ("CardsQuarantined", "pod default/pod-a")
    assert problem.message.endswith("annotation volcano.sh/vgpu-ids-new is 'x'")
