"""Feasibility cache: on how many nodes each class of pods fits, recounted only if it may differ.

A change of the state concerns one node, so it can take at most one away from the nodes on which a
request fits. While fewer changes have happened than nodes fitted when they were last counted, the
request still fits somewhere, and that is all the filter needs to know of it. Only requests that fit
on few nodes, or on none, are counted again, and with their reasons if on none; and those with rules
about other pods, to which one change may matter on every node.
"""

from typing import NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import refuse
from allotment.core.placement.evaluator import REQUESTS_MAX, Ranker
from allotment.core.placement.rules.interpod import situated
from allotment_proto.events import PodObserved, Refusal
from allotment_proto.facts import ALONE, PodRequest

FOLLOW_CHANGES = 128
"""`follow` lets fewer changes than these gather."""


class Feasibility(NamedTuple):
    """On how many nodes a class of pods fitted when they were counted; if on none, why not."""

    feasible: int
    refusal: Refusal


class FeasibilityCache:
    """The last count of each class. Call `of` as often as needed, then `close` before a change."""

    def __init__(self, state: ClusterState, ranker: Ranker) -> None:
        self.state = state
        self.counted = 0
        """How often nodes were counted: the work done, for tests."""
        self._ranker = ranker
        self._known: dict[PodRequest, tuple[Feasibility, int]] = {}
        """Per request what was found, and how many changes there had been by then."""
        self._policy_seq = state.policy_seq
        self._followed = 0
        self._is_open = False

    def of(self, fact: PodObserved) -> Feasibility:
        """Where a pod's class fits: exact if it fits nowhere, else as it was when last counted.

        One on which asking fails is worth a cycle: that fails as well, and only this pod waits for
        it, while an error here would stop the choice of batches for all.
        """
        try:
            return self._of(fact)
        except Exception:
            return Feasibility(1, Refusal(fact.uid, fact.namespace, fact.name, 0, ()))

    def _of(self, fact: PodObserved) -> Feasibility:
        state = self.state
        changes = state.trails.nodes.end
        if self._policy_seq != state.policy_seq:
            self._policy_seq = state.policy_seq
            self._known.clear()
        request = situated(fact, state)
        known = self._known.get(request)
        if known is not None:
            found, then = known
            is_alone = request.company == ALONE
            if then == changes or (is_alone and found.feasible > changes - then):
                return found
        self._open()
        self.counted += 1
        ranking = self._ranker.rank(request)
        reasons = () if ranking.feasible else self._ranker.reasons(request)
        found = Feasibility(ranking.feasible, refuse(state, fact, request, ranking.nodes, reasons))
        if known is None and len(self._known) >= REQUESTS_MAX:
            del self._known[next(iter(self._known))]
        self._known[request] = found, changes
        return found

    def room(self, fact: PodObserved, wanted: int) -> int:
        """For how many pods of its class there is room at most; `wanted` if there may be more. 1 at
        least: for classes that fit somewhere.
        """
        self._open()
        try:
            return max(self._ranker.holds_at_most(situated(fact, self.state), wanted), 1)
        except Exception:  # see `of`
            return 1

    def close(self) -> None:
        """The state may change from here on."""
        if self._is_open:
            self._is_open = False
            self._ranker.end()

    def follow(self) -> None:
        """Bring the ranker up to date while the filter is idle: the next query may be far off."""
        state = self.state
        if state.trails.nodes.end - self._followed >= FOLLOW_CHANGES:
            self._open()
            self.close()

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._followed = self.state.trails.nodes.end
            self._ranker.begin()
