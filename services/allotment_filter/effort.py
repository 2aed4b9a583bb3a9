"""How much work the pods of a batch are, in addition to their number.

A pod costs a decision next to nothing if nodes answer it each for itself. A rule about other pods
is asked of every pod and node for each pod that has it, and a term of node affinity of every node
for each different request. Others of other namespaces wait while a batch is decided; so the
filter sends a costly batch with fewer pods.

Costly pods for which a batch has no effort left are skipped, and all others proceed: no pod waits
behind them, whatever the order. Some of the skipped pods are chosen for the next batch and get a
share of its effort: the namespaces take turns, and in each those that waited longest
come first. So pods in front that are due again and again do not keep out those behind them.
"""

from collections.abc import Iterable, Iterator, Sequence

from allotment.core.queues.turns import take_turns
from allotment_proto.events import PodObserved
from allotment_proto.facts import ALONE, PodRequest

EFFORT_MAX = 256
"""Rules of a batch's pods: about a second of work with 1,000 nodes and 10,000 pods on them."""
TERMS_A_RULE = 2
"""So many terms of node affinity are as much work as one rule about other pods."""
_SERVED_MAX = 10_000
"""Of so many costly jobs and their namespaces it is remembered who had a turn last."""


class Effort:
    """What the batch that is being chosen costs so far, and who comes with the next one."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}
        """The skipped pods that come with this batch, and what each costs."""
        self._left = EFFORT_MAX
        """What is left of the effort for all others."""
        self._is_first = True
        self._requests: set[PodRequest] = set()
        self._passed_over: dict[str, dict[str, int]] = {}
        """By namespace, the skipped pods in order, and what each costs."""
        self._served: dict[tuple[str, str], int] = {}
        """When a namespace, or a job of it, had its last turn: the later the greater."""

    @property
    def has_passed_over(self) -> bool:
        """Whether the batch that was chosen last skipped a pod."""
        return bool(self._passed_over)

    def begin(self) -> None:
        """Another batch is chosen."""
        self._chosen = self._choose()
        self._left = EFFORT_MAX - sum(self._chosen.values())
        self._is_first = not self._chosen
        self._requests.clear()
        self._passed_over.clear()

    def admits(self, job: str, facts: Sequence[PodObserved]) -> bool:
        """Whether the pods of a job may come with those before them; if so, they are counted. The
        first costly ones may, whatever they cost.
        """
        different: set[PodRequest] = set()
        cost = self._cost(facts, different)
        if not cost:
            return True
        namespace = facts[0].namespace
        if job not in self._chosen:
            if not self._is_first and cost > self._left:
                self._passed_over.setdefault(namespace, {})[job] = cost
                return False
            self._left -= cost
        self._is_first = False
        self._requests |= different
        self._serve(namespace, "")
        self._serve(namespace, job)
        return True

    def _cost(self, facts: Iterable[PodObserved], different: set[PodRequest]) -> int:
        """What pods cost; `different` gets the requests whose terms are asked for them."""
        rules = 0
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
        return rules + terms // TERMS_A_RULE

    def _serve(self, namespace: str, job: str) -> None:
        number = next(reversed(self._served.values()), 0) + 1
        self._served.pop((namespace, job), None)
        self._served[namespace, job] = number
        if len(self._served) > _SERVED_MAX:
            del self._served[next(iter(self._served))]

    def _choose(self) -> dict[str, int]:
        """Some of the skipped pods; the first, whatever it costs."""
        chosen, spent = dict[str, int](), 0
        names = sorted(self._passed_over, key=lambda name: self._turn_of(name, ""))
        for job, cost in take_turns(map(self._in_order, names)):
            if chosen and spent + cost > EFFORT_MAX:
                break
            chosen[job] = cost
            spent += cost
        return chosen

    def _in_order(self, namespace: str) -> Iterator[tuple[str, int]]:
        """The skipped pods of a namespace; those whose last turn is longest ago come first."""
        jobs = self._passed_over[namespace]
        return iter(sorted(jobs.items(), key=lambda each: self._turn_of(namespace, each[0])))

    def _turn_of(self, namespace: str, job: str) -> int:
        return self._served.get((namespace, job), 0)
