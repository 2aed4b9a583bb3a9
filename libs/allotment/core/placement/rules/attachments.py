"""How many volumes of a driver a node can have attached, in plain loops.

A claim is one volume, however many pods of a node use it. Drivers for which a node names no limit
take any number. What a node has attached are the claims of the pods that are booked on it, so a
volume that a pod left behind, or that no pod of the cluster uses, does not count.

Most claims are of one pod only. A cycle asks for these by number and not by name (`merged`), so
that pods that differ in nothing but the names of their claims share all work.
Source: Kubernetes' `nodevolumelimits`. `crowd` has the same on columns.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from allotment.core.ledger.model import ClusterState, Node
from allotment_proto.facts import Attachment, PodRequest


class Attaching(NamedTuple):
    """What one driver of a node would have to attach for a pod, and what it has attached."""

    driver: str
    new: int
    attached: int
    limit: int

    @property
    def is_too_much(self) -> bool:
        """A pod whose volumes all are there already needs nothing."""
        return 0 < self.new > self.limit - self.attached


def attaching(node: Node, request: PodRequest) -> list[Attaching]:
    """What the pod needs of each driver for which the node names a limit."""
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
    """Whether the node cannot have all volumes attached that it would need for the pod."""
    return any(found.is_too_much for found in attaching(node, request))


def _new_volumes(node: Node, request: PodRequest) -> Mapping[str, int]:
    """How many volumes of each driver would have to be attached for the pod."""
    found: Counter[str] = Counter()
    for wanted in request.attachments:
        if not wanted.claim or wanted.claim not in node.attached.get(wanted.driver, ()):
            found[wanted.driver] += wanted.count
    return found


def merged(request: PodRequest, state: ClusterState) -> PodRequest:
    """The request with a number in place of the claims that no other pod has; the very request if
    it has no claims.
    """
    if not request.attachments:
        return request
    shared = [a for a in request.attachments if state.claimed.get(a, 0) > 1]
    own = Counter(a.driver for a in request.attachments if state.claimed.get(a, 0) <= 1)
    numbers = [Attachment(driver, "", number) for driver, number in sorted(own.items())]
    return msgspec.structs.replace(request, attachments=(*numbers, *shared))
