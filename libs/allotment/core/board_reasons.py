"""Why nodes refuse a request, for many nodes at once: the first check that each of them fails.

The order of the checks is that of `predicates.fits`; a node fails a device step with the reason of
its card that got furthest.
"""

import numpy as np

from allotment.core import reasons
from allotment.core.board_rows import NUMBER, Row, good_cards, take
from allotment.core.columns import CPU, HOST_MEMORY, MEMORY, MISSING, PODS, SLOTS, Columns, Ints
from allotment.core.devices.base import REFUSAL_ORDER
from allotment.core.shapes import Ask

_CARD_NUMBERS = np.array([NUMBER[code] for code in REFUSAL_ORDER])


def reason_numbers(columns: Columns, row: Row, at: Ints) -> Ints:
    """For positions that do not fit, the number of the first check that each one fails."""
    shape = row.shape
    host = columns.host.take(at, axis=1)
    numbers: Ints = row.static.codes.take(at)
    for column, code in (
        (PODS, reasons.POD_LIMIT_REACHED),
        (CPU, reasons.INSUFFICIENT_CPU),
        (HOST_MEMORY, reasons.INSUFFICIENT_MEMORY),
    ):
        short = host[column] < shape.host_need[column, 0]
        numbers = np.where((numbers == 0) & short, NUMBER[code], numbers)
    if shape.unknown_family:
        return np.where(numbers == 0, NUMBER[reasons.NO_GPU], numbers)
    if shape.asks:
        kind = columns.kind.take(at, axis=0)
        free = columns.free.take(at, axis=1)
        keys: dict[str, Ints] = {}
        for ask in shape.asks:
            found = _ask_numbers(columns, row, ask, at, kind, free)
            numbers = np.where(numbers == 0, found, numbers)
            if len(shape.asks) > 1 and ask.number <= columns.depth:
                _pretend(columns, row, ask, at, kind, free, keys)
    for name, amount in shape.request.extended:
        resource = columns.resource(name)
        free_amount = np.full(len(at), MISSING) if resource is None else host[resource]
        gpu = name.endswith("/gpu")
        code = reasons.NOT_ENOUGH_GPUS_ON_NODE if gpu else reasons.INSUFFICIENT_RESOURCE
        unlisted = reasons.NO_GPU if gpu else code
        if not amount:
            continue
        short = np.where(free_amount == MISSING, NUMBER[unlisted], NUMBER[code])
        numbers = np.where((numbers == 0) & (free_amount < amount), short, numbers)
    return numbers


def _pretend(
    columns: Columns,
    row: Row,
    ask: Ask,
    at: Ints,
    kind: Ints,
    free: Ints,
    keys: dict[str, Ints],
) -> None:
    """Take what one device request would get, so that the next is asked on top of it."""
    good = good_cards(row, ask, at, kind, free)
    key = keys.setdefault(ask.order, columns.keys[ask.order].take(at, axis=0))
    chosen = np.where(good, key, -1).argsort(axis=1)[:, : -ask.number - 1 : -1]
    flat = np.arange(len(at))[:, None] * columns.depth + chosen
    charge = ask.memory_mib.take(kind.ravel().take(flat))
    take(free, keys, flat, charge, ask.cores_pct, columns.depth)


def _ask_numbers(columns: Columns, row: Row, ask: Ask, at: Ints, kind: Ints, free: Ints) -> Ints:
    """Reason numbers of one device request; 0 where it is granted."""
    mine = ask.is_family.take(kind)
    cards = mine.sum(axis=1)
    wrong_mode = (mine & ~ask.mode_fits.take(kind)).any(axis=1)
    selected = mine if row.allowed is None else mine & row.allowed.take(at, axis=0)
    memory = ask.memory_mib.take(kind)
    slots = columns.kind_slots.take(kind)
    is_whole = ask.cores_pct == 100
    steps = np.full(kind.shape, len(REFUSAL_ORDER) - 1)
    checks = (
        ~selected,
        ~ask.accepted.take(kind),
        ~ask.healthy.take(kind),
        free[SLOTS] < 1,
        (free[SLOTS] != slots) if is_whole else np.zeros(kind.shape, np.bool_),
        free[MEMORY] < memory,
    )
    for step in range(len(checks) - 1, -1, -1):
        steps = np.where(checks[step], step, steps)
    good = good_cards(row, ask, at, kind, free)
    furthest = np.where(mine & ~good, steps, -1).max(axis=1)
    out = np.where(good.sum(axis=1) >= ask.number, 0, _CARD_NUMBERS[np.maximum(furthest, 0)])
    out = np.where(cards < ask.number, NUMBER[reasons.NOT_ENOUGH_GPUS_ON_NODE], out)
    out = np.where(wrong_mode, NUMBER[reasons.GPU_MODE_MISMATCH], out)
    numbers: Ints = np.where(cards == 0, NUMBER[reasons.NO_GPU], out)
    return numbers
