"""A row's request in numbers, as the loops read it; `loops` says what stands where."""

import numpy as np

from allotment.core.placement.board import loops, values
from allotment.core.placement.board.arrays import HUGE, USE_ORDERS
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import GUARDS, NEVER, Ints, pack_free
from allotment.core.placement.board.rows import Row
from allotment.core.placement.board.shapes import Ask, card_sizes, compile_shape, plugin_need
from allotment.core.placement.devices.base import SCORE_COMPUTE, SCORE_EACH, SCORE_FIRST
from allotment.core.placement.devices.free import need_memory_mib
from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.fgd import Fgd
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.headroom import Headroom
from allotment.core.placement.policies.net_headroom import NetHeadroom
from allotment.core.placement.policies.typical import (
    CARD_MILLI,
    CARDS_MOST,
    HOST_MOST,
    UNITS_MOST,
    Mix,
    takes_one,
    unit_milli,
)
from allotment.core.placement.policies.valued import Valued
from allotment.core.placement.rules.points import KIB_BITS, weighs_host
from allotment.core.placement.rules.score_term import CPU, CPU_NAME, HOST_MEMORY, MEMORY_NAME, PODS
from allotment.core.placement.rules.terms import TERMS, Weights
from allotment_proto.facts import DeviceRequest, Policy, Typical

_POLICY_NUMBERS = {
    "none": loops.NONE,
    "binpack": loops.BINPACK,
    "spread": loops.SPREAD,
    Fgd.name: values.FGD,
    Headroom.name: values.HEADROOM,
    NetHeadroom.name: values.NET_HEADROOM,
    FillAhead.name: values.FILL_AHEAD,
}
"""Device policies that the loops know. Others score nodes in NumPy (`policies.base.OnColumns`)."""
_ORDERS = {
    **dict.fromkeys(USE_ORDERS, loops.BY_USE),
    "preferred": loops.BY_VALUE,
    "emptiest": loops.BY_HOLDERS,
}
_HOST_ROWS = {CPU_NAME: CPU, MEMORY_NAME: HOST_MEMORY}
_SCORINGS = {
    SCORE_EACH: loops.EACH,
    SCORE_FIRST: loops.FIRST,
    SCORE_COMPUTE: loops.COMPUTE,
}


class DeviceNumbers:
    """A device policy in numbers: which one it is, and what typical pods ask for if it looks ahead
    to them, family by family, as long as no kind of card is new.
    """

    def __init__(self, columns: Columns, policy: Policy, device: DevicePolicy) -> None:
        self.policy = _POLICY_NUMBERS.get(device.name, loops.NONE)
        self.mix = device.mix if isinstance(device, Valued) else None
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
            made = self._made[family] = _encode_mix(
                self._columns,
                self.mix,
                family,
                self._policy,
                counts_units=self.policy == values.FILL_AHEAD,
            )
        return made


