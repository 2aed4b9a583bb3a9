"""How many volumes of a driver a node can attach, in plain loops.

A claim is one volume, however many pods of a node use it. Drivers without a limit on the node take
any number. A node has attached the claims of the pods that are booked on it; a volume that a pod
left behind, or that no pod of the cluster uses, does not count.

Most claims are of one pod only. A cycle requests these by number, not by name (`merged`), so that
pods that differ only in the names of their claims share all work. Source: Kubernetes'
`nodevolumelimits`. `allotment_board.tallies` has the same on columns.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from allotment.core.ledger.model import ClusterState, Node
from allotment_proto.facts import Attachment, PodRequest


class Attaching(NamedTuple):
    """What a driver of a node would have to attach for a pod, and what it has attached."""

    driver: str
    new: int
    attached: int
    limit: int

    @property
    def is_too_much(self) -> bool:
        """Whether the limit is exceeded; not for a pod all of whose volumes are attached
        already.
        """
        return 0 < self.new > self.limit - self.attached


def attaching(node: Node, request: PodRequest) -> list[Attaching]:
    """What the pod needs of each driver for which the node has a limit."""
    fact = node.fact
    if fact is None or not fact.volume_limits or not request.attachments:
        return []
    limits = dict(fact.volume_limits)
    return [
        Attaching(driver, number, len(node.attached.get(driver, ())), limits[driver])
        for driver, number in _new_volumes(node, request).items()
        if driver in limits
    ]


def exceeds_limits(node: Node, request: PodRequest) -> bool:
    """Whether the volumes that the pod needs exceed a limit of the node."""
    return any(found.is_too_much for found in attaching(node, request))


def _new_volumes(node: Node, request: PodRequest) -> Mapping[str, int]:
    """How many volumes of each driver would have to be attached for the pod."""
    found: Counter[str] = Counter()
    for wanted in request.attachments:
        if not wanted.claim or wanted.claim not in node.attached.get(wanted.driver, ()):
            found[wanted.driver] += wanted.count
    return found


def merged(request: PodRequest, state: ClusterState) -> PodRequest:
    """The request with a number in place of the claims that no other pod has; the same object if it
    has no claims.
    """
    if not request.attachments:
        return request
    shared = [a for a in request.attachments if state.claimed.get(a, 0) > 1]
    own = Counter(a.driver for a in request.attachments if state.claimed.get(a, 0) <= 1)
    numbers = [Attachment(driver, "", number) for driver, number in sorted(own.items())]
    return msgspec.structs.replace(request, attachments=(*numbers, *shared))
