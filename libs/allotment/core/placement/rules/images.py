"""What a node earns for images that it already has, in plain loops: nodeorder's image locality.

The sizes of the pod's images on the node count, each in proportion to how many nodes have it (the
only node with an image must not get every pod), from 23 MiB to 1,000 MiB a container. Source:
Kubernetes' `imagelocality`. `allotment_board.terms` has the same on columns.
"""

from collections.abc import Mapping, Sequence

from allotment.core.ledger.model import Node
from allotment_proto.facts import PodRequest

KIB_PER_MIB = 1024
LEAST_KIB = 23 * KIB_PER_MIB
MOST_KIB = 1_000 * KIB_PER_MIB
"""For each container."""
POINTS = 100


def image_points(feasible: Sequence[Node], nodes: Sequence[Node], request: PodRequest) -> list[int]:
    """0 … 100 for each feasible node. `nodes` are all nodes."""
    if not request.images:
        return [0] * len(feasible)
    having = {name: sum(name in _images(n) for n in nodes) for name in request.images}
    found = []
    for node in feasible:
        sizes_mib = _images(node)
        scaled_kib = sum(
            sizes_mib.get(name, 0) * KIB_PER_MIB * having[name] // len(nodes)
            for name in request.images
        )
        found.append(points_of(scaled_kib, len(request.images)))
    return found


def points_of(scaled_kib: int, containers: int) -> int:
    """Points for this much of the images, in KiB."""
    most_kib = MOST_KIB * containers
    clipped_kib = min(max(scaled_kib, LEAST_KIB), most_kib)
    return POINTS * (clipped_kib - LEAST_KIB) // (most_kib - LEAST_KIB)


def _images(node: Node) -> Mapping[str, int]:
    return {} if node.fact is None else dict(node.fact.images)
