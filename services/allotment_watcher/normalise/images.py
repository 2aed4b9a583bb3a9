"""Which images pods want and nodes have, as far as the policy weighs that.

A node lists up to 50 images, most of which no pod here ever asks for: recorded are those that pods
of ours asked for, so that a node's fact stays small. An image that a node has had for long is
recorded with its next status after a pod first asks; kubelet writes one at least every five
minutes. Source: Kubernetes' `imagelocality` (names without a tag mean ``:latest``).
"""

from collections.abc import Container, Iterable

from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import Amounts
from allotment_watcher import objects

NAMES_MAX = 1024
SIZE_MIB_MAX = 1 << 30
MIB_BITS = 20


class WantedImages:
    """The names that pods of ours asked for; of more than `NAMES_MAX` the last ones."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def begin(self, state: ClusterState) -> None:
        """Know what the log knows, so that a restart is no news."""
        for node in state.nodes.values():
            if node.fact is not None:
                self.add(name for name, _ in node.fact.images)
        for pod in state.pods.values():
            self.add(pod.fact.request.images)

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        while len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]

    def __contains__(self, name: object) -> bool:
        return name in self._names


def images_of_pod(pod: objects.PodObject) -> tuple[str, ...]:
    """The image of every container, sorted."""
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    return tuple(sorted(_full_name(c.image) for c in containers if c.image))


def images_of_node(node: objects.NodeObject, wanted: Container[str]) -> Amounts:
    """Name and size in MiB, rounded up, of the wanted ones that the node has; sorted."""
    found = {}
    for image in (node.status.images if node.status else None) or ():
        size_mib = min(-(-max(image.size_bytes or 0, 0) >> MIB_BITS), SIZE_MIB_MAX)
        for name in image.names or ():
            if name in wanted and size_mib:
                found[name] = size_mib
    return tuple(sorted(found.items()))


def _full_name(name: str) -> str:
    has_tag = name.rfind(":") > name.rfind("/")
    return name if has_tag else f"{name}:latest"
