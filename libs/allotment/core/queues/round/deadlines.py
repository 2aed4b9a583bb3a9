"""The moments that the log must record although nothing else happens.

These are the deadlines of waiting groups (plugin `sla`), the end of the time in which admitted
groups get their pods, retries of nodes that are held back, and the deadlines of pods that are being
deleted. A round reads the recorded time and no clock, so a service with a clock asks here whether a
deadline has passed and then appends the moment.
"""

from collections.abc import Iterator

from allotment.core.ledger import health
from allotment.core.ledger.evictions import turning_points
from allotment.core.ledger.groups import NOT_ADMITTED
from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import PluginUse

_SLA = "sla"
_WAITING_TIME = "sla-waiting-time"


def has_passed(state: ClusterState, now_ms: int) -> bool:
    """Whether a deadline lies between the log's last moment and now (Unix milliseconds), or an
    admitted group still counts for what it was admitted for, which it does for two moments only.
    """
    return bool(state.promised) or any(
        state.time_ms < deadline_ms <= now_ms for deadline_ms in _deadlines(state)
    )


def _deadlines(state: ClusterState) -> Iterator[int]:
    yield from health.deadlines(state)
    for uid in state.deleting if state.pending else ():
        if state.pods[uid].allocation is not None:
            yield from turning_points(state.pods[uid].fact)
    use = next((u for tier in state.policy.tiers for u in tier if u.name == _SLA), None)
    if use is None or not state.is_batched:
        return
    usual_ms = _usual_ms(use)
    for group in state.groups.values():
        fact = group.fact
        if fact is None:
            continue
        waiting_ms = fact.waiting_most_ms if fact.waiting_most_ms >= 0 else usual_ms
        if waiting_ms is not None and (
            (fact.phase in NOT_ADMITTED and not group.admitted_seq)
            or any(uid in state.pending for uid in group.members)
        ):
            yield fact.created_ms + waiting_ms
    if usual_ms is not None:
        for uid in state.pending:
            pod = state.pods[uid].fact
            if not pod.group:
                yield pod.created_ms + usual_ms


def _usual_ms(use: PluginUse) -> int | None:
    found = dict(use.arguments).get(_WAITING_TIME)
    return found if isinstance(found, int) else None
