"""Whether any group may be due: asked for every record of the log, so it opens no session.

It says yes where `groups.Groups` might find something, and may do so in vain; a no is certain.
"""

from collections.abc import Mapping

from allotment.core.batch.views import SINGLE
from allotment.core.fold_groups import DEFAULT_QUEUE
from allotment.core.model import ClusterState, Pod
from allotment.core.queues.model import Phase

_PASSED = frozenset((Phase.INQUEUE, Phase.RUNNING, Phase.UNKNOWN, Phase.COMPLETED))


def may_be_due(state: ClusterState, tried: Mapping[str, int]) -> bool:
    """Whether something that waits was not tried since it may have a chance.

    `tried` holds the sequence on which each group and single pod was tried last.
    """
    room_seq = max(state.room_seq, state.order_seq)
    for uid in state.pending:
        pod = state.pods[uid]
        key, changed_seq, known_seq = _stands(state, uid, pod)
        tried_seq = max(tried.get(key, 0), known_seq)
        if tried_seq == 0 or tried_seq < max(room_seq, changed_seq):
            return True
    queues = state.queues.keys() | {"", DEFAULT_QUEUE}
    for key, group in state.groups.items():
        fact = group.fact
        if fact is None:
            continue
        tried_seq = tried.get(key, 0)
        if tried_seq and tried_seq >= max(room_seq, group.changed_seq):
            continue
        is_at_the_gate = not group.admitted_seq and fact.phase not in _PASSED
        # Whose queue does not exist may have to be told.
        if is_at_the_gate or fact.queue not in queues:
            return True
    return False


def _stands(state: ClusterState, uid: str, pod: Pod) -> tuple[str, int, int]:
    """What a pending pod is tried as, when that changed last, and the basis of what it was told."""
    group = state.groups.get(pod.fact.group)
    if group is not None:
        return pod.fact.group, group.changed_seq, group.short_basis
    changed_seq = max(pod.changed_seq, state.voided.get(uid, 0))
    return SINGLE + uid, changed_seq, pod.refused_basis
