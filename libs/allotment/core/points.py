"""Points and shares: integers only, in micro-points (10⁻⁶ of a point; 100 points a full card)."""

POINT_MICRO = 1_000_000
FULL_MICRO = 100 * POINT_MICRO
KIB_BITS = 10
HOST_USED_MAX = 1 << 35
COUNTED_BITS = 34


def share_micro(used: int, capacity: int) -> int:
    """100 points × used ÷ capacity, floored; 0 for a capacity of 0."""
    return FULL_MICRO * used // capacity if capacity > 0 else 0


def counted_share_micro(used: int, capacity: int) -> int:
    """`share_micro` of a counted resource. Large ones (bandwidth in bits) count in a coarser unit,
    so that the same arithmetic fits 64 bits.
    """
    unit = 1 + (capacity >> COUNTED_BITS)
    return share_micro(used // unit, capacity // unit)


def host_micro(cpu_milli: tuple[int, int], memory_kib: tuple[int, int], policy: str) -> int:
    """The host term before its weight, from (used after, size) of CPU and of memory.

    The mean of the two shares (binpack), or what is missing to 100 points (spread). It lies between
    0 and 100 points: an overbooked host counts as full. Use counts up to `HOST_USED_MAX`, so that
    the same arithmetic fits 64 bits.
    """
    if policy not in ("binpack", "spread"):
        return 0
    mean = (_host_share(*cpu_milli) + _host_share(*memory_kib)) // 2
    return mean if policy == "binpack" else FULL_MICRO - mean


def _host_share(used: int, size: int) -> int:
    return min(share_micro(min(used, HOST_USED_MAX), size), FULL_MICRO)
