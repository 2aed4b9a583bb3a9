"""Points and shares: integers only, in micro-points (10⁻⁶ of a point; 100 points a full card)."""

from allotment_proto.facts import Policy

POINT_MICRO = 1_000_000
FULL_MICRO = 100 * POINT_MICRO
KIB_BITS = 10
POINTS_MOST = 100 * FULL_MICRO
"""The most points of a device policy that count, so that a rank fits 63 bits under any weights."""
LEFTOVER_BITS = 23
LEFTOVER_MOST = (1 << LEFTOVER_BITS) - 1
"""The most leftover that counts."""
NETWORK_MICRO = 10 * POINT_MICRO
"""For containers whose first chips are all on one network."""
_HOST_POLICIES = ("binpack", "spread")
HOST_BITS = 33
"""Two full shares fit 62 bits, and the term resolves a KiB on a host of 32 TiB."""
HOST_HALF = 1 << HOST_BITS
COUNTED_BITS = 34
_SHARE_BITS = 35
_TOTAL_BITS = 40
TOTAL_MOST = (1 << _TOTAL_BITS) - 1
"""The greatest total, 1,099,511 points, so that a rank fits 63 bits under any weights."""


def share_micro(used: int, capacity: int) -> int:
    """100 points × used ÷ capacity, floored; 0 for a capacity of 0."""
    return FULL_MICRO * used // capacity if capacity > 0 else 0


def fit_share_micro(need_mib: int, given_mib: int) -> int:
    """100 points × what is needed ÷ what is allocated for it; 100 if nothing is allocated by
    memory.
    """
    return FULL_MICRO * min(need_mib, given_mib) // given_mib if given_mib > 0 else FULL_MICRO


def coarse_bits(size: int) -> int:
    """How many low bits `near_share_micro` drops, so that its arithmetic fits 64 bits."""
    return max(size.bit_length() - _SHARE_BITS, 0)


def near_share_micro(used: int, size: int) -> int:
    """100 points × used ÷ size to the nearest micro-point, at most 100 points; size is above 0."""
    bits = coarse_bits(size)
    used, size = used >> bits, size >> bits
    return (FULL_MICRO * min(used, size) + (size >> 1)) // size


def counted_share_micro(used: int, capacity: int) -> int:
    """`share_micro` of a counted resource. Large ones (bandwidth in bits) count in a coarser unit,
    so that the same arithmetic fits 64 bits.
    """
    unit = 1 + (capacity >> COUNTED_BITS)
    return share_micro(used // unit, capacity // unit)


def host_weight(size: int) -> int:
    """The weight of one unit in use, in fixed point with `HOST_BITS` binary digits, of 100
    points.
    """
    return (FULL_MICRO << HOST_BITS) // size if size > 0 else 0


def host_sum(cpu_milli: tuple[int, int], memory_kib: tuple[int, int]) -> int:
    """The two shares in use, in fixed point, from (used, size) of CPU and of memory.

    An over-committed host counts as full. Shifting the sum rounds it to the nearest.
    """
    return HOST_HALF + sum(
        min(used, size) * host_weight(size) for used, size in (cpu_milli, memory_kib)
    )


def weighs_host(policy: Policy) -> bool:
    """Whether the host's use adds points; a policy that this release does not know adds none."""
    return policy.host_weight > 0 and policy.host_policy in _HOST_POLICIES


def host_micro(total: int, policy: str) -> int:
    """The host term before its weight, from `host_sum` of what is in use after placement.

    The mean of the two shares (binpack), or what is missing to 100 points (spread).
    """
    if policy not in _HOST_POLICIES:
        return 0
    mean = total >> HOST_BITS + 1
    return mean if policy == "binpack" else FULL_MICRO - mean