def encode(
    columns: Columns, row: Row, policy: Policy, device: DeviceNumbers, weights: Weights
) -> Ints:
    """The request in numbers; `device` is the device policy in use."""
    shape, kinds = row.shape, columns.layout.kinds_most
    plan: Ints = np.zeros(loops.PLAN_LENGTH, np.int64)
    needs = [loops.NEED_PODS, loops.NEED_CPU, loops.NEED_MEMORY]
    plan[needs] = shape.host_need[[PODS, CPU, HOST_MEMORY], 0]
    plan[loops.NEED_PLUGIN] = plugin_need(shape.request.selection)
    plan[loops.CHARGE_CPU] = shape.request.cpu_milli
    plan[loops.CHARGE_KIB] = shape.request.memory_bytes >> KIB_BITS
    plan[loops.POLICY] = device.policy
    plan[loops.DEVICE_WEIGHT] = policy.device_weight
    plan[loops.FIT_WEIGHT] = policy.fit_weight
    if weighs_host(policy):
        plan[loops.HOST_POLICY] = _POLICY_NUMBERS[policy.host_policy]
        plan[loops.HOST_WEIGHT] = policy.host_weight
    plan[loops.KIND_MASK] = columns.layout.kind_mask
    plan[loops.AMOUNT_SHIFT] = columns.layout.amount_shift
    plan[loops.MAY_EXCEED] = shape.may_exceed
    if row.more is not None:
        plan[loops.CONSTANT_MICRO] = row.more.constant_micro
        plan[loops.IS_CAPPED] = row.more.is_capped
    asks: Ints = np.zeros((len(shape.asks), loops.FIELDS, kinds), np.int64)
    for number, ask in enumerate(shape.asks):
        _encode_ask(asks[number], ask)
        asks[number, loops.CHIP] = _first_of_chip(shape.asks, number)
    families: list[str | None] = [ask.request.family for ask in shape.asks]
    extended: Ints = np.array(shape.extended_need, np.int64).reshape(-1, 2)
    plan[loops.ASK_COUNT], plan[loops.KIND_COUNT] = len(asks), kinds
    plan[loops.EXTENDED_COUNT] = len(extended)
    plan[loops.EXTENDED_AT] = loops.PLAN_LENGTH + asks.size
    plan[loops.TERMS_AT] = plan[loops.EXTENDED_AT] + extended.size
    terms = _encode_terms(columns, row, weights, int(plan[loops.TERMS_AT]))
    ahead: list[int] = []
    if device.mix is not None:
        plan[loops.VALUES_AT] = end = plan[loops.TERMS_AT] + len(terms)
        begins: dict[str | None, int] = {}
        for family in dict.fromkeys(families or [None]):
            begins[family] = int(end) + len(ahead)
            ahead += device.of(family)
        for number, family in enumerate(families):
            asks[number, loops.FAMILY_VALUES_AT] = begins[family]
    numbers: tuple[Ints, ...] = plan, asks.ravel(), extended.ravel(), terms
    return np.concatenate((*numbers, np.array(ahead, np.int64)))


def _encode_mix(
    columns: Columns, mix: Mix, family: str | None, policy: Policy, *, counts_units: bool
) -> list[int]:
    """The shapes of a mix with devices (of one family if it is given) and with weight: `values`
    says what stands where. Without `counts_units` no card counts as taking more than one.
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
        units_most = UNITS_MOST if counts_units and not takes_one(ask) else 1
        shapes += _encode_shape(shape, ask, units_most)
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


def _encode_shape(shape: Typical, ask: DeviceRequest, units_most: int) -> list[int]:
    """What is not said by kind of a shape."""
    numbers = [0] * values.NEED
    numbers[values.NUMBER] = min(max(ask.count, 1), CARDS_MOST + 1)
    numbers[values.CPU_MILLI] = min(shape.request.cpu_milli, HOST_MOST)
    numbers[values.MEMORY_KIB] = min(shape.request.memory_bytes >> KIB_BITS, HOST_MOST)
    numbers[values.WORTH_MILLI] = min(shape.worth_milli, CARDS_MOST * CARD_MILLI)
    numbers[values.WEIGHT_PPM] = shape.weight_ppm
    numbers[values.UNIT_PCT] = ask.cores_pct
    numbers[values.UNITS_MOST] = units_most
    return numbers


def _encode_ask(fields: Ints, ask: Ask) -> None:
    fields[loops.NEED] = ask.need
    fields[loops.RANK] = 0 if ask.rank is None else ask.rank
    fields[loops.AMOUNT] = ask.amount
    fields[loops.AFTER] = ask.after if ask.is_partitioned else np.arange(fields.shape[1])
    fields[loops.CHARGED_MIB] = ask.memory_mib
    fields[loops.SPARE_MIB] = ask.spare_mib
    fields[loops.SIZE_MIB] = ask.size_mib
    fields[loops.DIVISOR_MIB] = ask.divisor_mib
    fields[loops.CHARGED_PCT] = ask.cores_pct
    fields[loops.SIZE_PCT] = ask.size_pct
    fields[loops.IS_SECOND_BEST] = ask.is_second_best
    fields[loops.IS_CHIP] = ask.is_chip
    fields[loops.FIT_MICRO] = ask.fit_micro
    fields[loops.NUMBER] = ask.number
    fields[loops.ORDER] = _ORDERS.get(ask.order, loops.BY_PLACE)
    fields[loops.SCORING] = _SCORINGS[ask.scoring]
    fields[loops.EACH_ONCE] = ask.each_once
    fields[loops.IS_WIRED] = ask.is_wired


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
            encoded += map(int, term.encode(row.shape.request, each, row_of))
    return np.concatenate((starts, np.array(encoded, np.int64)))
