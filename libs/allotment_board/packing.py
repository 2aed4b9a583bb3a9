"""How a card's free amounts fit one 64-bit integer.

A *packed* amount has three fields with a guard bit above each: free memory (MiB), room for holders
(`HOLDERS_MOST` less those that there are), free compute (%). Memory and compute are biased, so that
an oversold card does not borrow from its neighbour. With all guards set in what is free and none in
what is needed, `free - need` leaves every guard standing exactly if `free >= need` in all three:
one subtraction asks three questions.

Amounts beyond a field's range are taken at its end, where "enough" and "not enough" mean the same.
"""

import numpy as np

from allotment.core.placement.policies.typical import CORES_MOST, MEMORY_MOST

MEMORY_BIAS = MEMORY_MOST + 2
MEMORY_MASK = (1 << 32) - 1
HOLDERS_MOST = (1 << 13) - 1
HOLDERS_MASK = (1 << 14) - 1
HOLDERS_SHIFT = 33
CORES_BIAS = CORES_MOST + 2
CORES_MASK = (1 << 14) - 1
CORES_SHIFT = 48
GUARDS = 1 << 32 | 1 << 47 | 1 << 62

NEVER = CORES_MASK << CORES_SHIFT | HOLDERS_MASK << HOLDERS_SHIFT | MEMORY_MASK
"""A need that no card covers."""
NOTHING = GUARDS | CORES_BIAS << CORES_SHIFT | MEMORY_BIAS
"""A card with nothing free."""
_UNHELD = NOTHING + (HOLDERS_MOST << HOLDERS_SHIFT)

_USED_BITS = 31
USED_MOST = (1 << _USED_BITS) - 1


def pack_need(slots: int, memory_mib: int, cores_pct: int, *, is_whole: bool) -> int:
    """What a card with `slots` must have free to take one more holder, or its only one."""
    room = max(HOLDERS_MOST + 1 - slots, HOLDERS_MOST if is_whole else 0)
    return (
        (min(cores_pct, CORES_MOST + 1) + CORES_BIAS << CORES_SHIFT)
        | (min(room, HOLDERS_MASK) << HOLDERS_SHIFT)
        | (min(memory_mib, MEMORY_MOST + 1) + MEMORY_BIAS)
    )


def pack_free(holders: int, memory_mib: int, cores_pct: int) -> int:
    """What a card has free, with guards."""
    if not (
        holders <= HOLDERS_MOST
        and -MEMORY_MOST < memory_mib < MEMORY_MOST
        and -CORES_MOST < cores_pct < CORES_MOST
    ):
        holders = min(holders, HOLDERS_MOST)
        memory_mib = max(-MEMORY_MOST, min(memory_mib, MEMORY_MOST))
        cores_pct = max(-CORES_MOST, min(cores_pct, CORES_MOST))
    return _UNHELD + (cores_pct << CORES_SHIFT) - (holders << HOLDERS_SHIFT) + memory_mib


def amount(memory_mib: int, cores_pct: int) -> int:
    """What one holding takes off a packed amount: a holder, memory, compute."""
    return (cores_pct << CORES_SHIFT) + (1 << HOLDERS_SHIFT) + memory_mib


# The same on arrays. Constants are 0-d arrays: NumPy takes them faster than Python's integers.
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Shorts = np.ndarray[tuple[int, ...], np.dtype[np.uint16]]

_guards = np.array(GUARDS)
_memory_mask = np.array(MEMORY_MASK)
_memory_bias = np.array(MEMORY_BIAS)
_holders_mask = np.array(HOLDERS_MASK)
_holders_most = np.array(HOLDERS_MOST)
_holders_shift = np.array(HOLDERS_SHIFT)
_cores_mask = np.array(CORES_MASK)
_cores_bias = np.array(CORES_BIAS)
_cores_shift = np.array(CORES_SHIFT)


def covers(free: Ints, need: Ints) -> Bools:
    """Where all three free amounts are at least what is needed."""
    enough: Bools = ((free - need) & _guards) == _guards
    return enough


def memory_mib(packed: Ints) -> Ints:
    """Free memory."""
    amounts: Ints = (packed & _memory_mask) - _memory_bias
    return amounts


def holders(packed: Ints) -> Ints:
    """How many holders there are."""
    amounts: Ints = _holders_most - ((packed >> _holders_shift) & _holders_mask)
    return amounts


def cores_pct(packed: Ints) -> Ints:
    """Free compute."""
    amounts: Ints = ((packed >> _cores_shift) & _cores_mask) - _cores_bias
    return amounts
