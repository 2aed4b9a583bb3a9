"""How many different things the pods of one namespace may ask for together.

What pods have in common is worked out once for all of them; what differs costs for each, in every
decision: a resource name is a row of totals and boards, a rule about other pods is asked of every
pod there is. So a namespace has a number of each. Pods beyond it are rejected by name, and are read
again once others of the namespace are gone. Pods that have a node count, too: of those beyond it
counts what they take there. Anybody can name a node in a new pod.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from allotment.core import reasons
from allotment_proto.events import GroupObserved, PodObserved
from allotment_proto.facts import PodRequest, PodTerm, Problem
from allotment_watcher.normalise.bounds import taken

NAMES_MAX = 128
"""Different resources."""
RULES_MAX = 1024
"""Different rules about pods of the same namespace (topology key and selector)."""
FAR_RULES_MAX = 64
"""Different rules about pods of other namespaces."""

_NAMES, _RULES, _FAR_RULES = range(3)
_LIMITS = (
    ("different resources", NAMES_MAX),
    ("different rules about other pods (topology key and selector)", RULES_MAX),
    ("different rules about pods of other namespaces", FAR_RULES_MAX),
)
_Asked = tuple[frozenset[str], frozenset[PodTerm], frozenset[PodTerm]]
_NOTHING: _Asked = frozenset(), frozenset(), frozenset()


class Variety:
    """What the objects of each namespace ask for. It begins with what was recorded of them."""

    def __init__(self, facts: Iterable[PodObserved | GroupObserved] = ()) -> None:
        self._asked: dict[str, tuple[str, _Asked]] = {}
        """By uid the namespace, and what an object asks for; of nothing unusual no entry."""
        self._counts: dict[str, tuple[Counter[object], Counter[object], Counter[object]]] = {}
        """By namespace how many objects ask for each."""
        self._shrunk: dict[str, None] = {}
        """Namespaces some of whose objects ask no longer for what they did."""
        for fact in facts:
            if fact.problem is None or _is_placed(fact):
                self._note(fact.uid, fact.namespace, _asked_of(fact))

    def excess(self, fact: PodObserved | GroupObserved) -> Problem | None:
        """Why an object asks for too many different things; None if it does not, and then counts
        from now on.
        """
        asked = _asked_of(fact)
        if self._asked.get(fact.uid, ("", _NOTHING))[1] == asked:
            return None
        self.forget(fact.uid)
        known = self._counts.get(fact.namespace)
        for at, (what, most) in enumerate(_LIMITS):
            there = known[at] if known is not None else Counter()
            new = sum(one not in there for one in asked[at])
            if new and len(there) + new > most:
                return Problem(
                    reasons.NAMESPACE_LIMIT,
                    f"namespace {fact.namespace}",
                    f"its pods ask for {most} {what} at most",
                )
        self._note(fact.uid, fact.namespace, asked)
        return None

    def take_shrunk(self) -> list[str]:
        """The namespaces that have more room than when this was last called."""
        found = list(self._shrunk)
        self._shrunk.clear()
        return found

    def forget(self, uid: str) -> None:
        """An object is gone, or ended."""
        found = self._asked.pop(uid, None)
        if found is None:
            return
        namespace, asked = found
        counts = self._counts[namespace]
        for counter, some in zip(counts, asked, strict=True):
            for one in some:
                counter[one] -= 1
                if not counter[one]:
                    del counter[one]
                    self._shrunk[namespace] = None
        if not any(counts):
            del self._counts[namespace]

    def _note(self, uid: str, namespace: str, asked: _Asked) -> None:
        if asked == _NOTHING:
            return
        self._asked[uid] = namespace, asked
        counts = self._counts.setdefault(namespace, (Counter(), Counter(), Counter()))
        for counter, some in zip(counts, asked, strict=True):
            counter.update(some)


def _is_placed(fact: PodObserved | GroupObserved) -> bool:
    return isinstance(fact, PodObserved) and bool(fact.node)


def _asked_of(fact: PodObserved | GroupObserved) -> _Asked:
    if isinstance(fact, GroupObserved):
        names = frozenset(name for name, _ in fact.min_resources or ())
        return names, frozenset(), frozenset()
    return _of_request(fact.request, fact.namespace)


def _of_request(request: PodRequest, namespace: str) -> _Asked:
    company = request.company
    terms = {
        *company.near,
        *company.away,
        *(preference.term for preference in company.preferred),
        *(rule.term for rule in company.spread),
    }
    near = frozenset(term for term in terms if term.namespaces == (namespace,))
    return frozenset(name for name, _ in request.extended), near, frozenset(terms - near)


def without_excess(fact: PodObserved, problem: Problem, listed: Collection[str]) -> PodObserved:
    """The fact of a pod that is rejected for it, or of one that has a node what it takes there;
    `listed` are the resources that its node has."""
    if fact.node:
        request = taken(fact.request, listed)
        return msgspec.structs.replace(fact, request=request, problem=fact.problem or problem)
    return msgspec.structs.replace(fact, request=PodRequest(), problem=problem, asks=None)
