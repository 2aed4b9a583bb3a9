"""The first sentence about a pod that waits names the obstacle of the nearest nodes."""

from typing import Any

import msgspec
import pytest

from allotment.core.explain.causes.why import Why, Whys
from allotment.core.explain.doctor import findings
from allotment.core.explain.rows.pod_views import pod_views
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_proto.facts import (
    Company,
    Constraints,
    Expression,
    PodRequest,
    PodTerm,
    Selection,
    Spread,
    Taint,
)
from tests.recording import Recorder, uid_of, vgpu

SERVING = Taint("dedicated", "serving", "NoSchedule")
DB = (Expression("app", "In", ("db",)),)


def asking(request: PodRequest | None = None, **selection: Any) -> PodRequest:
    return msgspec.structs.replace(request or vgpu(), selection=Selection(**selection))


def with_company(**fields: Any) -> PodRequest:
    return msgspec.structs.replace(vgpu(), company=Company(**fields))


def cluster(**of_a100: Any) -> Recorder:
    """A node without cards, two T4 nodes, and one A100 node as it is told."""
    log = Recorder()
    log.node("cpu-1", cards=0)
    log.node("gpu-t4-a", "NVIDIA-T4", cards=2, memory_mib=16_384)
    log.node("gpu-t4-b", "NVIDIA-T4", cards=2, memory_mib=16_384)
    log.node("gpu-a100", "NVIDIA-A100", cards=2, **of_a100)
    return log


def why(log: Recorder, name: str = "p") -> Why:
    return Whys(log.state).of(log.state.pods[uid_of(f"default/{name}")])


def waiting(log: Recorder, request: PodRequest) -> Why:
    """Why a pod waits that asks for this, once it was refused."""
    log.decide(log.pod("p", request))
    assert log.state.pods[uid_of("default/p")].refusal is not None
    return why(log)


A100 = asking(use_types=("A100",))
FEW: dict[str, tuple[dict[str, Any], PodRequest, str, str]] = {
    "a cordon": ({"unschedulable": True}, A100, "NodeCordoned", "gpu-a100 fits but is cordoned"),
    "a node that is not ready": (
        {"ready": False},
        A100,
        "NodeNotReady",
        "gpu-a100 fits but is not ready",
    ),
    "a taint": (
        {"taints": (SERVING,)},
        A100,
        "TaintNotTolerated",
        "gpu-a100 fits but has the taint dedicated=serving:NoSchedule, which the pod does not "
        "tolerate; the toleration to add: "
        "{key: dedicated, operator: Equal, value: serving, effect: NoSchedule}",
    ),
    "another model": (
        {},
        asking(use_types=("H200",)),
        "GPUModelMismatch",
        "model H200 requested; the cluster has NVIDIA-T4 (2 nodes), NVIDIA-A100 (1 node)",
    ),
    "a mode": (
        {},
        asking(use_types=("A100",), mode="mig"),
        "GPUModeMismatch",
        "gpu-a100 shares cards in mode hami-core, and the pod requests mig; to use it, set "
        "volcano.sh/vgpu-mode: hami-core",
    ),
    "fewer indexes than cards": (
        {},
        asking(vgpu(count=2), use_types=("A100",), indexes=(0,)),
        "GPUNotSelected",
        "the pod accepts only card index 0 (fewer than the cards it requests); gpu-a100 has index "
        "0 to 1",
    ),
    "a selector": (
        {},
        msgspec.structs.replace(A100, constraints=Constraints(node_selector=(("zone", "mars"),))),
        "SelectorMismatch",
        "nodeSelector zone=mars excludes node gpu-a100, which would fit; none of them has zone",
    ),
    "more memory than a card has": (
        {},
        vgpu(memory_mib=100_000),
        "InsufficientGPUMemory",
        "97.7 GiB of one GPU requested; the largest GPU that the pod accepts has 40.0 GiB",
    ),
    "a label that no node has": (
        {},
        with_company(spread=(Spread(PodTerm("zone", ("default",), DB), 1, True, False),)),
        "SpreadMismatch",
        "no node that would fit has the label zone of the topology spread constraint",
    ),
    "a pod that does not run": (
        {},
        with_company(near=(PodTerm("kubernetes.io/hostname", ("default",), DB),)),
        "PodAffinityMismatch",
        "required pod affinity: no pod with app in (db) runs in the cluster",
    ),
}


@pytest.mark.parametrize("row", FEW)
def test_the_nearest_nodes_name_the_cause(row: str) -> None:
    of_a100, request, code, text = FEW[row]
    found = waiting(cluster(**of_a100), request)
    assert (found.code, found.text) == (code, text)


def test_who_holds_all_suitable_cards_is_named() -> None:
    log = cluster()
    log.decide(log.pod("hog", asking(vgpu(count=1, cores_pct=100), use_types=("A100",))))
    log.decide(log.pod("fair", asking(vgpu(count=1, cores_pct=100), use_types=("A100",))))
    found = waiting(log, asking(vgpu(cores_pct=100), use_types=("A100",)))
    assert found.code == "ExclusiveConflict"
    assert found.text == (
        "all 2 suitable NVIDIA-A100 GPUs are in use by default/fair, default/hog; "
        "1 idle NVIDIA-A100 GPU requested"
    )


def test_a_cordoned_and_full_node_comes_before_other_models() -> None:
    log = cluster()
    log.decide(log.pod("hog", asking(vgpu(count=2, cores_pct=100), use_types=("A100",))))
    log.node("gpu-a100", "NVIDIA-A100", cards=2, unschedulable=True)
    found = waiting(log, asking(vgpu(count=2, cores_pct=100), use_types=("A100",)))
    assert found.code == "NodeCordoned", found


@pytest.mark.parametrize("row", FEW)
def test_every_screen_names_the_same_cause(row: str) -> None:
    of_a100, request, code, text = FEW[row]
    log = cluster(**of_a100)
    waiting(log, request)
    (view,) = pod_views(log.state, Whys(log.state).of)
    assert view.cause == code
    for each in findings(log.state, log.now_ms):
        if each.code == "NeverFits":
            assert each.message.startswith(f"{code}: {text}")


def test_a_pod_that_fits_nothing_but_an_empty_cluster_is_no_finding() -> None:
    log = cluster()
    log.decide(log.pod("hog", asking(vgpu(count=2, cores_pct=100), use_types=("A100",))))
    waiting(log, A100)
    assert [each.code for each in findings(log.state, log.now_ms)] == []


def test_a_node_that_fits_now_is_said() -> None:
    log = cluster()
    log.decide(log.pod("hog", asking(vgpu(count=2, cores_pct=100), use_types=("A100",))))
    waiting(log, A100)
    log.gone(uid_of("default/hog"))
    assert run_cycle(log.state, [uid_of("default/p")], Evaluator(log.state)).placements
    assert why(log).text == "1 node fits now; the scheduler retries the pod"
