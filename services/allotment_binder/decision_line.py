"""What the log line of a decision says: how many pods, and which, with the ids of their traces.

So many pods a second are named and no more, those first that were evicted: a line is for people who
grep for a pod; all of it is in the log of allocations.
"""

from collections.abc import Callable, Iterator, Sequence

from allotment.core import reasons
from allotment.core.explain.rows.pod_views import preemptor_name
from allotment.core.ledger.model import ClusterState
from allotment.core.trace_ids import trace_id
from allotment_proto.events import Decided, Eviction, Placement, Refusal

NAMED_IN_A_LINE_MAX = 20
NAMED_A_SECOND_MAX = 100

Named = tuple[str, dict[str, str]]
"""A list of the line, and one entry of it."""


class DecisionLines:
    """Makes the lines; `now_s` is a clock of whole or broken seconds, to bound their names."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._second = -1
        self._named = 0

    def fields(
        self, state: ClusterState, decided: Decided, upheld: Sequence[Placement], seq: int
    ) -> dict[str, object]:
        """The fields for a decision that landed at `seq`, of which these placements hold."""
        line: dict[str, object] = {
            "log_seq": seq,
            "cycle": decided.cycle,
            "placed": len(upheld),
            "void": len(decided.placements) - len(upheld),
            "dropped": len(decided.dropped),
            "refused": len(decided.refusals),
            "evicted": len(decided.evictions),
        }
        pods = len(upheld) + len(decided.refusals) + len(decided.evictions)
        room = self._take(min(pods, NAMED_IN_A_LINE_MAX))
        lists: dict[str, list[dict[str, str]]] = {}
        for (kind, entry), _ in zip(_named(state, decided, upheld), range(room), strict=False):
            lists.setdefault(kind, []).append(entry)
        if pods > room:
            line["not_named"] = pods - room
        return {**line, **lists}

    def _take(self, wanted: int) -> int:
        """How many of so many pods may be named now."""
        second = int(self._now_s())
        if second != self._second:
            self._second, self._named = second, 0
        given = min(wanted, NAMED_A_SECOND_MAX - self._named)
        self._named += given
        return given


def _named(state: ClusterState, decided: Decided, upheld: Sequence[Placement]) -> Iterator[Named]:
    for eviction in decided.evictions:
        for_whom = preemptor_name(state, eviction.preemptor)
        yield "evicted_pods", {**_pod(eviction), "node": eviction.node, "for": for_whom}
    for placement in upheld:
        yield "placed_pods", {**_pod(placement), "node": placement.node}
    for refusal in decided.refusals:
        yield "refused_pods", {**_pod(refusal), "reason": _reason(refusal)}


def _pod(about: Placement | Refusal | Eviction) -> dict[str, str]:
    return {"pod": f"{about.namespace}/{about.name}", "trace_id": trace_id(about.uid)}


def _reason(refusal: Refusal) -> str:
    problem = refusal.problem
    return reasons.shown_cause(refusal.reasons) if problem is None else problem.code
