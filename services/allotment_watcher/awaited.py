"""Which news of a pod a service waits for: all but that it was bound by us, and that it runs.

Both follow from what the log holds already. What a device plugin says is awaited: the next pod of
its node may have to wait for it.
"""

from collections.abc import Container

from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys


def is_awaited(last: PodObserved | None, fact: PodObserved, ours: Container[str]) -> bool:
    """Whether a service waits for `fact`. `last` is what was reported last, `ours` the names of
    our schedulers.
    """
    if last is None or fact.deleting or not fact.node or fact.scheduler not in ours:
        return True
    if fact.phase == "Pending":
        return last.node == fact.node or fact.bind_phase not in ("", keys.PHASE_ALLOCATING)
    was_waited_for = last.bind_phase == keys.PHASE_ALLOCATING
    return fact.phase != "Running" or last.node != fact.node or was_waited_for
