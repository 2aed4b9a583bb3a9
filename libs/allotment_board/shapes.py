"""A request compiled for columns: its needs per card kind, as thresholds.

Every rule of `devices.choosing.card_refusal` becomes `free >= need`: a wrong family, mode or model
and an unhealthy card need more than there can be; a percentage is resolved per kind; compute 100
needs all slots free, compute 0 needs one percent that is not used up. Card ids and indexes are the
only rules about single cards and become a mask.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import (
    is_wired,
    mode_fits,
    model_wanted,
    small_enough,
)
from allotment.core.placement.devices.free import need_cores_pct, need_memory_mib
from allotment.core.placement.policies.typical import CORES_MOST, MEMORY_MOST
from allotment.core.placement.rules.points import FULL_MICRO, POINTS_MOST, fit_share_micro
from allotment.core.reasons import CARDS_QUARANTINED, RECORD_FORGED
from allotment_board.arrays import HUGE, MISSING
from allotment_board.cards import CardKind
from allotment_board.columns import Columns
from allotment_board.loop_parts import CPU, HOST_MEMORY, PODS
from allotment_board.packing import (
    NEVER,
    Bools,
    Ints,
    amount,
    pack_need,
)
from allotment_proto.facts import DeviceRequest, PodRequest, Policy, Selection

_HOST_ROWS = HOST_MEMORY + 1


class Ask(NamedTuple):
    """One device request over kinds `K`: all that a key can name, those not in use as kind 0."""

    request: DeviceRequest
    number: int
    order: str
    need: Ints
    """(K,) packed thresholds; NEVER for kinds that cannot do."""
    need_by_amount: Ints
    """(K,) the same if partitioned cards were shared by amounts, whatever their node's mode."""
    need_mib: Ints
    """(K,) memory that a card must have free."""
    memory_mib: Ints
    """(K,) memory to charge on each card."""
    after: Ints
    """(K,) the kind of a card once one unit is taken: another only if it is partitioned."""
    has_piece: Bools
    """(K,) whether a partitioned card has a piece that will do; True for others."""
    times: Ints
    """(K,) how often a card can be asked for a piece at most; many for others."""
    is_partitioned: bool
    """Whether any kind is partitioned."""
    each_once: bool
    """Whether another device request of the pod must take other cards."""
    is_wired: bool
    """Whether cards of one network are wanted."""
    is_chip: Bools
    """(K,) the family's cards of the chip that is asked for, whatever else speaks against them."""
    scoring: str
    """`Family.scoring`."""
    rank: Ints | None
    """(K,) `Piece.rank` at the place of a key's amount; None if all are 0."""
    is_second_best: Bools
    """(K,) whether a partitioned card gives something that will do, but not what was asked for."""
    cores_pct: Ints
    """(K,) compute to charge on each card."""
    size_pct: Ints
    """(K,) the compute that a card has."""
    amount: Ints
    """(K,) what a holding takes off a packed amount."""
    size_mib: Ints
    """(K,) the memory that a card has."""
    divisor_mib: Ints
    """(K,) the same, at least 1."""
    fit_micro: Ints
    """(K,) points for how much of what is charged is asked for."""
    wastes: bool
    """Whether some kind gives more than is asked for."""
    slots: Ints
    """(K,) how many holders a card may have."""
    spare_mib: Ints
    """(K,) the memory that a card without holders would keep."""
    memory_by_kind: list[int]
    """What a holding says of memory, by kind: what was asked for, not what is charged."""
    is_family: Bools
    mode_fits: Bools
    accepted: Bools
    healthy: Bools
    readable: Bools
    unforged: Bools
    """(K,) whether no pod closes the node's cards, for the one reason or the other."""
    is_whole: bool
    """Asks for cards without holders."""


class Shape(NamedTuple):
    """A compiled request."""

    request: PodRequest
    asks: tuple[Ask, ...]
    host_need: Ints
    """(3, 1) thresholds of pods, CPU and memory."""
    extended_need: tuple[tuple[int, int], ...]
    """(host row, amount) of every extended resource."""
    may_exceed: bool
    """Asks for so much that its points could be more than `POINTS_MOST`."""
    unlisted: bool
    """Some extended resource is asked for that no node ever listed."""
    unknown_family: bool
    """Some device is asked for of a family that this release does not know."""


