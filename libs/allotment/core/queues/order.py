"""The order of pending pods, and when a rejected pod is worth another try.

Order: higher priority of the pod's class first (an annotation counts in the pod's group only), then
older, then by name and uid, so that the order is total. A rejected pod waits for an event that
could change the answer: new room, a change of the policy, or of the pod itself. No clock is
involved. Where the policy says so, namespaces take turns among pods of one priority (see `turns`).
"""

from collections.abc import Iterable, Mapping

from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.queues.turns import in_turns
from allotment.core.reasons import LASTING

OrderKey = tuple[int, int, str, str, str]
"""By priority, then by arrival."""


def order_key(pod: Pod) -> OrderKey:
    fact = pod.fact
    priority = fact.priority if fact.class_priority is None else fact.class_priority
    return (-priority, fact.created_ms, fact.namespace, fact.name, fact.uid)


def is_due(state: ClusterState, pod: Pod, tried_seq: int) -> bool:
    """Whether anything happened after `tried_seq` (0: never tried) that may help the pod to fit."""
    if pod.fact.problem is not None:
        return tried_seq < pod.changed_seq
    woken = max(room_seq(state, pod), pod.changed_seq, state.voided.get(pod.fact.uid, 0))
    return tried_seq < woken or tried_seq == 0


def room_seq(state: ClusterState, pod: Pod) -> int:
    """The last sequence at which room may have appeared for the pod.

    A pod that every node rejected for a lasting reason is not retried when another pod ends, so
    pods that fit nowhere cost nothing while others come and go. A pod with local volumes is: a
    volume may be out of reach only because another pod has it, and that pod may release it.
    """
    refusal = pod.refusal
    if refusal is None or not refusal.reasons or refusal.problem is not None:
        return state.room_seq
    if pod.fact.local_claims:
        return state.room_seq
    if all(code in LASTING for code, _ in refusal.reasons):
        return max(state.nodes_seq, state.policy_seq)
    return state.room_seq


def due(state: ClusterState, tried: Mapping[str, int]) -> list[Pod]:
    """The pending pods worth a try now, in order. `tried` is the caller's memory of tries
    (sequences by uid).

    The tries in the log (`refused_basis`) count as well, so a restarted service does not retry
    everything.
    """
    pods = [
        pod
        for uid in state.pending
        if is_due(state, (pod := state.pods[uid]), max(tried.get(uid, 0), pod.refused_basis))
    ]
    return in_line(state, pods)


def in_line(state: ClusterState, pods: Iterable[Pod]) -> list[Pod]:
    """Pods in the order in which they are tried where there are no queues."""
    found = sorted(pods, key=order_key)
    if state.turns is None:
        return found
    return list(in_turns(found, _level, _namespace, state.turns))


def _level(pod: Pod) -> int:
    return order_key(pod)[0]


def _namespace(pod: Pod) -> str:
    return pod.fact.namespace
