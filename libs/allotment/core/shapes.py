"""A request compiled for columns: its needs per card kind, as thresholds.

Every rule of `devices.base.card_refusal` becomes `free >= need`: a wrong family, mode or model and
an unhealthy card need more than there can be; a percentage is resolved per kind; compute 100 needs
all slots free, compute 0 needs one percent that is not used up. Card ids and indexes are the only
rules about single cards and become a mask.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allotment.core.columns import (
    CPU,
    HOST_MEMORY,
    MISSING,
    PODS,
    Bools,
    CardKind,
    Columns,
    Ints,
)
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import CORES_WHOLE_PCT, model_wanted, need_memory_mib
from allotment.core.predicates import by_family
from allotment_proto.facts import DeviceRequest, PodRequest, Policy, Selection

NEVER = 1 << 60
"""More than any card has free."""


class Ask(NamedTuple):
    """One device request over kinds `K`: `need[3, K]` thresholds, `memory_mib[K]` to charge."""

    request: DeviceRequest
    number: int
    need: Ints
    memory_mib: Ints
    memory_by_kind: list[int]
    cores_pct: int
    order: str
    is_family: Bools
    mode_fits: Bools
    accepted: Bools
    healthy: Bools


class Shape(NamedTuple):
    """A compiled request: `host_need[R, 1]` thresholds, `host_charge[2, 1]` CPU and memory."""

    request: PodRequest
    asks: tuple[Ask, ...]
    host_need: Ints
    host_charge: Ints
    unlisted: bool
    """Some extended resource is asked for that no node ever listed."""
    unknown_family: bool
    """Some device is asked for of a family that this release does not know."""


def compile_shape(columns: Columns, request: PodRequest, policy: Policy) -> Shape:
    """The request's needs for the kinds and resources that the columns know now."""
    asks = tuple(
        _ask(columns.kinds, wanted, request.selection, policy)
        for group in by_family(request).values()
        for wanted in group
    )
    need = np.full((columns.host_columns(), 1), MISSING, np.int64)
    need[PODS] = 1
    for column, amount in ((CPU, request.cpu_milli), (HOST_MEMORY, request.memory_bytes)):
        if amount:
            need[column] = amount
    charge = np.array([[request.cpu_milli], [request.memory_bytes]], np.int64)
    unlisted = False
    for name, amount in request.extended:
        resource = columns.resource(name)
        if not amount:
            continue
        if resource is None:
            unlisted = True
        else:
            need[resource] = amount
    unknown = any(wanted.family not in FAMILIES for wanted in request.devices)
    return Shape(request, asks, need, charge, unlisted, unknown)


def allowed_cards(columns: Columns, selection: Selection) -> Bools | None:
    """Which single cards (N, D) the selection admits by id and index; None if it names none."""
    if selection.use_ids is None and selection.nouse_ids is None and selection.indexes is None:
        return None
    allowed = np.ones((len(columns), columns.depth), np.bool_)
    if selection.indexes is not None:
        allowed &= np.isin(columns.index, selection.indexes)
    for ids, keeps in ((selection.use_ids, True), (selection.nouse_ids, False)):
        if ids is not None:
            named = _named_cards(columns, ids)
            allowed &= named if keeps else ~named
    return allowed


def _ask(
    kinds: Sequence[CardKind], wanted: DeviceRequest, selection: Selection, policy: Policy
) -> Ask:
    family = FAMILIES[wanted.family]
    is_family = np.array(
        [k.family == wanted.family and wanted.family in policy.families for k in kinds]
    )
    mode_fits = np.array([selection.mode is None or k.mode == selection.mode for k in kinds])
    accepted = np.array(
        [family.accepts_model(k.model) and model_wanted(k.model, selection) for k in kinds]
    )
    healthy = np.array([k.healthy for k in kinds])
    memory_mib = np.array([need_memory_mib(wanted, k.memory_mib) for k in kinds], np.int64)
    whole = wanted.cores_pct == CORES_WHOLE_PCT
    slots = np.array([max(k.slots, 1) if whole else 1 for k in kinds], np.int64)
    cores = np.full(len(kinds), max(wanted.cores_pct, 1), np.int64)
    need = np.stack([slots, memory_mib, cores])
    need[:, ~(is_family & mode_fits & accepted & healthy)] = NEVER
    return Ask(
        request=wanted,
        number=wanted.count,
        need=need,
        memory_mib=memory_mib,
        memory_by_kind=memory_mib.tolist(),
        cores_pct=wanted.cores_pct,
        order=family.order_word(policy.device_policy),
        is_family=is_family,
        mode_fits=mode_fits,
        accepted=accepted,
        healthy=healthy,
    )


def _named_cards(columns: Columns, ids: Sequence[str]) -> Bools:
    wanted = frozenset(ids)
    named = np.zeros((len(columns), columns.depth), np.bool_)
    for position, slots in enumerate(columns.slots):
        for (_, card), slot in slots.items():
            if card in wanted:
                named[position, slot] = True
    return named
