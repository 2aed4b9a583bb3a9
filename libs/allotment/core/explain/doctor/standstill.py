"""No decisions although a pod fits, or no Bindings: found from the log alone.

A service that is frozen, gone or cut off appends nothing; neither does one that has nothing to do.
To tell them apart, this runs the scorer's round and checks reservations as the binder does, on the
state of `IDLE_AFTER_S` ago and on the newest. Work that is due on both was not done by any service.
"""

from collections.abc import Sequence
from typing import NamedTuple

from allotment.core.explain.doctor.finding import (
    ERROR,
    PODS_MAX,
    Finding,
    about_pods,
    counted,
    names_of,
    namespaces_of,
)
from allotment.core.explain.rows.acknowledgement import ahead_of, in_the_way
from allotment.core.ledger.model import ClusterState
from allotment.core.queues.round.verdict import Tried, tried_now
from allotment.core.units import age_text, rfc3339
from allotment_proto.events import PodObserved

IDLE_AFTER_S = 30
"""A pod that fits is placed and bound within about a second, in a large cluster within a few."""
_NOT_TRIED = Tried({}, ())


class Work(NamedTuple):
    """The work that is due on a state: pods for which a round has a new result, and reserved pods
    that can be bound.
    """

    tried: Tried
    unbound: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.tried.placed or self.tried.unanswered or self.unbound)


def work_of(state: ClusterState, *, is_silent: bool) -> Work:
    """`is_silent`: nothing was decided for so long that a round is worth its time."""
    unbound = []
    for uid in state.reserved:
        pod = state.pods[uid]
        held = pod.allocation
        if held and ahead_of(state, pod) is None and in_the_way(state, held) is None:
            unbound.append(uid)
    return Work(tried_now(state) if is_silent else _NOT_TRIED, unbound)


def of_standstill(
    state: ClusterState, before: Work, now: Work, time_ms: int, decided_ms: int, decided_seq: int
) -> list[Finding]:
    """What was to be done `IDLE_AFTER_S` before `time_ms` and still is on the newest state.

    `decided_ms` is when the last decision was made, and `decided_seq` its record; 0 if none ever
    was.
    """
    waited = {*before.tried.placed, *before.tried.unanswered}
    pods = state.pods
    fitting = [pods[uid].fact for uid in now.tried.placed if uid in waited]
    untried = [pods[uid].fact for uid in now.tried.unanswered if uid in waited]
    found = []
    if fitting or untried:
        first = _oldest(fitting or untried)
        said = f"{first.namespace}/{first.name} was never tried"
        if fitting:
            feasible, nodes = now.tried.placed[first.uid]
            said = f"{first.namespace}/{first.name} fits on {feasible} of {counted(nodes, 'node')}"
        last = "no decision was ever made"
        if decided_ms:
            ago = age_text(max(time_ms - decided_ms, 0) // 1000)
            last = f"the last decision was {ago} ago (seq {decided_seq})"
        message = (
            f"{said}, and no decision about it was made for {IDLE_AFTER_S}s or more; it has waited "
            f"for {_age(first, time_ms)}; {last}"
        )
        found.append(_finding("NothingDecided", [*fitting, *untried], message, "filter, scorer"))
    unbound = [uid for uid in now.unbound if uid in before.unbound]
    if unbound:
        first = _oldest([pods[uid].fact for uid in unbound])
        held = pods[first.uid].allocation
        message = (
            f"{first.namespace}/{first.name} has a reservation on {held.node if held else '-'} and "
            f"was not bound for {IDLE_AFTER_S}s or more; it has waited for {_age(first, time_ms)}"
        )
        bound = [pods[uid].fact for uid in unbound]
        found.append(
            _finding("NothingBound", bound, message, "the API server", held.seq if held else 0)
        )
    return found


def _finding(
    code: str, facts: Sequence[PodObserved], message: str, others: str, seq: int = 0
) -> Finding:
    names = names_of(facts)
    first_ms = min(fact.created_ms for fact in facts)
    return Finding(
        severity=ERROR,
        code=code,
        subject=about_pods(names),
        message=message,
        remedy=f"check that the binder and {others} run and are ready: allot status, or elsewhere "
        "allot doctor --services HOST:PORT,...",
        seq=seq,
        since=rfc3339(first_ms) if first_ms else "",
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(names),
        namespaces=namespaces_of(facts),
    )


def _oldest(facts: Sequence[PodObserved]) -> PodObserved:
    return min(facts, key=lambda fact: (fact.created_ms, fact.namespace, fact.name))


def _age(fact: PodObserved, time_ms: int) -> str:
    return age_text(max(time_ms - fact.created_ms, 0) // 1000)
