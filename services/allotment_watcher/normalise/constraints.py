"""What a pod says about nodes and about other pods: selectors, affinities, spread, ports.

Selectors become lists of expressions, namespaces become names, and what only the pod itself can
know (whether it is one of the pods that its own rules are about) is worked out here.
"""

from collections.abc import Iterable

from allotment.core.placement.rules.selectors import selects
from allotment_proto.facts import (
    ALONE,
    Company,
    Constraints,
    Expression,
    HostPort,
    NodeTerm,
    PodPreference,
    PodTerm,
    Preference,
    Spread,
    Toleration,
)
from allotment_watcher import objects
from allotment_watcher.normalise.amounts import invalid

EVERY_ADDRESS = "0.0.0.0"
RULES_MAX = 32
"""Rules about other pods that one pod may have. What each of them costs is counted over all pods,
for every pod that is placed; so one tenant's rules must not grow without end."""
HOST_PORTS_MAX = 64
"""Each is asked of every pod on a node."""
NODE_TERMS_MAX = 128
"""Terms of node affinity, required and preferred: each is asked of every node."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
NO_POD = (Expression("", "In", ()),)
"""A selector that was not given selects nothing; an empty one selects everything."""

Labels = tuple[tuple[str, str], ...]


def constraints_of(spec: objects.PodSpec) -> Constraints:
    """Where the pod may run by what its spec says of nodes."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is not None:
        required = affinity.required.node_selector_terms if affinity.required else None
        terms = len(required or ()) + len(affinity.preferred or ())
        _at_most(NODE_TERMS_MAX, terms, "spec.affinity.nodeAffinity", "terms")
    return Constraints(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=node_terms(affinity.required if affinity else None),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "")
            for t in spec.tolerations or ()
        ),
        preferred=tuple(
            Preference(given.weight, node_term(given.preference))
            for given in (affinity.preferred if affinity else None) or ()
            if given.preference is not None
        ),
    )


def node_terms(selector: objects.NodeSelector | None) -> tuple[NodeTerm, ...]:
    """Alternatives; none means no requirement. Required terms of which there are none match no
    node, as a term without expressions does.
    """
    if selector is None:
        return ()
    return tuple(map(node_term, selector.node_selector_terms or ())) or (NodeTerm(()),)


def node_term(term: objects.NodeTerm) -> NodeTerm:
    return NodeTerm(_expressions(term.match_expressions), _expressions(term.match_fields))


def company_of(pod: objects.PodObject) -> Company:
    """The pod's rules about other pods. Raises `Invalid` for one that cannot be followed."""
    spec, namespace = pod.spec, pod.metadata.namespace
    affinity = spec.affinity or objects.Affinity()
    together = affinity.pod_affinity or objects.PodAffinity()
    apart = affinity.pod_anti_affinity or objects.PodAffinity()
    ports = tuple(_ports(spec))
    constraints = spec.topology_spread_constraints or ()
    if not (ports or constraints or affinity.pod_affinity or affinity.pod_anti_affinity):
        return ALONE
    rules = len(constraints) + sum(
        len(terms or ()) for kind in (together, apart) for terms in (kind.required, kind.preferred)
    )
    _at_most(RULES_MAX, rules, "spec.affinity", "rules about other pods")
    if len(ports) > HOST_PORTS_MAX:
        text = f"{len(ports)} host ports; at most {HOST_PORTS_MAX} are accepted"
        raise invalid("spec.containers", text)
    labels = labels_of(pod.metadata)
    reader = _Terms(namespace, is_bound=bool(spec.node_name))
    near = reader.read("podAffinity", together.required)
    return Company(
        ports=ports,
        near=near,
        near_self=bool(near) and all(selects(term, namespace, labels) for term in near),
        away=reader.read("podAntiAffinity", apart.required),
        preferred=(
            *reader.weighted("podAffinity", together.preferred, 1),
            *reader.weighted("podAntiAffinity", apart.preferred, -1),
        ),
        spread=tuple(_spread(given, namespace, labels) for given in constraints),
    )


def _at_most(limit: int, number: int, place: str, what: str) -> None:
    if number > limit:
        raise invalid(
            place,
            f"{number} {what}; at most {limit} are supported: let one name several values "
            "(operator: In) or several namespaces",
        )


