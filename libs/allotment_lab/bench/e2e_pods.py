"""The objects that `allot bench e2e` creates: nodes with cards, and pods in sixteen shapes.

Bodies are encoded before the clock starts: the load must cost less than what it is put on.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shapes import VGPU, Cards, NodeShape
from allotment_proto.volcano import keys

CARDS = 8
SLOTS = 20
CARD_MEMORY_MIB = 81_920
PODS_PER_NODE = 100
"""Fewer than a kubelet takes, and than the cards of a node hold of any shape."""
SHAPES = 16
BENCH_LABEL = "allotment.dev/bench"


class Body(NamedTuple):
    """One object to create: its name and its encoded form."""

    name: str
    data: bytes


def node_shapes(count: int, run: str) -> tuple[NodeShape, ...]:
    """`count` equal nodes, labelled with the name of the run."""
    cards = Cards("NVIDIA A100-SXM4-80GB", CARDS, CARD_MEMORY_MIB, slots=SLOTS)
    return tuple(
        NodeShape(f"{run}-{number:04d}", VGPU, cards, labels=((BENCH_LABEL, run),))
        for number in range(count)
    )


def nodes_yaml(count: int, run: str) -> str:
    """The same nodes as a file for local mode."""
    gpus = {
        "model": "NVIDIA A100-SXM4-80GB",
        "count": CARDS,
        "memory_mib": CARD_MEMORY_MIB,
        "slots": SLOTS,
    }
    node = {"prefix": run, "count": count, "kind": VGPU, "gpus": gpus, "labels": {BENCH_LABEL: run}}
    return msgspec.json.encode([node]).decode()


def node_bodies(count: int, run: str, now: str) -> list[Body]:
    made = node_objects(node_shapes(count, run), now)
    return [Body(node["metadata"]["name"], msgspec.json.encode(node)) for node in made]


def pod_bodies(
    names: Sequence[str], scheduler: str, run: str, *, plain: bool, replicas: int = 1
) -> list[Body]:
    """Pods for one scheduler on the nodes of one run. `plain`: CPU and memory, no cards.

    `replicas` pods of one shape come in a row, as from a Deployment.
    """
    return [
        Body(name, msgspec.json.encode(_pod(name, number // replicas, scheduler, run, plain=plain)))
        for number, name in enumerate(names)
    ]


def names(prefix: str, count: int) -> Iterator[str]:
    return (f"{prefix}-{number:05d}" for number in range(count))


def _pod(name: str, number: int, scheduler: str, run: str, *, plain: bool) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    limits = {} if plain else _shape(number % SHAPES)
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {**requests, **limits}, "limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {BENCH_LABEL: run}},
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": False,
            "nodeSelector": {BENCH_LABEL: run},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _shape(number: int) -> dict[str, str]:
    """A part of one card: 1 to 4 GiB of memory, 0 to 5 % of the cores."""
    return {
        keys.VGPU_NUMBER: "1",
        keys.VGPU_MEMORY: str(1024 + 256 * (number % 13)),
        keys.VGPU_CORES: str(number % 6),
    }
