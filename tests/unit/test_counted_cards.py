"""Lists of card types, where cards are only counted: the node's product label says the model."""

from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import Node
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.predicates import Fit, fits
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Policy, Selection
from tests import build
from tests.unit.kube_json import asks, container, node_json, pod_json, refused, seen
from tests.unit.kube_json import node as node_seen

PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"


def types(use: str = "", nouse: str = "") -> dict[str, str]:
    given = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": nouse}
    return {key: value for key, value in given.items() if value}


def pod(limits: dict[str, Any], annotations: dict[str, str], **spec: Any) -> PodObserved:
    return seen(pod_json(container(limits=limits), annotations=annotations, **spec))


def answer(fact: NodeObserved, wanted: PodObserved) -> str:
    node = Node("n", 0)
    node.rebuild(fact)
    found = fits(node, wanted.request, Policy())
    return "fits" if isinstance(found, Fit) else found


def listing(product: str = "", resource: str = GPU, name: str = "n") -> NodeObserved:
    labels = ((PRODUCT, product),) if product else ()
    return build.node(name, 0, labels=labels, extended=((resource, 8),))


@pytest.mark.parametrize(
    ("product", "annotations", "wanted"),
    [
        ("NVIDIA-H100-80GB-HBM3", types(use="A100,V100"), reasons.GPU_MODEL_MISMATCH),
        ("NVIDIA-A100-SXM4-40GB", types(use="A100,V100"), "fits"),
        ("Tesla-V100-SXM2-32GB", types(use=" a100 , Tesla V100"), "fits"),
        ("NVIDIA-H100-80GB-HBM3", types(nouse="H100"), reasons.GPU_MODEL_MISMATCH),
        ("Tesla-T4", types(nouse="H100"), "fits"),
        ("Tesla-T4", {}, "fits"),
        ("", {}, "fits"),
        ("", types(use="A100"), reasons.GPU_MODEL_MISMATCH),
        ("", types(nouse="A100"), reasons.GPU_MODEL_MISMATCH),
    ],
)
def test_a_list_of_types_is_held_against_the_product_label(
    product: str, annotations: dict[str, str], wanted: str
) -> None:
    assert answer(listing(product), pod({GPU: "1"}, annotations)) == wanted


def test_parts_of_cards_that_are_cut_beforehand_have_their_cards_model() -> None:
    mig = "nvidia.com/mig-1g.5gb"
    wanted = pod({mig: "1"}, types(use="A100"))
    assert answer(listing("NVIDIA-A100-SXM4-40GB", mig), wanted) == "fits"
    assert answer(listing("NVIDIA-A30", mig), wanted) == reasons.GPU_MODEL_MISMATCH
    assert answer(listing("", mig), wanted) == reasons.GPU_MODEL_MISMATCH


def test_what_is_no_card_has_no_model() -> None:
    wanted = pod({"rdma/hca": "1"}, types(use="A100"))
    assert answer(listing("", "rdma/hca"), wanted) == "fits"
    other = build.node("n", 0, labels=(("x.io/npu.product", "N2"),), extended=(("x.io/npu", 1),))
    assert answer(other, pod({"x.io/npu": "1"}, types(use="N1"))) == reasons.GPU_MODEL_MISMATCH
    assert answer(other, pod({"x.io/npu": "1"}, types(use="n2"))) == "fits"


def test_a_node_without_such_cards_has_none_and_no_wrong_ones() -> None:
    assert answer(build.node("n", 0), pod({GPU: "1"}, types(use="A100"))) == reasons.NO_GPU


def test_the_refusal_names_the_models_there_are() -> None:
    wanted = pod({GPU: "1"}, types(use="A100"))
    state = build.state_of(
        listing("NVIDIA-H100-80GB-HBM3", name="h1"),
        listing("NVIDIA-H100-80GB-HBM3", name="h2"),
        listing(name="u"),
        wanted,
    )
    (refusal,) = run_cycle(state, (wanted.uid,), Evaluator(state)).refusals
    assert refusal.reasons == ((reasons.GPU_MODEL_MISMATCH, 3),)
    assert refusal.notes == (
        "models of nvidia.com/gpu by nodes: not said (no label nvidia.com/gpu.product) (1), "
        "NVIDIA-H100-80GB-HBM3 (2); wanted: A100",
    )


@pytest.mark.parametrize(
    "annotation",
    ["volcano.sh/gpu-index", "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"],
)
def test_single_cards_cannot_be_named_where_kubelet_chooses(annotation: str) -> None:
    given = {annotation: "0"}
    said = (reasons.INVALID_REQUEST, annotation, "nvidia.com/gpu", "kubelet chooses", "remove")
    refused(pod({GPU: "1"}, given), *said)
    refused(pod({"nvidia.com/mig-1g.5gb": "1"}, given), annotation)
    assert pod({"rdma/hca": "1"}, given).problem is None
    assert pod({"volcano.sh/vgpu-number": "1"}, given).problem is None
    assert pod({GPU: "1"}, given, nodeName="n").problem is None, "it runs already"


def test_a_list_that_says_nothing_is_refused_for_counted_cards_as_well() -> None:
    refused(pod({GPU: "1"}, {"nvidia.com/use-gputype": " , "}), "InvalidSelection", "card types")
    assert asks({"cpu": "1"}, **{"nvidia.com/use-gputype": ","}).problem is None


def test_a_pod_with_shares_and_counted_cards_chooses_both() -> None:
    fact = pod({GPU: "1", "volcano.sh/vgpu-number": "1"}, types(use="A100"))
    assert fact.request.selection == Selection(use_types=("A100",), counted=(GPU,))


def test_cards_shared_by_memory_have_the_model_of_their_nodes_label() -> None:
    amounts = {"volcano.sh/gpu-memory": "32000", "volcano.sh/gpu-number": "2"}
    document = node_json(allocatable=amounts, capacity=amounts)
    shared = {"volcano.sh/gpu-memory": "1000"}
    assert answer(node_seen(document), pod(shared, types(use="A100"))) == reasons.GPU_MODEL_MISMATCH
    document["metadata"]["labels"][PRODUCT] = "Tesla-T4"
    fact = node_seen(document)
    assert [card.model for card in fact.inventories[0].cards] == ["Tesla-T4", "Tesla-T4"]
    assert answer(fact, pod(shared, types(use="Tesla T4"))) == "fits"
    assert answer(fact, pod(shared, types(nouse="T4"))) == reasons.GPU_MODEL_MISMATCH