def compile_shape(columns: Columns, request: PodRequest, policy: Policy) -> Shape:
    """The request's needs for the kinds and resources that the columns know now."""
    asks = tuple(
        _ask(columns, wanted, request.selection, policy)
        for group in by_family(request).values()
        for wanted in group
    )
    need = np.full((_HOST_ROWS, 1), MISSING, np.int64)
    need[PODS] = 1
    for row, wanted_amount in ((CPU, request.cpu_milli), (HOST_MEMORY, request.memory_bytes)):
        if wanted_amount:
            need[row] = wanted_amount
    extended = [(columns.resource(name), n) for name, n in request.extended if n]
    return Shape(
        request=request,
        asks=asks,
        host_need=need,
        extended_need=tuple((row, n) for row, n in extended if row is not None),
        may_exceed=sum(ask.number for ask in asks) + len(extended) > POINTS_MOST // FULL_MICRO,
        unlisted=any(row is None for row, _ in extended),
        unknown_family=any(wanted.family not in FAMILIES for wanted in request.devices),
    )


def card_sizes(columns: Columns, policy: Policy) -> Ints:
    """(K,) the memory of a card (MiB, at least 1) to divide what is free of it by; huge for cards
    that the policy does not schedule, of which nothing counts as idle then.
    """
    sizes = np.full(columns.layout.kinds_most, HUGE, np.int64)
    for number, known in enumerate(columns.kinds):
        if known.family in policy.families:
            sizes[number] = max(min(known.memory_mib, MEMORY_MOST), 1)
    return sizes


def plugin_need(selection: Selection) -> int:
    """The threshold for `host[PLUGIN]`: few enough pods wait for the node's device plugin."""
    return 1 - selection.backlog_below if selection.backlog_below else MISSING


def allowed_cards(columns: Columns, selection: Selection) -> Bools | None:
    """Which single cards (N, D) the selection admits one by one; None if it names none."""
    named = selection.use_ids, selection.nouse_ids, selection.indexes
    if named == (None, None, None) and not selection.avoided:
        return None
    allowed = np.ones((len(columns), columns.depth), np.bool_)
    if selection.indexes is not None:
        allowed &= np.isin(columns.index, selection.indexes)
    for ids, keeps in ((selection.use_ids, True), (selection.nouse_ids, False)):
        if ids is not None:
            found = _named_cards(columns, ids)
            allowed &= found if keeps else ~found
    for node, family, card in selection.avoided:
        at = columns.position(node)
        slot = None if at is None else columns.slots[at].get((family, card))
        if slot is not None:
            allowed[at, slot] = False
    return allowed


def _ask(columns: Columns, wanted: DeviceRequest, selection: Selection, policy: Policy) -> Ask:
    family = FAMILIES[wanted.family]
    kinds = list(columns.kinds)
    is_cut = [partitioner is not None for partitioner, _ in columns.card_kinds.partitioners]
    is_family = _flags(k.family == wanted.family and k.family in policy.families for k in kinds)
    fits_mode = _flags(mode_fits(selection, k.mode) for k in kinds)
    accepted = _flags(
        family.accepts_model(k.model)
        and wanted.chip in ("", k.model)
        and model_wanted(k.model, selection)
        for k in kinds
    )
    healthy = _flags(k.healthy for k in kinds)
    readable = _flags(k.blocked != CARDS_QUARANTINED for k in kinds)
    unforged = _flags(k.blocked != RECORD_FORGED for k in kinds)
    is_whole = wanted.cores_pct == CORES_WHOLE_PCT
    memory_mib = [need_memory_mib(wanted, k.memory_mib, k.table) for k in kinds]
    pieces = [_piece(columns, n, wanted, selection, policy) for n in range(len(kinds))]
    has_piece = _flags(piece is not None for piece in pieces)
    need_by_amount = np.array([_need(k, wanted, n) for k, n in zip(kinds, memory_mib, strict=True)])
    charged = [
        n if piece is None else piece.memory_mib
        for n, piece in zip(memory_mib, pieces, strict=True)
    ]
    need = need_by_amount.copy()
    for number, (asked, taken) in enumerate(zip(memory_mib, charged, strict=True)):
        if taken > asked:
            need[number] = _need(kinds[number], wanted, taken)
    need_by_amount[~(is_family & accepted & healthy)] = NEVER
    is_open = readable & unforged
    need[~(is_family & accepted & healthy & fits_mode & is_open & has_piece)] = NEVER
    cores = [wanted.cores_pct if piece is None else piece.cores_pct for piece in pieces]
    ranks = np.array([piece.rank if piece else 0 for piece in pieces], np.int64)
    fits_micro = [
        fit_share_micro(asked, taken) if cut else FULL_MICRO
        for cut, asked, taken in zip(is_cut, memory_mib, charged, strict=True)
    ]
    charge, size = _amounts(charged), _amounts([k.memory_mib for k in kinds])
    ask = Ask(
        request=wanted,
        number=wanted.count,
        order=columns.order(wanted.family),
        need=need,
        need_by_amount=need_by_amount,
        need_mib=_amounts(memory_mib),
        memory_mib=charge,
        after=np.array([piece.after if piece else 0 for piece in pieces], np.int64),
        has_piece=has_piece,
        times=np.array([piece.times if piece else 0 for piece in pieces], np.int64),
        is_partitioned=any(is_cut),
        each_once=family.each_once,
        is_wired=is_wired(wanted),
        is_chip=_flags(k.family == wanted.family and k.model == wanted.chip for k in kinds),
        scoring=family.scoring,
        rank=ranks << columns.amount_shift if ranks.any() else None,
        is_second_best=_flags(piece is not None and piece.is_second_best for piece in pieces),
        cores_pct=np.array(cores, np.int64),
        size_pct=np.array([min(k.cores_pct, CORES_MOST) for k in kinds], np.int64),
        amount=np.array(
            [amount(int(n), min(c, CORES_MOST)) for n, c in zip(charge, cores, strict=True)],
            np.int64,
        ),
        size_mib=size,
        divisor_mib=np.maximum(size, 1),
        fit_micro=np.array(fits_micro, np.int64),
        wastes=any(micro < FULL_MICRO for micro in fits_micro),
        slots=np.array([k.slots for k in kinds], np.int64),
        spare_mib=size - charge,
        memory_by_kind=memory_mib,
        is_family=is_family,
        mode_fits=fits_mode,
        accepted=accepted,
        healthy=healthy,
        readable=readable,
        unforged=unforged,
        is_whole=is_whole,
    )
    unused = columns.layout.kinds_most - len(kinds)
    return Ask._make(_padded(field, unused) for field in ask)


