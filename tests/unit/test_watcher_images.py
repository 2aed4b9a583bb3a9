"""Images reach the log only where a policy weighs them, a pod asked and a node has them."""

from typing import Any

import msgspec

from allotment.core.config.policy import built_in, parse
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_proto.facts import Policy
from allotment_watcher.normalise import Lens, node_fact, pod_through
from allotment_watcher.normalise.images import NAMES_MAX, WantedImages
from allotment_watcher.objects import NodeObject, PodObject
from allotment_watcher.reported import Reported
from tests.unit.kube_json import Json, container, node_json, pod_json

NAMES = ("allotment",)
BIG, DIGEST = "example.com:5000/big:1", "example.com:5000/big@sha256:0"


def weighing(weight: int) -> Policy:
    arguments = f"arguments: {{imagelocality.weight: {weight}}}"
    text = f"tiers: [{{plugins: [{{name: nodeorder, {arguments}}}]}}]"
    return parse(text, "conf", NAMES).policy


def read_pod(policy: Policy, *images: str, **spec: Any) -> tuple[str, ...]:
    containers = [container(f"c{n}", image=image) for n, image in enumerate(images)]
    document = pod_json(*containers, schedulerName="allotment", **spec)
    return pod_through(Lens(policy), msgspec.convert(document, PodObject)).request.images


def node_with(*images: Json) -> NodeObject:
    document = node_json()
    document["status"]["images"] = list(images)
    return msgspec.convert(document, NodeObject)


def test_pods_name_their_images_only_if_the_policy_weighs_them() -> None:
    assert read_pod(weighing(1), "nginx", BIG, DIGEST) == (BIG, DIGEST, "nginx:latest")
    assert read_pod(weighing(1), BIG, nodeName="n1") == ()
    assert read_pod(weighing(0), BIG) == read_pod(built_in(NAMES), BIG) == ()


def test_nodes_name_what_was_asked_for_with_sizes_rounded_up() -> None:
    wanted = WantedImages()
    wanted.add((BIG, "other:1"))
    node = node_with(
        {"names": [DIGEST, BIG], "sizeBytes": (900 << 20) + 1},
        {"names": ["other:1"], "sizeBytes": 1},
        {"names": ["unheard:1"], "sizeBytes": 5 << 30},
        {"names": None, "sizeBytes": None},
    )
    fact = node_fact(node, wanted_images=wanted)
    assert fact.images == ((BIG, 901), ("other:1", 1))
    assert node_fact(node).images == ()


def test_a_restart_is_no_news() -> None:
    wanted = WantedImages()
    wanted.add((BIG,))
    node = node_with({"names": [BIG], "sizeBytes": 1 << 30})
    state = ClusterState()
    apply(state, node_fact(node, wanted_images=wanted), 1)
    reported, again = Reported(state), WantedImages()
    again.begin(state)
    assert reported.nodes.seen(node_fact(node, wanted_images=again)) == []


def test_only_the_last_names_are_kept() -> None:
    wanted = WantedImages()
    wanted.add(["first:1", "second:1"])
    wanted.add(f"more:{n}" for n in range(NAMES_MAX - 2))
    wanted.add(["first:1", "last:1"])
    assert ("first:1" in wanted, "second:1" in wanted, "last:1" in wanted) == (True, False, True)


def test_pods_that_differ_in_their_images_only_are_read_once() -> None:
    lens = Lens(weighing(1))
    first, second = (
        pod_json(container(limits={"volcano.sh/vgpu-number": 1}, image=image))
        for image in ("a:1", "b:1")
    )
    one = pod_through(lens, msgspec.convert(first, PodObject)).request
    other = pod_through(lens, msgspec.convert(second, PodObject)).request
    assert (one.images, other.images) == (("a:1",), ("b:1",))
    assert one.devices
    assert one.devices is other.devices
