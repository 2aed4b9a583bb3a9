"""How good a place is: the device policy's points and the host's, each times its weight, and those
of the plugins of a configuration file.

Integers only (`points`). The fit term is how much of the allocated part of its cards a pod
requested: a share is exactly that, a MIG instance may be larger. The device policy counts the
difference as in use, so binpack prefers it; the fit term counts it as waste. Only pods with devices
have it, and only if it has a weight. The host term is the mean of CPU and memory use after
placement (binpack) or its complement (spread). Plugins count only if a file gave the tiers
(`terms`); part of `nodeorder` compares a node with the others that fit (`relative`). Totals end at
`TOTAL_MOST`.
"""

import msgspec

from allotment.core.ledger.model import Node
from allotment.core.placement.devices.choosing import Pick
from allotment.core.placement.policies import device_policy
from allotment.core.placement.rules.bounds import bonus_micro, bounds_of
from allotment.core.placement.rules.points import (
    FULL_MICRO,
    KIB_BITS,
    LEFTOVER_MOST,
    POINTS_MOST,
    TOTAL_MOST,
    fit_share_micro,
    host_micro,
    host_sum,
)
from allotment.core.placement.rules.predicates import Fit
from allotment.core.placement.rules.terms import host_terms, weights_of
from allotment_proto.facts import Holding, PodRequest, Policy


class Score(msgspec.Struct, frozen=True, gc=False, order=True):
    """`leftover` is what the choice leaves unused: the smaller, the better the fit."""

    total_micro: int
    terms: tuple[tuple[str, int], ...]
    leftover: int


def score(node: Node, request: PodRequest, fit: Fit, policy: Policy) -> Score:
    """The total and its weighted terms for putting the request on the node's chosen cards, without
    the terms that compare nodes.
    """
    picks = [pick for chosen in fit.chosen for pick in chosen.picks]
    points = device_policy(policy).points(node, request, picks, policy)
    device, leftover = min(points.micro, POINTS_MOST), min(points.leftover, LEFTOVER_MOST)
    host = _host(node, request, policy.host_policy)
    return _total_of(
        (
            ("device", policy.device_weight * device),
            *_fit_term(fit, policy.fit_weight),
            ("host", policy.host_weight * host),
            *host_terms(node, request, weights_of(policy)),
            *_bonuses(node, request),
        ),
        leftover,
    )


def _bonuses(node: Node, request: PodRequest) -> tuple[tuple[str, int], ...]:
    """What the node is worth to the pod, or to its queue."""
    bonuses = bounds_of(request).bonuses
    return tuple((bonus.term, bonus_micro(bonus, node.labels, node.name)) for bonus in bonuses)


def _fit_term(fit: Fit, weight: int) -> tuple[tuple[str, int], ...]:
    """100 points a card that is requested in full, less by what is allocated beyond the request."""
    parts = [
        _part_micro(pick, holding)
        for chosen in fit.chosen
        for pick, holding in zip(chosen.picks, chosen.holdings, strict=True)
    ]
    return (("fit", weight * min(sum(parts), POINTS_MOST)),) if weight and parts else ()


def _part_micro(pick: Pick, holding: Holding) -> int:
    is_partitioned = pick.card.partitioner is not None
    return fit_share_micro(holding.memory_mib, pick.charged_mib) if is_partitioned else FULL_MICRO


def _total_of(terms: tuple[tuple[str, int], ...], leftover: int) -> Score:
    return Score(min(sum(value for _, value in terms), TOTAL_MOST), terms, leftover)


def with_relative(score: Score, relative_micro: int) -> Score:
    """The score with what the node earns compared with others, as part of `nodeorder`."""
    terms = tuple(
        (name, value + relative_micro if name == "nodeorder" else value)
        for name, value in score.terms
    )
    return _total_of(terms, score.leftover)


def _host(node: Node, request: PodRequest, policy: str) -> int:
    assert node.fact is not None
    cpu_used = node.fact.cpu_milli - node.cpu_milli_free + request.cpu_milli
    memory_used = node.fact.memory_bytes - node.memory_bytes_free
    kib_used = (memory_used >> KIB_BITS) + (request.memory_bytes >> KIB_BITS)
    total = host_sum(
        (cpu_used, node.fact.cpu_milli), (kib_used, node.fact.memory_bytes >> KIB_BITS)
    )
    return host_micro(total, policy)
