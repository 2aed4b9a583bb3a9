"""Rules about other pods, in plain loops: host ports, affinity and anti-affinity, spread.

Such a rule evaluates a *question* on each single pod, with a number for an answer. The answers
decide, counted over the pods of a node and then over the nodes with one value of a label (a
*domain*). Sources: Kubernetes' plugins `nodeports`, `interpodaffinity` and `podtopologyspread`.

`Around` counts every pod on every node without a cache: the board's running counts
(`allotment_board.interpod`) must agree with it, and the binder uses it before it commits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import ClassVar, NamedTuple, Protocol

import msgspec

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState, Node, RulesAbout
from allotment.core.placement.rules.attachments import merged
from allotment.core.placement.rules.failing import without_failing
from allotment.core.placement.rules.models import in_whole_words
from allotment.core.placement.rules.selectors import (
    affinity_matches,
    selector_matches,
    selects,
    untolerated,
)
from allotment.core.placement.rules.switches import Switches, switches_of
from allotment.core.placement.rules.terms import weights_of
from allotment_proto.events import PodObserved
from allotment_proto.facts import (
    Attachment,
    HostPort,
    PodPreference,
    PodRequest,
    PodSubject,
    PodTerm,
    Spread,
)

_EVERY_ADDRESS = ("", "0.0.0.0")  # what a port binds to, not what this process does


_Labels = tuple[tuple[str, str], ...]
_LOOKS_MAX = 4096
_CLUSTER = ""


class Question(Protocol):
    """Evaluated on every pod of a node. Hashable, so that equal ones are counted once.

    `namespaces` are those whose pods can match, none for all: other pods are skipped.
    """

    @property
    def namespaces(self) -> tuple[str, ...]: ...

    def count(self, pod: PodObserved) -> int: ...


def _named_by(terms: Iterable[PodTerm]) -> tuple[str, ...]:
    """The namespaces that the terms name together; none if any term covers all."""
    named = [term.namespaces for term in terms]
    return tuple(dict.fromkeys(chain.from_iterable(named))) if all(named) else ()


class Meets(msgspec.Struct, frozen=True):
    """1 if every term matches the pod."""

    terms: tuple[PodTerm, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        return next((term.namespaces for term in self.terms if term.namespaces), ())

    def count(self, pod: PodObserved) -> int:
        for term in self.terms:
            if not selects(term, pod.namespace, pod.labels):
                return 0
        return 1


class Stays(msgspec.Struct, frozen=True):
    """1 if the term matches the pod and the pod is not ending."""

    term: PodTerm

    @property
    def namespaces(self) -> tuple[str, ...]:
        return self.term.namespaces

    def count(self, pod: PodObserved) -> int:
        return int(not pod.deleting and selects(self.term, pod.namespace, pod.labels))


class MeetsAny(msgspec.Struct, frozen=True):
    """1 if any of the terms matches the pod."""

    terms: tuple[PodTerm, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        return _named_by(self.terms)

    def count(self, pod: PodObserved) -> int:
        return int(any(selects(term, pod.namespace, pod.labels) for term in self.terms))


class Earns(msgspec.Struct, frozen=True):
    """The weights of the preferences that match the pod."""

    preferences: tuple[PodPreference, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        return _named_by(preference.term for preference in self.preferences)

    def count(self, pod: PodObserved) -> int:
        return sum(
            preference.weight
            for preference in self.preferences
            if selects(preference.term, pod.namespace, pod.labels)
        )


class KeepsAway(msgspec.Struct, frozen=True):
    """How many of the pod's own required anti-affinities match the subject."""

    about: PodSubject
    namespaces: ClassVar[tuple[str, ...]] = ()

    def count(self, pod: PodObserved) -> int:
        return sum(_is_about(term, self.about) for term in pod.request.company.away)


class Prefers(msgspec.Struct, frozen=True):
    """The weights of the pod's own preferences that match the subject."""

    about: PodSubject
    namespaces: ClassVar[tuple[str, ...]] = ()

    def count(self, pod: PodObserved) -> int:
        return sum(
            preference.weight
            for preference in pod.request.company.preferred
            if _is_about(preference.term, self.about)
        )


def _is_about(term: PodTerm, subject: PodSubject) -> bool:
    return term.topology_key == subject.topology_key and selects(
        term, subject.namespace, subject.labels
    )


class Takes(msgspec.Struct, frozen=True):
    """1 if the pod has a host port that conflicts with this one."""

    port: HostPort
    namespaces: ClassVar[tuple[str, ...]] = ()

    def count(self, pod: PodObserved) -> int:
        return int(any(_in_conflict(self.port, taken) for taken in pod.request.company.ports))


class Uses(msgspec.Struct, frozen=True):
    """1 if the pod has this claim, which only one pod may use at a time."""

    claim: str

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.claim.partition("/")[0],)

    def count(self, pod: PodObserved) -> int:
        return int(self.claim in pod.request.company.sole)


class Mounts(msgspec.Struct, frozen=True):
    """1 if the pod has this volume."""

    volume: Attachment
    namespaces: ClassVar[tuple[str, ...]] = ()

    def count(self, pod: PodObserved) -> int:
        return int(self.volume in pod.request.attachments)


