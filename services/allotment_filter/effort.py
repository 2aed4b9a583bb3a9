"""How much work the pods of one batch are, beside their number.

A pod costs a decision next to nothing if nodes answer it each for itself. A rule about other pods
is asked of every pod and node for each pod that has it, and a term of node affinity of every node
for each different request. Others of other namespaces wait while a batch is decided; so one that is
much work is sent on its way with fewer pods.
"""

from collections.abc import Iterable

from allotment_proto.events import PodObserved
from allotment_proto.facts import ALONE, PodRequest

EFFORT_MAX = 256
"""Rules of a batch's pods: about a second of work with 1,000 nodes and 10,000 pods on them."""
TERMS_A_RULE = 2
"""So many terms of node affinity are as much work as one rule about other pods."""


class Effort:
    """What a batch costs so far."""

    def __init__(self) -> None:
        self.spent = 0
        self._requests: set[PodRequest] = set()

    def admits(self, facts: Iterable[PodObserved]) -> bool:
        """Whether these pods may come with those before them; if so, they are counted. The first
        ones may, whatever they cost."""
        rules, different = 0, set[PodRequest]()
        for fact in facts:
            company, constraints = fact.request.company, fact.request.constraints
            if company != ALONE:
                rules += len(company.near) + len(company.away) + len(company.preferred)
                rules += len(company.spread) + len(company.ports)
            if constraints.affinity or constraints.preferred:
                different.add(fact.request)
        different -= self._requests
        terms = sum(
            len(each.constraints.affinity) + len(each.constraints.preferred) for each in different
        )
        cost = rules + terms // TERMS_A_RULE
        if cost and self.spent and self.spent + cost > EFFORT_MAX:
            return False
        self.spent += cost
        self._requests |= different
        return True
