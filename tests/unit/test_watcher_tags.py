"""From whom a pod keeps apart on a card, and what it is to others: groups and exclusive rules."""

from typing import Any

import pytest

from allotment_proto.events import PodObserved
from allotment_proto.facts import PodRequest, Policy
from tests.unit.kube_json import Json, container, pod_json, refused, seen

VGPU = {"volcano.sh/vgpu-number": 1}
GROUP = {"scheduling.k8s.io/group-name": "gang"}
SPREAD = {**GROUP, "volcano.sh/vgpu-podgroup-policy": "spread"}
RULES = Policy(exclusive_rules=((("app", "train"),), (("app", "train"), ("team", "ml"))))
TRAIN, ML = "exclusive:app=train", "exclusive:app=train,team=ml"


def pod(
    annotations: Json | None = None,
    labels: Json | None = None,
    limits: Any = VGPU,
    policy: Policy = RULES,
    **spec: Any,
) -> PodObserved:
    document = pod_json(container(limits=limits), annotations=annotations, **spec)
    document["metadata"]["labels"] = labels
    return seen(document, policy)


def test_a_pod_with_cards_and_a_group_is_known_by_it_and_keeps_apart_only_if_it_says_so() -> None:
    together, spread = pod(GROUP), pod(SPREAD)
    assert together.tags == spread.tags == ("group:team-a/gang",)
    assert (together.request.apart, spread.request.apart) == ((), ("group:team-a/gang",))
    assert spread.problem is None
    assert pod(SPREAD, limits={"cpu": "1"}).tags == ()
    alone = pod({"volcano.sh/vgpu-podgroup-policy": "spread"})
    assert (alone.tags, alone.request.apart) == ((), ())


def test_other_words_than_spread_are_refused_of_pods_that_wait() -> None:
    word = {**GROUP, "volcano.sh/vgpu-podgroup-policy": "scatter"}
    refused(pod(word), "volcano.sh/vgpu-podgroup-policy", "'scatter'; wanted: spread")
    assert pod(word).request == PodRequest()
    assert pod(word, nodeName="n1").problem is None


def test_a_pod_is_tagged_with_the_rules_it_matches_and_keeps_apart_from_their_pods() -> None:
    both = pod(labels={"app": "train", "team": "ml", "x": "y"})
    assert both.tags == both.request.apart == (TRAIN, ML)
    one = pod(SPREAD, labels={"app": "train", "team": "hr"})
    assert one.tags == one.request.apart == ("group:team-a/gang", TRAIN)
    assert pod(labels={"app": "serve"}).tags == ()
    assert pod(labels={"app": "train"}, policy=Policy()).tags == ()


def test_rules_hold_only_where_cards_are_shared_by_software() -> None:
    labels = {"app": "train"}
    for mode, tags in (("hami-core", (TRAIN,)), ("mig", ()), ("mps", ())):
        fact = pod({"volcano.sh/vgpu-mode": mode}, labels)
        assert (fact.tags, fact.request.apart) == (tags, tags)
    assert pod(labels=labels, limits={"volcano.sh/gpu-memory": 5}).tags == ()
    share = {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,1,0:"}
    piece = {"volcano.sh/vgpu-ids-new": "GPU-a[group1-0],NVIDIA,1,0:"}
    assert pod(share, labels, nodeName="n1").tags == (TRAIN,)
    assert pod(piece, labels, nodeName="n1").tags == ()


def test_a_pod_that_runs_although_we_would_refuse_it_has_its_tags_too() -> None:
    document = pod_json(
        container("a", VGPU),
        container("b", VGPU),
        annotations={**GROUP, "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,1,0:"},
        nodeName="n1",
    )
    document["metadata"]["labels"] = {"app": "train"}
    fact = seen(document, RULES)
    assert fact.problem is not None
    assert fact.tags == ("group:team-a/gang", TRAIN)


@pytest.mark.parametrize(
    ("owners", "owner"),
    [
        (None, ""),
        ([], ""),
        ([{"uid": "a"}, {"uid": "b", "controller": True}], "b"),
        ([{"uid": "a", "controller": None}], ""),
    ],
)
def test_the_owner_is_the_controller(owners: Any, owner: str) -> None:
    document = pod_json(container())
    document["metadata"]["ownerReferences"] = owners
    assert seen(document).owner == owner


def test_why_a_pod_ended_is_told() -> None:
    document = pod_json(container())
    document["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "x"}
    assert seen(document).reason == "UnexpectedAdmissionError"
    document["status"] = {"phase": "Running", "reason": None}
    assert seen(document).reason == ""