def _in_conflict(a: HostPort, b: HostPort) -> bool:
    """Whether two pods on one host cannot both have these ports."""
    if a.port != b.port or a.protocol != b.protocol:
        return False
    return a.ip == b.ip or a.ip in _EVERY_ADDRESS or b.ip in _EVERY_ADDRESS


def situated(pod: PodObserved, state: ClusterState) -> PodRequest:
    """The pod's request with the rules of other pods about it, its volumes `merged`, its words for
    card models resolved (`models`), and without the nodes and cards that are held back (`failing`).

    The pod's own request object if there are none of these. Rules of all known pods count, even of
    those that are not placed: a later check finds whether such a pod is near.

    However many rules others have about the pod, they are one question for each topology key. So
    the cost of other pods' anti-affinity grows with these pods only, and one tenant's many rules do
    not become many rules in every request.
    """
    request = without_failing(merged(in_whole_words(pod.request, state), state), pod, state)
    if not state.keep_away and not state.preferences:
        return request
    rules = _rules_about(pod, state)
    nodeorder = weights_of(state.policy).nodeorder
    repelled = rules.repelled if switches_of(state.policy).pods else ()
    wanted = rules.wanted if nodeorder is not None and nodeorder.pods else ()
    if not repelled and not wanted:
        return request
    company = msgspec.structs.replace(request.company, repelled=repelled, wanted=wanted)
    return msgspec.structs.replace(request, company=company)


def _rules_about(pod: PodObserved, state: ClusterState) -> RulesAbout:
    """Other pods' rules about pods with this namespace and these labels; cached until rules
    change.
    """
    looks = pod.namespace, pod.labels
    found = state.memo.rules_about.get(looks)
    if found is None:
        preferred = [preference.term for preference in state.preferences]
        found = RulesAbout(_subjects(state.keep_away, *looks), _subjects(preferred, *looks))
        if len(state.memo.rules_about) >= _LOOKS_MAX:
            state.memo.rules_about.clear()
        state.memo.rules_about[looks] = found
    return found


def _subjects(terms: Iterable[PodTerm], namespace: str, labels: _Labels) -> tuple[PodSubject, ...]:
    """The pod for each topology key of the terms that match it.

    It has only the labels that some term of the key reads, so that pods that no rule tells apart
    have equal questions and share their row on the board.
    """
    looked_at: dict[str, set[str]] = {}
    about: set[str] = set()
    for term in terms:
        key = term.topology_key
        looked_at.setdefault(key, set()).update(e.key for e in term.selector)
        if key not in about and selects(term, namespace, labels):
            about.add(key)
    return tuple(
        PodSubject(key, namespace, tuple(pair for pair in labels if pair[0] in looked_at[key]))
        for key in sorted(about)
    )


class Around(NamedTuple):
    """What the rules of one request find: per rule a number by domain; no entry is 0."""

    near: tuple[Mapping[str, int], ...]
    away: tuple[Mapping[str, int], ...]
    repelled: tuple[Mapping[str, int], ...]
    spread: tuple[Mapping[str, int], ...]
    """By required constraint; every domain that counts has an entry."""
    sole: tuple[Mapping[str, int], ...] = ()
    """By claim that only one pod may use at a time. The whole cluster is one domain."""


def look_around(nodes: Sequence[Node], request: PodRequest, only: Node | None = None) -> Around:
    """Count the pods on the nodes, with what is assumed, for a request's rules.

    With `only`, the result is used for that node alone, and anti-affinity need not count beyond its
    domains.
    """
    company = request.company
    meets = Meets(company.near)
    required = required_spreads(request)
    keys = frozenset(rule.term.topology_key for rule in required)

    def near_it(key: str) -> Iterable[Node]:
        if only is None:
            return nodes
        domain = only.labels.get(key)
        return () if domain is None else (n for n in nodes if n.labels.get(key) == domain)

    def apart(key: str, question: Question) -> Counter[str]:
        return count(near_it(key), key, question)

    over: dict[tuple[bool, bool], list[Node]] = {}
    for rule in required:  # most constraints have the same policies, and so the same nodes
        if (heeds := heeded(rule)) not in over:
            over[heeds] = _spread_nodes(nodes, request, rule, keys)
    return Around(
        near=tuple(count(nodes, term.topology_key, meets) for term in company.near),
        away=tuple(apart(key, MeetsAny(terms)) for key, terms in by_topology(company.away)),
        repelled=tuple(apart(s.topology_key, KeepsAway(s)) for s in company.repelled),
        spread=tuple(
            count(over[heeded(rule)], rule.term.topology_key, stays(rule)) for rule in required
        ),
        sole=tuple({_CLUSTER: _count_all(nodes, Uses(claim))} for claim in company.sole),
    )


