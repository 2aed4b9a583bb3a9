"""Why nodes refuse a request, for many nodes at once: the first check that each of them fails.

The order of the checks is that of `predicates.fits`; a node fails a device step with the reason of
its card that got furthest. Of requests for devices at most one: what several leave each other is
asked node by node (`Board.reasons`).
"""

import msgspec
import numpy as np

from allotment.core import reasons
from allotment.core.placement.rules.card_book import need_of
from allotment.core.reasons import NUMBER, REFUSAL_ORDER
from allotment_board import packing
from allotment_board.arrays import MISSING
from allotment_board.columns import Columns
from allotment_board.loop_parts import CPU, FOR_SHARES, FOR_WHOLE, HOST_MEMORY, PLUGIN, PODS
from allotment_board.packing import Bools, Ints
from allotment_board.rows import (
    Row,
    View,
    good_cards,
    kept_apart,
)
from allotment_board.shapes import Ask, allowed_cards, plugin_need

_STEP = {code: step for step, code in enumerate(REFUSAL_ORDER)}
_CARD_NUMBERS = np.array([NUMBER[code] for code in REFUSAL_ORDER])


def reason_numbers(columns: Columns, row: Row, at: Ints) -> Ints:
    """For positions that do not fit, the number of the first check that each one fails."""
    shape = row.shape
    view = View(columns, at)
    numbers: Ints = row.static.codes.take(at)
    if row.rules is not None:
        numbers = np.where(numbers == 0, row.rules.numbers.take(at), numbers)
    for resource, code in (
        (PODS, reasons.POD_LIMIT_REACHED),
        (CPU, reasons.INSUFFICIENT_CPU),
        (HOST_MEMORY, reasons.INSUFFICIENT_MEMORY),
    ):
        short = view.host[resource] < shape.host_need[resource, 0]
        numbers = np.where((numbers == 0) & short, NUMBER[code], numbers)
    need = need_of(shape.request)
    is_used = (view.host[FOR_SHARES] < need.for_shares) | (view.host[FOR_WHOLE] < need.for_whole)
    numbers = np.where((numbers == 0) & is_used, NUMBER[reasons.CARDS_IN_OTHER_USE], numbers)
    if shape.unknown_family:
        return np.where(numbers == 0, NUMBER[reasons.NO_GPU], numbers)
    for ask in shape.asks:
        good = good_cards(row, ask, view)
        numbers = np.where(numbers == 0, _ask_numbers(row, ask, view, good), numbers)
    for name, amount in shape.request.extended:
        known = columns.resource(name)
        free_amount = np.full(len(at), MISSING) if known is None else view.host[known]
        gpu = name.endswith("/gpu")
        code = reasons.NOT_ENOUGH_GPUS_ON_NODE if gpu else reasons.INSUFFICIENT_RESOURCE
        unlisted = reasons.NO_GPU if gpu else code
        if not amount:
            continue
        lacks = np.where(free_amount == MISSING, NUMBER[unlisted], NUMBER[code])
        numbers = np.where((numbers == 0) & (free_amount < amount), lacks, numbers)
    if row.excluded is not None:
        numbers = np.where(numbers == 0, row.excluded.take(at), numbers)
    busy = view.host[PLUGIN] < plugin_need(shape.request.selection)
    return np.where((numbers == 0) & busy, NUMBER[reasons.DEVICE_PLUGIN_BUSY], numbers)


def _ask_numbers(row: Row, ask: Ask, view: View, good: Bools) -> Ints:
    """Reason numbers of one device request; 0 where it is granted."""
    kind = view.keys & view.columns.kind_mask
    mine = ask.is_family[kind]
    has_any = mine.any(axis=1)
    steps = _steps(row, ask, view, kind)
    furthest = np.where(mine & ~good, steps, -1).max(axis=1)
    out = np.where(good.sum(axis=1) >= ask.number, 0, _CARD_NUMBERS[np.maximum(furthest, 0)])
    out[mine.sum(axis=1) < ask.number] = NUMBER[reasons.NOT_ENOUGH_GPUS_ON_NODE]
    for fits, code in (
        (ask.mode_fits, reasons.GPU_MODE_MISMATCH),
        (ask.readable, reasons.CARDS_QUARANTINED),
        (ask.unforged, reasons.RECORD_FORGED),
    ):
        unfit = ask.is_family & ~fits
        if unfit.any():
            out[(mine & unfit[kind]).any(axis=1)] = NUMBER[code]
    numbers: Ints = np.where(has_any, out, NUMBER[reasons.NO_GPU])
    return numbers


def _steps(row: Row, ask: Ask, view: View, kind: Ints) -> Ints:
    """Which check of `REFUSAL_ORDER` each card (M, D) fails first; checks that no card of its kind
    can fail are left out.
    """
    held, free_mib = packing.holders(view.packed), packing.memory_mib(view.packed)
    steps = np.full(kind.shape, _STEP[reasons.INSUFFICIENT_GPU_COMPUTE])
    if (ask.is_family & ~(ask.has_piece & (ask.memory_mib <= ask.need_mib))).any():
        lacks = ~ask.has_piece[kind] | (free_mib < ask.memory_mib[kind])
        steps[lacks] = _STEP[reasons.NO_FITTING_INSTANCE]
    steps[free_mib < ask.need_mib[kind]] = _STEP[reasons.INSUFFICIENT_GPU_MEMORY]
    if ask.is_whole:
        steps[held > 0] = _STEP[reasons.EXCLUSIVE_CONFLICT]
    steps[held >= ask.slots[kind]] = _STEP[reasons.SHARE_LIMIT_REACHED]
    apart = kept_apart(row, view)
    if apart is not None:
        steps[apart] = _STEP[reasons.CARD_KEPT_APART]
    for takes, code in (
        (ask.healthy, reasons.GPU_UNHEALTHY),
        (ask.accepted, reasons.GPU_MODEL_MISMATCH),
    ):
        if not takes.all():
            steps[~takes[kind]] = _STEP[code]
    if row.allowed is not None:
        steps[~row.allowed.take(view.at, axis=0)] = _STEP[reasons.CARD_FAILING]
        selection = msgspec.structs.replace(row.shape.request.selection, avoided=())
        selected = allowed_cards(view.columns, selection)
        if selected is not None:
            steps[~selected.take(view.at, axis=0)] = _STEP[reasons.GPU_NOT_SELECTED]
    return steps