def labels_of(meta: objects.Meta) -> Labels:
    return tuple(sorted((meta.labels or {}).items()))


class _Terms:
    """Reads terms about pods of one pod."""

    def __init__(self, namespace: str, *, is_bound: bool) -> None:
        self._namespace = namespace
        self._is_bound = is_bound

    def read(self, kind: str, terms: list[objects.PodTerm] | None) -> tuple[PodTerm, ...]:
        place = f"spec.affinity.{kind}"
        return tuple(
            PodTerm(term.topology_key, self._namespaces(place, term), selector_of(term))
            for term in terms or ()
        )

    def weighted(
        self, kind: str, given: list[objects.WeightedPodTerm] | None, sign: int
    ) -> tuple[PodPreference, ...]:
        return tuple(
            PodPreference(sign * one.weight, term)
            for one in given or ()
            if one.pod_affinity_term is not None
            for term in self.read(kind, [one.pod_affinity_term])
        )

    def _namespaces(self, place: str, term: objects.PodTerm) -> tuple[str, ...]:
        """Names, sorted; none for all of them. A pod that runs is not refused: what cannot be
        followed counts for all namespaces.
        """
        named, selector = set(term.namespaces or ()), term.namespace_selector
        if selector is None:
            return tuple(sorted(named)) or (self._namespace,)
        asked = _expressions(selector.match_expressions)
        if not asked and not selector.match_labels:
            return ()
        by_name = [e for e in asked if e.key == NAMESPACE_NAME and e.operator == "In"]
        labels = dict(selector.match_labels or {})
        if NAMESPACE_NAME in labels:
            by_name.append(Expression(NAMESPACE_NAME, "In", (labels.pop(NAMESPACE_NAME),)))
        if labels or len(by_name) != 1 or len(asked) > 1:
            if self._is_bound:
                return ()
            raise invalid(
                f"{place} namespaceSelector",
                "selects by labels of namespaces, which are not observed; list namespaces, "
                f"or select them by {NAMESPACE_NAME}",
            )
        return tuple(sorted(named.union(by_name[0].values)))


def selector_of(term: objects.PodTerm | objects.SpreadConstraint) -> tuple[Expression, ...]:
    selector = term.label_selector
    return NO_POD if selector is None else expressions_of(selector)


def expressions_of(selector: objects.LabelSelector) -> tuple[Expression, ...]:
    """What a selector asks of labels, all of which has to hold."""
    labels = sorted((selector.match_labels or {}).items())
    return (
        *(Expression(key, "In", (value,)) for key, value in labels),
        *_expressions(selector.match_expressions),
    )


def _spread(given: objects.SpreadConstraint, namespace: str, labels: Labels) -> Spread:
    known = dict(labels)
    by_keys = tuple(
        Expression(key, "In", (known[key],)) for key in given.match_label_keys or () if key in known
    )
    term = PodTerm(given.topology_key, (namespace,), selector_of(given) + by_keys)
    return Spread(
        term=term,
        max_skew=max(given.max_skew, 1),
        is_required=given.when_unsatisfiable != "ScheduleAnyway",
        counts_self=selects(term, namespace, labels),
        min_domains=given.min_domains or 1,
        honors_affinity=given.node_affinity_policy != "Ignore",
        honors_taints=given.node_taints_policy == "Honor",
    )


def _ports(spec: objects.PodSpec) -> Iterable[HostPort]:
    """Of containers that run at the same time; on the host's network every port is the host's."""
    for container in spec.containers or ():
        yield from _ports_of(container, spec)
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            yield from _ports_of(container, spec)


def _ports_of(container: objects.Container, spec: objects.PodSpec) -> Iterable[HostPort]:
    for port in container.ports or ():
        number = port.host_port or (port.container_port if spec.host_network else 0)
        if number:
            yield HostPort(port.protocol or "TCP", port.host_ip or EVERY_ADDRESS, number)


def _expressions(found: list[objects.Expression] | None) -> tuple[Expression, ...]:
    return tuple(Expression(e.key, e.operator, tuple(e.values or ())) for e in found or ())
