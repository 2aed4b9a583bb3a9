"""A row's request in numbers, as the loops read it; `plan` says what stands where."""

import numpy as np

from allotment.core.placement.devices.base import SCORE_COMPUTE, SCORE_EACH, SCORE_FIRST
from allotment.core.placement.devices.free import need_memory_mib
from allotment.core.placement.policies import device_policy
from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.typical import (
    CARDS_MOST,
    HOST_MOST,
    UNITS_MOST,
    Mix,
    takes_one,
    unit_milli,
)
from allotment.core.placement.rules.card_book import need_of
from allotment.core.placement.rules.points import KIB_BITS, weighs_host
from allotment.core.placement.rules.score_term import CPU_NAME, MEMORY_NAME
from allotment.core.placement.rules.terms import TERMS, Weights, weights_of
from allotment_board import plan, values
from allotment_board.arrays import HUGE, USE_ORDERS
from allotment_board.columns import Columns
from allotment_board.loop_parts import CPU, HOST_MEMORY, PODS
from allotment_board.packing import GUARDS, NEVER, Ints, pack_free
from allotment_board.rows import Row
from allotment_board.shapes import Ask, card_sizes, compile_shape, plugin_need
from allotment_board.term_loops import LOOPS
from allotment_proto.facts import DeviceRequest, Policy, Typical

POLICY_NUMBERS = {
    "none": plan.NONE,
    "binpack": plan.BINPACK,
    "spread": plan.SPREAD,
    FillAhead.name: plan.FILL_AHEAD,
}
"""Device policies that the loops know."""
_ORDERS = {
    **dict.fromkeys(USE_ORDERS, plan.BY_USE),
    "preferred": plan.BY_VALUE,
    "emptiest": plan.BY_HOLDERS,
}
_HOST_ROWS = {CPU_NAME: CPU, MEMORY_NAME: HOST_MEMORY}
_SCORINGS = {
    SCORE_EACH: plan.EACH,
    SCORE_FIRST: plan.FIRST,
    SCORE_COMPUTE: plan.COMPUTE,
}


def serves(policy: Policy) -> bool:
    """Whether the loops know the device policy and every score term of a policy."""
    names = [term.name for term, _ in weights_of(policy).active()]
    return device_policy(policy).name in POLICY_NUMBERS and all(name in LOOPS for name in names)


class DeviceNumbers:
    """A device policy in numbers: which one it is, and what typical pods ask for if it looks ahead
    to them, family by family, as long as no kind of card is new.
    """

    def __init__(self, columns: Columns, policy: Policy, device: DevicePolicy) -> None:
        self.policy = POLICY_NUMBERS[device.name]
        self.mix = device.mix if isinstance(device, FillAhead) else None
        """None for a policy that does not look ahead."""
        self._columns = columns
        self._policy = policy
        self._kinds = 0
        self._made: dict[str | None, list[int]] = {}

    def of(self, family: str | None) -> list[int]:
        """The shapes that ask for cards of a family, or of any, as the loops read them."""
        assert self.mix is not None
        if self._kinds != len(self._columns.kinds):
            self._kinds = len(self._columns.kinds)
            self._made.clear()
        made = self._made.get(family)
        if made is None:
            made = self._made[family] = _encode_mix(self._columns, self.mix, family, self._policy)
        return made


def encode(
    columns: Columns, row: Row, policy: Policy, device: DeviceNumbers, weights: Weights
) -> Ints:
    """The request in numbers; `device` is the device policy in use."""
    shape, kinds = row.shape, columns.layout.kinds_most
    planned: Ints = np.zeros(plan.PLAN_LENGTH, np.int64)
    needs = [plan.NEED_PODS, plan.NEED_CPU, plan.NEED_MEMORY]
    planned[needs] = shape.host_need[[PODS, CPU, HOST_MEMORY], 0]
    planned[plan.NEED_PLUGIN] = plugin_need(shape.request.selection)
    planned[[plan.NEED_FOR_SHARES, plan.NEED_FOR_WHOLE]] = need_of(shape.request)
    planned[plan.CHARGE_CPU] = shape.request.cpu_milli
    planned[plan.CHARGE_KIB] = shape.request.memory_bytes >> KIB_BITS
    planned[plan.POLICY] = device.policy
    planned[plan.DEVICE_WEIGHT] = policy.device_weight
    planned[plan.FIT_WEIGHT] = policy.fit_weight
    if weighs_host(policy):
        planned[plan.HOST_POLICY] = POLICY_NUMBERS[policy.host_policy]
        planned[plan.HOST_WEIGHT] = policy.host_weight
    planned[plan.KIND_MASK] = columns.layout.kind_mask
    planned[plan.AMOUNT_SHIFT] = columns.layout.amount_shift
    planned[plan.MAY_EXCEED] = shape.may_exceed
    if row.more is not None:
        planned[plan.CONSTANT_MICRO] = row.more.constant_micro
        planned[plan.IS_CAPPED] = row.more.is_capped
    asks: Ints = np.zeros((len(shape.asks), plan.FIELDS, kinds), np.int64)
    for number, ask in enumerate(shape.asks):
        _encode_ask(asks[number], ask)
        asks[number, plan.CHIP] = _first_of_chip(shape.asks, number)
    families: list[str | None] = [ask.request.family for ask in shape.asks]
    extended: Ints = np.array(shape.extended_need, np.int64).reshape(-1, 2)
    planned[plan.ASK_COUNT], planned[plan.KIND_COUNT] = len(asks), kinds
    planned[plan.EXTENDED_COUNT] = len(extended)
    planned[plan.EXTENDED_AT] = plan.PLAN_LENGTH + asks.size
    planned[plan.TERMS_AT] = planned[plan.EXTENDED_AT] + extended.size
    terms = _encode_terms(columns, row, weights, int(planned[plan.TERMS_AT]))
    ahead: list[int] = []
    if device.mix is not None:
        planned[plan.VALUES_AT] = end = planned[plan.TERMS_AT] + len(terms)
        begins: dict[str | None, int] = {}
        for family in dict.fromkeys(families or [None]):
            begins[family] = int(end) + len(ahead)
            ahead += device.of(family)
        for number, family in enumerate(families):
            asks[number, plan.FAMILY_VALUES_AT] = begins[family]
    numbers: tuple[Ints, ...] = planned, asks.ravel(), extended.ravel(), terms
    return np.concatenate((*numbers, np.array(ahead, np.int64)))


