"""How good a place is: integers only, in micro-points (10⁻⁶ of a point; a full card is 100 points).

The device term sums over the chosen cards, after volcano `vgpu` scoring (deviceshare 5.1):
binpack gives 100 × used-after ÷ capacity per card, spread gives 100 per card that was idle before.
Counted resources (`nvidia.com/gpu`) score likewise by their use on the node. The host term is the
mean of CPU and memory use after placement (binpack) or its complement (spread).
"""

from typing import NamedTuple

from allotment.core.predicates import Fit
from allotment.core.state import Node
from allotment_proto.facts import PodRequest, Policy

POINT_MICRO = 1_000_000
FULL_MICRO = 100 * POINT_MICRO
KIB_BITS = 10
HOST_USED_MAX = 1 << 35
COUNTED_BITS = 34


class Score(NamedTuple):
    """`leftover_mib` is the memory left on the chosen cards: the smaller, the better the fit."""

    total_micro: int
    terms: tuple[tuple[str, int], ...]
    leftover_mib: int


def share_micro(used: int, capacity: int) -> int:
    """100 points × used ÷ capacity, floored; 0 for a capacity of 0."""
    return FULL_MICRO * used // capacity if capacity > 0 else 0


def counted_share_micro(used: int, capacity: int) -> int:
    """`share_micro` of a counted resource. Large ones (bandwidth in bits) count in a coarser unit,
    so that the same arithmetic fits 64 bits.
    """
    unit = 1 + (capacity >> COUNTED_BITS)
    return share_micro(used // unit, capacity // unit)


def score(node: Node, request: PodRequest, fit: Fit, policy: Policy) -> Score:
    """The total and its weighted terms for putting the request on the node's chosen cards."""
    device, leftover_mib = _device(node, request, fit, policy.device_policy)
    host = _host(node, request, policy.host_policy)
    terms = (("device", policy.device_weight * device), ("host", policy.host_weight * host))
    return Score(sum(value for _, value in terms), terms, leftover_mib)


def _device(node: Node, request: PodRequest, fit: Fit, policy: str) -> tuple[int, int]:
    total, leftover_mib = 0, 0
    for chosen in fit.chosen:
        for card, was_idle, used_after_mib, free_after_mib in chosen.picks:
            leftover_mib += free_after_mib
            if policy == "binpack":
                total += share_micro(used_after_mib, card.fact.memory_mib)
            elif policy == "spread" and was_idle:
                total += FULL_MICRO
    if not fit.chosen:
        assert node.fact is not None
        listed = dict(node.fact.extended)
        for name, amount in request.extended:
            if not amount:
                continue
            used_after = listed[name] - node.extended_free[name] + amount
            share = counted_share_micro(used_after, listed[name])
            if policy == "binpack":
                total += share
            elif policy == "spread":
                total += FULL_MICRO - share
    return total, leftover_mib


def _host(node: Node, request: PodRequest, policy: str) -> int:
    assert node.fact is not None
    cpu_used = node.fact.cpu_milli - node.cpu_milli_free + request.cpu_milli
    memory_used = node.fact.memory_bytes - node.memory_bytes_free + request.memory_bytes
    return host_micro(
        (cpu_used, node.fact.cpu_milli), (memory_used, node.fact.memory_bytes), policy
    )


def host_micro(cpu_milli: tuple[int, int], memory_bytes: tuple[int, int], policy: str) -> int:
    """The host term before its weight, from (used after, size) of CPU and of memory.

    It lies between 0 and 100 points: an overbooked host counts as full. Memory counts in KiB and
    use up to `HOST_USED_MAX`, so that the same arithmetic fits 64 bits.
    """
    if policy not in ("binpack", "spread"):
        return 0
    used, size = memory_bytes
    mean = (_host_share(*cpu_milli) + _host_share(used >> KIB_BITS, size >> KIB_BITS)) // 2
    return mean if policy == "binpack" else FULL_MICRO - mean


def _host_share(used: int, size: int) -> int:
    return min(share_micro(min(used, HOST_USED_MAX), size), FULL_MICRO)
