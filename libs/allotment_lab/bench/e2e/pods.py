"""The objects that `allot bench e2e` creates: nodes with cards, and pods that ask for some.

Bodies are encoded before the clock starts: the load must cost less than what it is put on.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from allotment.core.jobs.keys import POD_QUEUE
from allotment_local.nodes.objects import card_id, node_objects
from allotment_local.nodes.shapes import VGPU, WHOLE, WHOLE_RESOURCE, Cards, NodeShape
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys, vgpu

SHARES, CARDS, NOTHING = "shares", "cards", "nothing"
ASKS = (SHARES, CARDS, NOTHING)
"""What the pods of a run ask for: a part of a card, a counted card, or only CPU and memory."""
CARDS_PER_NODE = 8
SLOTS = 20
CARD_MEMORY_MIB = 81_920
MODEL = "NVIDIA A100-SXM4-80GB"
PODS_PER_NODE = {SHARES: 100, CARDS: CARDS_PER_NODE, NOTHING: 100}
"""No more than a kubelet takes, and than the cards of a node hold of any shape."""
SHAPES = 16
BENCH_LABEL = "allotment.dev/bench"


class Body(NamedTuple):
    """One object to create: its name and its encoded form."""

    name: str
    data: bytes


def node_names(count: int, run: str) -> list[str]:
    return [f"{run}-{number}" for number in range(count)]


def node_shapes(count: int, run: str, ask: str) -> tuple[NodeShape, ...]:
    """`count` equal nodes, labelled with the name of the run."""
    cards = Cards(MODEL, CARDS_PER_NODE, CARD_MEMORY_MIB, slots=SLOTS)
    labels = ((BENCH_LABEL, run),)
    return tuple(
        NodeShape(name, _kind(ask), cards, labels=labels) for name in node_names(count, run)
    )


def nodes_yaml(count: int, run: str, ask: str) -> str:
    """The same nodes as a file for local mode."""
    gpus: dict[str, Any] = {
        "model": MODEL,
        "count": CARDS_PER_NODE,
        "memory_mib": CARD_MEMORY_MIB,
        "slots": SLOTS,
    }
    labels = {BENCH_LABEL: run}
    node = {"prefix": run, "count": count, "kind": _kind(ask), "gpus": gpus, "labels": labels}
    return msgspec.json.encode([node]).decode()


def _kind(ask: str) -> str:
    return WHOLE if ask == CARDS else VGPU


def pod_bodies(
    names: Sequence[str],
    scheduler: str,
    run: str,
    ask: str,
    replicas: int = 1,
    queues: Sequence[str] = (),
) -> list[Body]:
    """Pods for one scheduler on the nodes of one run, in turn in these queues.

    `replicas` pods of one shape come in a row, as from a Deployment.
    """
    bodies = []
    for number, name in enumerate(names):
        pod = _pod(name, number // replicas, scheduler, run, ask)
        if queues:
            queue = queues[number // replicas % len(queues)]
            pod["metadata"]["annotations"] = {POD_QUEUE: queue}
        bodies.append(Body(name, msgspec.json.encode(pod)))
    return bodies


def names(prefix: str, count: int) -> Iterator[str]:
    return (f"{prefix}-{number:05d}" for number in range(count))


def bindings(
    pods: Sequence[str], nodes: Sequence[str], ask: str, replicas: int, first_stamp: int
) -> list[bytes]:
    """A Binding for each of these pods, one node after the other, one card after the other, with
    the annotations that the binder sends.
    """
    made: list[bytes] = []
    for number, pod in enumerate(pods):
        node = nodes[number % len(nodes)]
        metadata: dict[str, Any] = {"name": pod}
        if ask == SHARES:
            memory_mib, cores_pct = _share(number // replicas)
            card = card_id(node, number // len(nodes) % CARDS_PER_NODE)
            held = (Holding(vgpu.FAMILY, 0, card, memory_mib, cores_pct),)
            stamp = first_stamp + number
            metadata["annotations"] = vgpu.binding_annotations(node, held, stamp, stamp)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        made.append(msgspec.json.encode(body))
    return made


def node_bodies(count: int, run: str, ask: str, now: str) -> list[dict[str, Any]]:
    """The Node objects of a run."""
    return node_objects(node_shapes(count, run, ask), now)


def _pod(name: str, number: int, scheduler: str, run: str, ask: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    limits = _limits(number, ask)
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


def _limits(number: int, ask: str) -> dict[str, str]:
    if ask == NOTHING:
        return {}
    if ask == CARDS:
        return {WHOLE_RESOURCE: "1"}
    memory_mib, cores_pct = _share(number)
    return {
        keys.VGPU_NUMBER: "1",
        keys.VGPU_MEMORY: str(memory_mib),
        keys.VGPU_CORES: str(cores_pct),
    }


def _share(number: int) -> tuple[int, int]:
    """MiB and percent of one card, in one of `SHAPES` shapes: 1 to 4 GiB, 0 to 5 %."""
    shape = number % SHAPES
    return 1024 + 256 * (shape % 13), shape % 6
