"""A row's request told to the compiled loops, and the switch that brings them in.

They know what is asked for most: the policies `binpack`, `spread` and `none`, whole and shared
cards, cut cards, plugins' terms. What they do not know is scored in NumPy as ever; the integers are
the same, so that it does not matter for any decision when or whether they are there.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from allotment.core.placement.board.arrays import CPU, HOST_MEMORY, PODS, SIZE_EXTENDED, USE_ORDERS
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.kernel_layout import (
    AFTER,
    AMOUNT,
    AMOUNT_SHIFT,
    ASK_COUNT,
    BINPACK,
    BY_HOLDERS,
    BY_PLACE,
    BY_USE,
    CHARGE_CPU,
    CHARGE_KIB,
    CHARGED_MIB,
    CONSTANT_MICRO,
    DEVICE_WEIGHT,
    DIVISOR_MIB,
    EACH_ONCE,
    EXTENDED_COUNT,
    EXTENDED_FIELDS,
    FIELDS,
    FIT_MICRO,
    FIT_WEIGHT,
    HOST_POLICY,
    HOST_WEIGHT,
    IMAGE_MICRO,
    IS_CUT_OFF,
    KIND_COUNT,
    KIND_MASK,
    MAY_EXCEED,
    MEAN_COUNT,
    MEAN_FIELDS,
    NEED,
    NEED_CPU,
    NEED_MEMORY,
    NEED_PODS,
    NONE,
    NUMBER,
    ORDER,
    PLAN_LENGTH,
    POLICY,
    RANK,
    SHARE_COUNT,
    SHARE_FIELDS,
    SIZE_MIB,
    SPARE_MIB,
    SPREAD,
    TERMS_LENGTH,
)
from allotment.core.placement.board.packing import Ints
from allotment.core.placement.board.rows import Row
from allotment.core.placement.board.shapes import Ask, Shape
from allotment.core.placement.devices.base import SCORE_EACH
from allotment.core.placement.rules.points import KIB_BITS
from allotment_proto.facts import Policy

POLICY_NUMBERS = {"none": NONE, "binpack": BINPACK, "spread": SPREAD}

ScorePositions = Callable[..., int]


class Loops(NamedTuple):
    """Both of `kernel`, compiled or not."""

    score_positions: ScorePositions
    score_shares: ScorePositions


class MachineCode:
    """The compiled loops once somebody brought them in (`adapters.machine_code`), else None."""

    loops: Loops | None = None


def plan_of(
    columns: Columns, row: Row, policy: Policy, device: str, *, image_micro: int, is_cut: bool
) -> Ints | None:
    """The row's request in numbers; None if the compiled loops do not know something in it.

    `device` names the device policy in use, `image_micro` is what a point of the images is worth,
    and `is_cut` says whether totals may be cut off.
    """
    shape, layout = row.shape, columns.layout
    if device not in POLICY_NUMBERS or row.is_impossible or not all(map(_is_known, shape.asks)):
        return None
    if row.more is not None and row.more.worths:
        return None
    plan = np.zeros(PLAN_LENGTH, np.int64)
    plan[[NEED_PODS, NEED_CPU, NEED_MEMORY]] = shape.host_need[[PODS, CPU, HOST_MEMORY], 0]
    plan[CHARGE_CPU] = shape.request.cpu_milli
    plan[CHARGE_KIB] = shape.request.memory_bytes >> KIB_BITS
    plan[POLICY], plan[DEVICE_WEIGHT] = POLICY_NUMBERS[device], policy.device_weight
    plan[FIT_WEIGHT], plan[IMAGE_MICRO] = policy.fit_weight, image_micro
    if policy.host_weight:
        plan[HOST_POLICY] = POLICY_NUMBERS.get(policy.host_policy, NONE)
        plan[HOST_WEIGHT] = policy.host_weight
    plan[KIND_MASK], plan[AMOUNT_SHIFT] = layout.kind_mask, layout.amount_shift
    plan[MAY_EXCEED], plan[IS_CUT_OFF] = shape.may_exceed, is_cut
    terms: Ints = np.zeros(TERMS_LENGTH, np.int64)
    means: Ints = np.zeros((0, MEAN_FIELDS), np.int64)
    shares: Ints = np.zeros((0, SHARE_FIELDS), np.int64)
    if row.more is not None:
        plan[CONSTANT_MICRO] = row.more.constant_micro
        terms, means, shares = row.more.terms.told()
    asks = np.zeros((len(shape.asks), FIELDS, layout.kinds_most), np.int64)
    for number, ask in enumerate(shape.asks):
        _tell(asks[number], ask)
    extended = _extended(shape)
    plan[[ASK_COUNT, KIND_COUNT, EXTENDED_COUNT]] = len(asks), layout.kinds_most, len(extended)
    plan[[MEAN_COUNT, SHARE_COUNT]] = len(means), len(shares)
    return np.concatenate(
        [plan, *(each.ravel() for each in (asks, extended, terms, means, shares))]
    )


def _is_known(ask: Ask) -> bool:
    return ask.scoring == SCORE_EACH and not ask.is_wired and ask.order != "preferred"


def _tell(fields: Ints, ask: Ask) -> None:
    fields[NEED] = ask.need
    fields[RANK] = 0 if ask.rank is None else ask.rank
    fields[AMOUNT] = ask.amount
    fields[AFTER] = ask.after if ask.is_cut else np.arange(fields.shape[1])
    fields[CHARGED_MIB] = ask.memory_mib
    fields[SPARE_MIB] = ask.spare_mib
    fields[SIZE_MIB] = ask.size_mib
    fields[DIVISOR_MIB] = ask.divisor_mib
    fields[NUMBER] = ask.number
    by_holders = BY_HOLDERS if ask.order == "emptiest" else BY_PLACE
    fields[ORDER] = BY_USE if ask.order in USE_ORDERS else by_holders
    fields[EACH_ONCE] = ask.each_once
    fields[FIT_MICRO] = ask.fit_micro


def _extended(shape: Shape) -> Ints:
    told = [(row, row + SIZE_EXTENDED, amount) for row, amount in shape.extended_need]
    return np.array(told, np.int64).reshape(-1, EXTENDED_FIELDS)