def company_refusal(
    node: Node, request: PodRequest, around: Around, switches: Switches
) -> str | None:
    """The reason code of the first rule about other pods that the node violates."""
    company = request.company
    if switches.ports and any(count_on(node, Takes(port)) for port in company.ports):
        return reasons.HOST_PORT_TAKEN
    if any(counts.get(_CLUSTER, 0) for counts in around.sole):
        return reasons.CLAIM_IN_USE
    if switches.pods:
        if not _is_near(node, request, around):
            return reasons.POD_AFFINITY_MISMATCH
        if _is_in(node, (key for key, _ in by_topology(company.away)), around.away):
            return reasons.POD_ANTI_AFFINITY
        if _is_in(node, (s.topology_key for s in company.repelled), around.repelled):
            return reasons.REPELLED_BY_POD
    if switches.spread:
        for rule, counts in zip(required_spreads(request), around.spread, strict=True):
            domain = node.labels.get(rule.term.topology_key)
            if domain is None:
                return reasons.SPREAD_MISMATCH
            if counts:
                least = min(counts.values()) if len(counts) >= rule.min_domains else 0
                if counts.get(domain, 0) + rule.counts_self - least > rule.max_skew:
                    return reasons.SPREAD_MISMATCH
    return None


def _is_near(node: Node, request: PodRequest, around: Around) -> bool:
    """Whether all terms hold in the node's domains, or the pod is the first of those that it wants
    near.
    """
    company = request.company
    domains = [node.labels.get(term.topology_key) for term in company.near]
    if any(domain is None for domain in domains):
        return False
    if company.near_self and not any(any(counts.values()) for counts in around.near):
        return True
    return all(
        counts.get(domain or "", 0) for domain, counts in zip(domains, around.near, strict=True)
    )


def by_topology(terms: Iterable[PodTerm]) -> list[tuple[str, tuple[PodTerm, ...]]]:
    """The terms by topology key: what they forbid together is one question each."""
    found: dict[str, list[PodTerm]] = {}
    for term in terms:
        found.setdefault(term.topology_key, []).append(term)
    return [(key, tuple(some)) for key, some in found.items()]


def _is_in(node: Node, keys: Iterable[str], found: Iterable[Mapping[str, int]]) -> bool:
    """Whether the node is in a domain that one of the questions forbids, each with its key."""
    for key, counts in zip(keys, found, strict=True):
        domain = node.labels.get(key)
        if domain is not None and counts.get(domain, 0):
            return True
    return False


def claims_note(
    state: ClusterState, request: PodRequest, counts: Iterable[tuple[str, int]]
) -> tuple[str, ...]:
    """The pods that hold claims which only one pod may use at a time, for a pod that was rejected
    for one.
    """
    if not request.company.sole or reasons.CLAIM_IN_USE not in dict(counts):
        return ()
    holders: dict[str, str] = {}
    for pod in state.pods.values():
        if pod.allocation is not None:
            for claim in pod.fact.request.company.sole:
                holders.setdefault(claim, pod.fact.name)
    return tuple(
        f"claim {claim} serves one pod at a time, and pod {holders[claim]} has it"
        for claim in request.company.sole
        if claim in holders
    )


def required_spreads(request: PodRequest) -> tuple[Spread, ...]:
    return tuple(rule for rule in request.company.spread if rule.is_required)


def stays(rule: Spread) -> Stays:
    """The question of a spread constraint."""
    return Stays(rule.term)


def heeded(rule: Spread) -> tuple[bool, bool]:
    """The policies of a constraint that select its nodes, apart from the topology keys."""
    return rule.honors_affinity, rule.honors_taints


def _spread_nodes(
    nodes: Iterable[Node], request: PodRequest, rule: Spread, keys: frozenset[str]
) -> list[Node]:
    """The nodes whose domains count: they have the label of every constraint of the kind, and match
    the pod's node affinity and tolerations as far as the constraint honours these.
    """
    return [node for node in nodes if is_spread_over(node, request, rule, keys)]


def is_spread_over(node: Node, request: PodRequest, rule: Spread, keys: frozenset[str]) -> bool:
    fact, constraints = node.fact, request.constraints
    if fact is None or not all(key in node.labels for key in keys):
        return False
    if rule.honors_affinity and not (
        selector_matches(constraints, node.labels)
        and affinity_matches(constraints.affinity, node.labels, node.name)
    ):
        return False
    return not (rule.honors_taints and untolerated(fact.taints, constraints.tolerations))


def count(nodes: Iterable[Node], topology_key: str, question: Question) -> Counter[str]:
    """The answers of all pods by domain; nodes without the label are in none."""
    found: Counter[str] = Counter()
    namespaces = question.namespaces
    for node in nodes:
        domain = node.labels.get(topology_key)
        if domain is not None and node.fact is not None:
            found[domain] += _count_on(node, question, namespaces)
    return found


def _count_all(nodes: Iterable[Node], question: Question) -> int:
    return sum(count_on(node, question) for node in nodes if node.fact is not None)


def count_on(node: Node, question: Question) -> int:
    """The sum of the answers of one node's pods."""
    return _count_on(node, question, question.namespaces)


def _count_on(node: Node, question: Question, namespaces: tuple[str, ...]) -> int:
    if namespaces and node.spaces.keys().isdisjoint(namespaces):
        return 0
    total, ask = 0, question.count
    for allocation in node.allocations.values():
        fact = allocation.fact
        if fact is not None:
            total += ask(fact)
    return total
