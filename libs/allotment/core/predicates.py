"""Whether a pod fits on a node: one question, asked by the filter, the scorer and the binder.

The checks run in a fixed order and a node is charged to the first that it fails, so the counts of a
refusal add up to the number of nodes. `fits` answers with the chosen cards, or with a reason code.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.devices import FAMILIES, by_family
from allotment.core.devices.base import (
    CardOrder,
    Chosen,
    Family,
    choose_cards,
    in_order,
    rules_of,
)
from allotment.core.policies import device_policy
from allotment.core.state import Node
from allotment_proto.facts import (
    Constraints,
    Expression,
    NodeTerm,
    PodRequest,
    Policy,
    Taint,
    Toleration,
)

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
NO_SCHEDULE = frozenset(("NoSchedule", "NoExecute"))
CORDON_TAINT = "node.kubernetes.io/unschedulable"

STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("ready and not cordoned", frozenset((reasons.NODE_NOT_READY, reasons.NODE_CORDONED))),
    (
        "taints, selector, affinity",
        frozenset(
            (reasons.TAINT_NOT_TOLERATED, reasons.SELECTOR_MISMATCH, reasons.AFFINITY_MISMATCH)
        ),
    ),
    (
        "room on the host",
        frozenset(
            (reasons.POD_LIMIT_REACHED, reasons.INSUFFICIENT_CPU, reasons.INSUFFICIENT_MEMORY)
        ),
    ),
    (
        "has such devices",
        frozenset(
            (
                reasons.NO_GPU,
                reasons.CARDS_QUARANTINED,
                reasons.GPU_MODE_MISMATCH,
                reasons.NOT_ENOUGH_GPUS_ON_NODE,
            )
        ),
    ),
    (
        "a card that the pod accepts",
        frozenset((reasons.GPU_NOT_SELECTED, reasons.GPU_MODEL_MISMATCH, reasons.GPU_UNHEALTHY)),
    ),
    (
        "that card can be shared",
        frozenset(
            (reasons.CARD_KEPT_APART, reasons.SHARE_LIMIT_REACHED, reasons.EXCLUSIVE_CONFLICT)
        ),
    ),
    (
        "with enough unreserved memory",
        frozenset((reasons.INSUFFICIENT_GPU_MEMORY, reasons.NO_FITTING_INSTANCE)),
    ),
    ("with enough unreserved compute", frozenset((reasons.INSUFFICIENT_GPU_COMPUTE,))),
    ("other resources", frozenset((reasons.INSUFFICIENT_RESOURCE,))),
)
"""The same order in words, for the funnel of an explanation."""


class Fit(NamedTuple):
    """The cards a node would give, per family in request order."""

    chosen: tuple[Chosen, ...]


def fits(
    node: Node, request: PodRequest, policy: Policy, only: frozenset[str] | None = None
) -> Fit | str:
    """The cards that the node would give to the request, or why it gives none (reason code).

    With `only` the cards are given and the question is whether they still do.
    """
    fact = node.fact
    if fact is None or not fact.ready:
        return reasons.NODE_NOT_READY
    code = accepts(node, request.constraints)
    if code is not None:
        return code
    if node.pods_free < 1:
        return reasons.POD_LIMIT_REACHED
    if request.cpu_milli and node.cpu_milli_free < request.cpu_milli:
        return reasons.INSUFFICIENT_CPU
    if request.memory_bytes and node.memory_bytes_free < request.memory_bytes:
        return reasons.INSUFFICIENT_MEMORY
    chosen: list[Chosen] = []
    if any(wanted.family not in FAMILIES for wanted in request.devices):
        return reasons.NO_GPU
    for family, wanted in by_family(request).items():
        ledger = node.ledgers.get(family)
        if ledger is None or family not in policy.families:
            return reasons.NO_GPU
        sort = _card_order(node, request, FAMILIES[family], policy)
        rules = rules_of(request, policy)
        cards = choose_cards(ledger, wanted, rules, FAMILIES[family], sort, only)
        if isinstance(cards, str):
            return cards
        chosen.append(cards)
    for name, amount in request.extended:
        if amount > max(node.extended_free.get(name, 0), 0):
            listed = name in node.extended_free
            gpu = name.endswith("/gpu")
            if gpu and not listed:
                return reasons.NO_GPU
            return reasons.NOT_ENOUGH_GPUS_ON_NODE if gpu else reasons.INSUFFICIENT_RESOURCE
    return Fit(tuple(chosen))


def _card_order(node: Node, request: PodRequest, family: Family, policy: Policy) -> CardOrder:
    """How the cards are sorted for each device request: by the family's rule, or the policy's."""
    chooser = device_policy(policy)
    word = family.order or chooser.order
    if word != "preferred":
        return lambda cards, wanted: in_order(cards, word)
    return lambda cards, wanted: chooser.prefer(node, request, wanted, cards, policy)


def accepts(node: Node, constraints: Constraints) -> str | None:
    """The checks that depend on neither capacity nor use: cordon, taints, selector, affinity."""
    assert node.fact is not None
    if node.fact.unschedulable and not tolerates(
        Taint(CORDON_TAINT, "", "NoSchedule"), constraints.tolerations
    ):
        return reasons.NODE_CORDONED
    for taint in node.fact.taints:
        if taint.effect in NO_SCHEDULE and not tolerates(taint, constraints.tolerations):
            return reasons.TAINT_NOT_TOLERATED
    labels = node.labels
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return reasons.SELECTOR_MISMATCH
    if constraints.affinity and not any(
        term_matches(term, labels, node.name) for term in constraints.affinity
    ):
        return reasons.AFFINITY_MISMATCH
    return None


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
    """All expressions of one node selector term; a term without any matches nothing."""
    if not term.labels and not term.fields:
        return False
    return all(_holds(e, labels.get(e.key)) for e in term.labels) and all(
        e.key == "metadata.name" and _holds(e, node_name) for e in term.fields
    )


def _holds(expression: Expression, value: str | None) -> bool:
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
