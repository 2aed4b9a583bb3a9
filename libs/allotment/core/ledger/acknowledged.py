"""When a node's device plugin is through with a pod, and how many it has still to serve.

kubelet asks device plugins for one pod after the other, whatever they are asked for. So everything
that a node's plugins have still to serve stands in front of the next pod that is placed there.
"""

from collections.abc import Iterable

from allotment_proto.events import PodObserved
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys


def is_acknowledged(fact: PodObserved, holdings: Iterable[Holding]) -> bool:
    """Whether the device plugin is through with a pod that was bound: it marked it, where that is
    final, or the pod started. `holdings` are what the log booked for it.
    """
    if not fact.node:
        return False
    if fact.phase != "Pending" or fact.bind_phase == keys.PHASE_FAILED:
        return True
    return fact.bind_phase == keys.PHASE_SUCCESS and not any(
        held.family in keys.SUCCESS_IS_EARLY for held in fact.holdings or holdings
    )