def _padded(field: Any, unused: int) -> Any:
    """What is said by kind, with what is said of kind 0 for kinds that are not in use."""
    if isinstance(field, np.ndarray):
        return np.concatenate((field, np.repeat(field[:1], unused)))
    return field + field[:1] * unused if isinstance(field, list) else field


class _Piece(NamedTuple):
    """What a card of a kind would hand out: amounts, its kind then, how often at most; and the
    last two of `partitions.Piece`."""

    memory_mib: int
    cores_pct: int
    after: int
    times: int
    rank: int = 0
    is_second_best: bool = False


def _piece(
    columns: Columns, number: int, wanted: DeviceRequest, selection: Selection, policy: Policy
) -> _Piece | None:
    kind = columns.kinds[number]
    partitioner, fact = columns.card_kinds.partitioners[number]
    if kind.family != wanted.family or partitioner is None:
        if kind.family == wanted.family and not small_enough(0, kind.table, selection):
            return None
        memory_mib = need_memory_mib(wanted, kind.memory_mib, kind.table)
        return _Piece(memory_mib, wanted.cores_pct, number, HUGE)
    piece = partitioner.piece(fact, kind.table, kind.state, wanted, policy.mig_order)
    if piece is None or not small_enough(piece.memory_mib, kind.table, selection):
        return None
    after = columns.card_kinds.in_state(number, piece.after)
    times = partitioner.most(fact, kind.table, kind.state, wanted)
    return _Piece(piece.memory_mib, piece.cores_pct, after, times, piece.rank, piece.is_second_best)


def _need(kind: CardKind, wanted: DeviceRequest, memory_mib: int) -> int:
    is_whole = wanted.cores_pct == CORES_WHOLE_PCT
    cores_pct = need_cores_pct(wanted, kind.cores_pct)
    return pack_need(kind.slots, memory_mib, cores_pct, is_whole=is_whole)


def _flags(values: Iterable[bool]) -> Bools:
    return np.fromiter(values, np.bool_)


def _amounts(amounts_mib: Sequence[int]) -> Ints:
    """Amounts that were compared already, so that what is beyond any card does no harm."""
    return np.array([min(n, MEMORY_MOST) for n in amounts_mib], np.int64)


def _named_cards(columns: Columns, ids: Sequence[str]) -> Bools:
    wanted = frozenset(ids)
    named = np.zeros((len(columns), columns.depth), np.bool_)
    for position, slots in enumerate(columns.slots):
        for (_, card), slot in slots.items():
            if card in wanted:
                named[position, slot] = True
    return named
