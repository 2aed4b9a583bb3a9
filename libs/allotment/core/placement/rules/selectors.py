"""Kubernetes' selectors, expressions and tolerations, applied to labels and taints."""

import re
from collections.abc import Mapping

from allotment_proto.facts import Constraints, Expression, NodeTerm, PodTerm, Taint, Toleration

NO_SCHEDULE = frozenset(("NoSchedule", "NoExecute"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def tolerates(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether any toleration matches the taint. Source: Kubernetes `Toleration.ToleratesTaint`."""
    return any(
        (not t.effect or t.effect == taint.effect)
        and (
            (t.operator == "Exists" and (not t.key or t.key == taint.key))
            or (t.operator != "Exists" and t.key == taint.key and t.value == taint.value)
        )
        for t in tolerations
    )


def term_matches(term: NodeTerm, labels: Mapping[str, str], node_name: str) -> bool:
    """Whether all expressions of a node selector term hold; a term without any matches nothing."""
    if not term.labels and not term.fields:
        return False
    return all(holds(e, labels.get(e.key)) for e in term.labels) and all(
        e.key == "metadata.name" and holds(e, node_name) for e in term.fields
    )


def holds(expression: Expression, value: str | None) -> bool:
    """Whether a label with this value (None: no such label) satisfies an expression."""
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(expression.values) != 1:
                return False
            if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(expression.values[0])):
                return False
            have, bound = int(value), int(expression.values[0])
            return have > bound if expression.operator == "Gt" else have < bound
        case _:
            return False


def selector_matches(constraints: Constraints, labels: Mapping[str, str]) -> bool:
    """Whether a node has every label that the node selector names."""
    return all(labels.get(key) == value for key, value in constraints.node_selector)


def affinity_matches(
    terms: tuple[NodeTerm, ...], labels: Mapping[str, str], node_name: str
) -> bool:
    """Whether one of the terms matches the node, or there are none."""
    return not terms or any(term_matches(term, labels, node_name) for term in terms)


def untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the taints keeps the pod off its node."""
    return any(
        taint.effect in NO_SCHEDULE and not tolerates(taint, tolerations) for taint in taints
    )


def selects(term: PodTerm, namespace: str, labels: tuple[tuple[str, str], ...]) -> bool:
    """Whether the term matches a pod with these labels in this namespace."""
    if term.namespaces and namespace not in term.namespaces:
        return False
    for expression in term.selector:  # plain loops, because this runs for every pod
        key, found = expression.key, None
        for name, value in labels:
            if name == key:
                found = value
                break
        if expression.operator == "In":
            if found is None or found not in expression.values:
                return False
        elif not holds(expression, found):
            return False
    return True