def _encode_mix(columns: Columns, mix: Mix, family: str | None, policy: Policy) -> list[int]:
    """The shapes of a mix with devices (of one family if it is given) and with weight: `values`
    says what stands where.
    """
    kinds, kinds_most = columns.kinds, columns.layout.kinds_most
    is_suited = [False] * kinds_most
    shapes: list[int] = []
    count = 0
    for shape in mix:
        ask = shape.ask
        if ask is None or not shape.weight_ppm or (family is not None and ask.family != family):
            continue
        asks = compile_shape(columns, shape.request, policy).asks
        need = asks[0].need_by_amount.tolist() if asks else [NEVER] * kinds_most
        count += 1
        shapes += _encode_shape(shape, ask)
        shapes += need
        unit_mib, fill = [0] * kinds_most, [0] * kinds_most
        for number, kind in enumerate(kinds):
            idle = pack_free(0, kind.memory_mib, kind.cores_pct)
            is_suited[number] |= (idle - need[number]) & GUARDS == GUARDS
            mib = need_memory_mib(ask, kind.memory_mib, kind.table)
            unit_mib[number] = min(max(mib, 0), HUGE)
            fill[number] = unit_milli(ask, mib, kind.memory_mib, kind.cores_pct)
        shapes += unit_mib + fill
    slots = [min(kind.slots, HUGE) for kind in kinds] + [0] * (kinds_most - len(kinds))
    sizes = card_sizes(columns, policy).tolist()
    return [count, *sizes, *slots, *map(int, is_suited), *shapes]


def _encode_shape(shape: Typical, ask: DeviceRequest) -> list[int]:
    """What is not said by kind of a shape."""
    numbers = [0] * values.NEED
    numbers[values.NUMBER] = min(max(ask.count, 1), CARDS_MOST + 1)
    numbers[values.CPU_MILLI] = min(shape.request.cpu_milli, HOST_MOST)
    numbers[values.MEMORY_KIB] = min(shape.request.memory_bytes >> KIB_BITS, HOST_MOST)
    numbers[values.WEIGHT_PPM] = shape.weight_ppm
    numbers[values.UNIT_PCT] = ask.cores_pct
    numbers[values.UNITS_MOST] = 1 if takes_one(ask) else UNITS_MOST
    return numbers


def _encode_ask(fields: Ints, ask: Ask) -> None:
    fields[plan.NEED] = ask.need
    fields[plan.RANK] = 0 if ask.rank is None else ask.rank
    fields[plan.AMOUNT] = ask.amount
    fields[plan.AFTER] = ask.after if ask.is_partitioned else np.arange(fields.shape[1])
    fields[plan.CHARGED_MIB] = ask.memory_mib
    fields[plan.SPARE_MIB] = ask.spare_mib
    fields[plan.SIZE_MIB] = ask.size_mib
    fields[plan.DIVISOR_MIB] = ask.divisor_mib
    fields[plan.CHARGED_PCT] = ask.cores_pct
    fields[plan.SIZE_PCT] = ask.size_pct
    fields[plan.IS_SECOND_BEST] = ask.is_second_best
    fields[plan.IS_CHIP] = ask.is_chip
    fields[plan.FIT_MICRO] = ask.fit_micro
    fields[plan.NUMBER] = ask.number
    fields[plan.ORDER] = _ORDERS.get(ask.order, plan.BY_PLACE)
    fields[plan.SCORING] = _SCORINGS[ask.scoring]
    fields[plan.EACH_ONCE] = ask.each_once
    fields[plan.IS_WIRED] = ask.is_wired


def _first_of_chip(asks: tuple[Ask, ...], number: int) -> int:
    """The first device request that wants chips of one network of the same type; −1 for one that
    does not mind the network."""
    chip = asks[number].request.chip
    equal = (n for n, ask in enumerate(asks) if ask.is_wired and ask.request.chip == chip)
    return next(equal) if asks[number].is_wired else -1


def _encode_terms(columns: Columns, row: Row, weights: Weights, start: int) -> Ints:
    """The table of the plugins' terms and behind it their numbers; the table begins at `start`."""

    def row_of(name: str) -> int | None:
        return _HOST_ROWS.get(name) or columns.resource(name)

    starts, encoded = np.zeros(len(TERMS), np.int64), [0] * 0
    for number, (term, each) in enumerate(zip(TERMS, weights.of_terms, strict=True)):
        if each is not None:
            starts[number] = start + len(TERMS) + len(encoded)
            encoded += map(int, LOOPS[term.name].encode(row.shape.request, each, row_of))
    return np.concatenate((starts, np.array(encoded, np.int64)))
