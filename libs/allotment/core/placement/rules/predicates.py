"""Whether a pod fits on a node: one check, used by the filter, the scorer and the binder.

The checks run in a fixed order and a node is counted under the first that it fails, so the counts
of a rejection add up to the number of nodes. `fits` returns the chosen cards, or a reason code.
"""

from collections.abc import Callable
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.ledger.model import Node
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.base import Family
from allotment.core.placement.devices.choosing import Chosen, Given, choose_cards, rules_of
from allotment.core.placement.devices.free import CardOrder, in_order
from allotment.core.placement.policies import device_policy
from allotment.core.placement.rules.attachments import exceeds_limits
from allotment.core.placement.rules.bounds import kept_back, outside
from allotment.core.placement.rules.card_book import card_lack
from allotment.core.placement.rules.counted_cards import has_wrong_model
from allotment.core.placement.rules.interpod import Around, company_refusal, look_around
from allotment.core.placement.rules.selectors import (
    affinity_matches,
    selector_matches,
    tolerates,
    untolerated,
)
from allotment.core.placement.rules.switches import ALL, Switches, switches_of
from allotment_proto.facts import ALONE, PodRequest, Policy, Taint

CORDON_TAINT = "node.kubernetes.io/unschedulable"


class Fit(NamedTuple):
    """The cards that a node would allocate, per family in request order."""

    chosen: tuple[Chosen, ...]


class Question(NamedTuple):
    """One node, one pod, and what the checks need."""

    node: Node
    request: PodRequest
    switches: Switches
    around: Around | None
    """What the request's rules about other pods find; None: they are evaluated on this node
    alone.
    """


Check = Callable[[Question], str | None]
"""One check of a node: the reason code with which it rejects, or None."""


def _ready(ask: Question) -> str | None:
    return None if ask.node.fact is not None and ask.node.fact.ready else reasons.NODE_NOT_READY


def _accepted(ask: Question) -> str | None:
    return accepts(ask.node, ask.request, ask.switches)


def _other_pods(ask: Question) -> str | None:
    if ask.request.company == ALONE:
        return None
    around = look_around((ask.node,), ask.request) if ask.around is None else ask.around
    return company_refusal(ask.node, ask.request, around, ask.switches)


def _volumes(ask: Question) -> str | None:
    is_over = ask.switches.limits and exceeds_limits(ask.node, ask.request)
    return reasons.VOLUME_LIMIT_REACHED if is_over else None


def _pods(ask: Question) -> str | None:
    return reasons.POD_LIMIT_REACHED if ask.node.pods_free < 1 else None


def _cpu(ask: Question) -> str | None:
    need = ask.request.cpu_milli
    return reasons.INSUFFICIENT_CPU if need and ask.node.cpu_milli_free < need else None


def _memory(ask: Question) -> str | None:
    need = ask.request.memory_bytes
    return reasons.INSUFFICIENT_MEMORY if need and ask.node.memory_bytes_free < need else None


def _card_book(ask: Question) -> str | None:
    return card_lack(ask.node, ask.request)


HOST_CHECKS: dict[str, Check] = {
    "nodeReady": _ready,
    "nodeConstraints": _accepted,
    "otherPods": _other_pods,
    "volumeLimits": _volumes,
    "pods": _pods,
    "cpu": _cpu,
    "memory": _memory,
    "cardBook": _card_book,
}
"""The checks of the node itself in order, by the name that explanations use. A check may rely on
those before it: without a fact of the node, only the first runs.
"""


def fits(
    node: Node,
    request: PodRequest,
    policy: Policy,
    only: Given | None = None,
    around: Around | None = None,
) -> Fit | str:
    """The cards that the node would allocate to the request, or the reason code why it allocates
    none.

    With `only` the cards are given, and the check is whether they still fit. `around` is what the
    request's rules about other pods find; without it they are evaluated on this node alone.
    """
    question = Question(node, request, switches_of(policy), around)
    for check in HOST_CHECKS.values():
        code = check(question)
        if code is not None:
            return code
    chosen: list[Chosen] = []
    if any(wanted.family not in FAMILIES for wanted in request.devices):
        return reasons.NO_GPU
    for family, wanted in by_family(request).items():
        code = family_lack(node, family, policy)
        if code is not None:
            return code
        sort = _card_order(node, request, FAMILIES[family], policy)
        rules = rules_of(request, policy, node.name)
        cards = choose_cards(node.ledgers[family], wanted, rules, FAMILIES[family], sort, only)
        if isinstance(cards, str):
            return cards
        chosen.append(cards)
    for name, amount in request.extended:
        code = extended_lack(node, name, amount)
        if code is not None:
            return code
    code = kept_back(request, node.name)
    if code is not None:
        return code
    return _plugin_lack(node, request) or Fit(tuple(chosen))


def family_lack(node: Node, family: str, policy: Policy) -> str | None:
    """Why the node has no cards of a family; None if it has some."""
    is_served = family in node.ledgers and family in policy.families
    return None if is_served else reasons.NO_GPU


def extended_lack(node: Node, name: str, amount: int) -> str | None:
    """Why the node cannot allocate this much of an extended resource (counted GPUs included)."""
    if amount <= max(node.extended_free.get(name, 0), 0):
        return None
    if not name.endswith("/gpu"):
        return reasons.INSUFFICIENT_RESOURCE
    return reasons.NOT_ENOUGH_GPUS_ON_NODE if name in node.extended_free else reasons.NO_GPU


def _plugin_lack(node: Node, request: PodRequest) -> str | None:
    """The reason to skip a node that would fit: too many pods wait for its device plugin."""
    below = request.selection.backlog_below
    return reasons.DEVICE_PLUGIN_BUSY if below and node.backlog >= below else None


def _card_order(node: Node, request: PodRequest, family: Family, policy: Policy) -> CardOrder:
    """How the cards are sorted for each device request: by the family's order, or the policy's."""
    chooser = device_policy(policy)
    word = family.order or chooser.order
    if word != "preferred":
        return lambda cards, wanted: in_order(cards, word)
    return lambda cards, wanted: chooser.prefer(node, request, wanted, cards, policy)


def accepts(node: Node, request: PodRequest, switches: Switches = ALL) -> str | None:
    """The checks that depend on neither capacity nor use: cordon, taints, selector, affinity, where
    the pod's volumes can be reached, the models of counted cards, and the nodes that its queue may
    use.
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
