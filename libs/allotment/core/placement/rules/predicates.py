"""Whether a pod fits on a node: one question, asked by the filter, the scorer and the binder.

The checks run in a fixed order and a node is charged to the first that it fails, so the counts of a
refusal add up to the number of nodes. `fits` answers with the chosen cards, or with a reason code.
"""

from typing import NamedTuple

from allotment.core import reasons
from allotment.core.ledger.state import Node
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.base import Family
from allotment.core.placement.devices.choosing import Chosen, Given, choose_cards, rules_of
from allotment.core.placement.devices.free import CardOrder, in_order
from allotment.core.placement.policies import device_policy
from allotment.core.placement.rules.attachments import exceeds_limits
from allotment.core.placement.rules.bounds import kept_back, outside
from allotment.core.placement.rules.counted_cards import has_wrong_model
from allotment.core.placement.rules.interpod import Around, company_refusal, look_around
from allotment.core.placement.rules.selectors import (
    affinity_matches,
    selector_matches,
    term_matches,
    tolerates,
    untolerated,
)
from allotment.core.placement.rules.switches import ALL, Switches, switches_of
from allotment_proto.facts import ALONE, PodRequest, Policy, Taint

__all__ = ["STEPS", "Fit", "accepts", "fits", "term_matches", "tolerates"]

CORDON_TAINT = "node.kubernetes.io/unschedulable"

STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("ready and not cordoned", frozenset((reasons.NODE_NOT_READY, reasons.NODE_CORDONED))),
    (
        "taints, selector, affinity",
        frozenset(
            (reasons.TAINT_NOT_TOLERATED, reasons.SELECTOR_MISMATCH, reasons.AFFINITY_MISMATCH)
        ),
    ),
    ("its volumes can be reached", frozenset((reasons.VOLUME_OUT_OF_REACH,))),
    (
        "its queue may use the node",
        frozenset((reasons.NODE_GROUP, reasons.CARD_WITHOUT_QUOTA)),
    ),
    (
        "rules about other pods",
        frozenset(
            (
                reasons.HOST_PORT_TAKEN,
                reasons.POD_AFFINITY_MISMATCH,
                reasons.POD_ANTI_AFFINITY,
                reasons.REPELLED_BY_POD,
                reasons.SPREAD_MISMATCH,
            )
        ),
    ),
    ("its volumes can be attached", frozenset((reasons.VOLUME_LIMIT_REACHED,))),
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
    (
        "not kept for others",
        frozenset((reasons.HELD_FOR_GANG, reasons.KEPT_FOR_PREEMPTOR)),
    ),
)
"""The same order in words, for the funnel of an explanation."""


class Fit(NamedTuple):
    """The cards a node would give, per family in request order."""

    chosen: tuple[Chosen, ...]


def fits(
    node: Node,
    request: PodRequest,
    policy: Policy,
    only: Given | None = None,
    around: Around | None = None,
) -> Fit | str:
    """The cards that the node would give to the request, or why it gives none (reason code).

    With `only` the cards are given and the question is whether they still do. `around` is what the
    request's rules about other pods find; without it they are asked on this node alone.
    """
    fact = node.fact
    if fact is None or not fact.ready:
        return reasons.NODE_NOT_READY
    switches = switches_of(policy)
    code = accepts(node, request, switches)
    if code is None and request.company != ALONE:
        around = look_around((node,), request) if around is None else around
        code = company_refusal(node, request, around, switches)
    if code is None and switches.limits and exceeds_limits(node, request):
        code = reasons.VOLUME_LIMIT_REACHED
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
        rules = rules_of(request, policy, node.name)
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
    code = kept_back(request, node.name)
    if code is not None:
        return code
    return Fit(tuple(chosen))


def _card_order(node: Node, request: PodRequest, family: Family, policy: Policy) -> CardOrder:
    """How the cards are sorted for each device request: by the family's rule, or the policy's."""
    chooser = device_policy(policy)
    word = family.order or chooser.order
    if word != "preferred":
        return lambda cards, wanted: in_order(cards, word)
    return lambda cards, wanted: chooser.prefer(node, request, wanted, cards, policy)


def accepts(node: Node, request: PodRequest, switches: Switches = ALL) -> str | None:
    """The checks that depend on neither capacity nor use: cordon, taints, selector, affinity, where
    the pod's volumes can be reached, the models of cards that are only counted, and which nodes its
    queue may use.
    """
    fact, constraints = node.fact, request.constraints
    assert fact is not None
    if fact.unschedulable and not tolerates(
        Taint(CORDON_TAINT, "", "NoSchedule"), constraints.tolerations
    ):
        return reasons.NODE_CORDONED
    if switches.taints and untolerated(fact.taints, constraints.tolerations):
        return reasons.TAINT_NOT_TOLERATED
    if switches.affinity and not selector_matches(constraints, node.labels):
        return reasons.SELECTOR_MISMATCH
    if switches.affinity and not affinity_matches(constraints.affinity, node.labels, node.name):
        return reasons.AFFINITY_MISMATCH
    if switches.volumes and not all(
        affinity_matches(terms, node.labels, node.name) for terms in constraints.volumes
    ):
        return reasons.VOLUME_OUT_OF_REACH
    if has_wrong_model(fact, node.labels, request):
        return reasons.GPU_MODEL_MISMATCH
    return outside(request, node.labels, node.name)
