"""Ascend chips through HAMi: by template, whole, or in soft slices.

A node may have chips of several kinds, each known by its common word (`CardFact.model`), which a
request names (`DeviceRequest.chip`). By default a pod gets a template of the chip, or the whole
chip; with ``huawei.com/vnpu-mode: hami-core`` it gets a slice whose memory and compute are limited
by software, on nodes with soft slices. Templates are charged by their memory. Source: volcano
`ascend/hami` (deviceshare 2.6, 4.9), with quirks Q11, Q12, Q15 and Q23 corrected.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from allotment.core import reasons, units
from allotment.core.placement.devices.base import (
    CORES_WHOLE_PCT,
    MIB,
    SCORE_FIRST,
    ContainerSource,
    Family,
    NodeSource,
    PodSource,
    Switch,
    counted_in,
    without_count,
)
from allotment_proto.device_config import AscendChip, DeviceConfig
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
    Problem,
    Selection,
)
from allotment_proto.volcano import ascend as wire
from allotment_proto.volcano import keys

_COUNT_MAX = 64
"""More chips than any node has: a larger number is rejected as a mistake."""
_MEMORY_MIB_MAX = 10**9
"""More memory than any chip has."""


class _Amounts(NamedTuple):
    """A container's request for one kind of chip; None where it is unset."""

    number: int | None
    memory_mib: int | None
    cores: int | None


class Ascend(Family):
    """kubelet does not tell HAMi's plugin which pod it serves, so the plugin picks the first
    waiting pod of the node. As long as a pod is pending, the plugin takes it for a waiting one even
    after serving it, so only the pod's start counts as acknowledgement.
    """

    name = wire.FAMILY
    each_once = True
    scoring = SCORE_FIRST
    switches = (Switch("deviceshare.AscendHAMiVNPUEnable"),)
    absent_problems = frozenset(("NotAllocatable", "BrokenRegister"))
    asked_annotations = frozenset((keys.VNPU_MODE,))
    phase_key = keys.HAMI_BIND_PHASE
    swappable = False
    word = "NPU"
    compute_whole = 0

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset(name for chip in config.ascend for name in _names(chip) if name)

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset(name for chip in config.ascend for name in _names(chip)[1:] if name)

    def configured(self, config: DeviceConfig) -> tuple[str, ...]:
        return tuple(chip.common_word for chip in config.ascend)

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The chips of every kind that kubelet lists and the device plugin registered.

        Indexes count through all kinds in the configuration's order.
        """
        is_soft = wire.slices_softly(node.annotations, node.config.ascend_soft_slicing)
        mode = keys.MODE_HAMI_CORE if is_soft else ""
        cards: list[CardFact] = []
        problems: list[Problem] = []
        ids: set[str] = set()
        for chip in node.config.ascend:
            registered, found = _registered(node, chip, is_soft)
            problems += found
            for card in registered:
                if card.id in ids:
                    problems.append(_twice(card))
                    continue
                ids.add(card.id)
                cards.append(
                    msgspec.structs.replace(
                        card,
                        index=len(cards),
                        cores_pct=CORES_WHOLE_PCT if is_soft else card.cores_pct,
                        # the whole of nothing would fit on a chip without memory, and fail there
                        healthy=card.healthy and card.memory_mib > 0,
                    )
                )
        inventory = Inventory(self.name, mode, tuple(cards)) if cards else None
        return inventory, tuple(problems)

    smaller = frozenset(("count",))

    def amounts(self, wanted: DeviceRequest, config: DeviceConfig) -> Mapping[str, int]:
        names = (c.resource_name for c in config.ascend if c.common_word == wanted.chip)
        return dict.fromkeys(names, wanted.count)

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """The requests of regular containers; a count of 0 requests nothing.

        Init containers are ignored, as in Volcano. A pod in which only an init container requests
        chips is rejected: bound without annotations, it would fail on its node.
        """
        is_soft = slice_mode(pod.annotations) is not None
        out: list[DeviceRequest] = []
        for index, container in enumerate(pod.containers):
            for chip in pod.config.ascend:
                request, problem = self._request(index, container, chip, is_soft=is_soft)
                if problem is not None:
                    return (), problem
                if request is not None:
                    out.append(request)
        if out:
            return tuple(out), None
        for container in pod.init_containers:
            for chip in pod.config.ascend:
                if self._request(0, container, chip, is_soft=is_soft) != (None, None):
                    return (), _invalid(
                        container,
                        chip.resource_name,
                        "is asked for by an init container only, which the device plugin cannot "
                        "serve: ask in a container",
                    )
        return (), None

    def _request(
        self, index: int, container: ContainerSource, chip: AscendChip, *, is_soft: bool
    ) -> tuple[DeviceRequest | None, Problem | None]:
        asked = _amounts(container, chip)
        if isinstance(asked, Problem):
            return None, asked
        if not asked.number:
            given = ", ".join(
                name for name, amount in zip(_names(chip), asked, strict=True) if name and amount
            )
            if not given:
                return None, None
            message = without_count(
                given, chip.resource_name, is_zero=asked.number is not None, word="chip"
            )
            return None, _invalid(container, given, message)
        share = _soft_slice(chip, asked) if is_soft else _template(chip, asked)
        if isinstance(share, Problem):
            place = f"container {container.name!r}, {share.place}"
            return None, Problem(reasons.INVALID_REQUEST, place, share.message)
        memory_mib, memory_pct, template = share
        return (
            DeviceRequest(
                family=self.name,
                container=index,
                container_name=container.name,
                count=asked.number,
                memory_mib=memory_mib,
                memory_pct=memory_pct,
                cores_pct=asked.cores or 0,
                chip=chip.common_word,
                templates=(template,) if template else (),
            ),
            None,
        )

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """Every entry of every container is charged; group k is the k-th requesting container."""
        holdings: list[Holding] = []
        problems: list[Problem] = []
        for chip in pod.config.ascend:
            text = pod.annotations.get(keys.hami_allocated(chip.common_word))
            if text is None:
                continue
            names = (chip.resource_name, chip.resource_memory_name)
            asking = [
                index
                for index, container in enumerate(pod.containers)
                if any(name in container.limits for name in names)
            ]
            groups, _ = wire.decode_assignment(text, chip.common_word)
            if len(groups) < len(asking):  # ours: one that requests 0 chips has no group
                asking = [
                    i for i in asking if pod.containers[i].limits.get(chip.resource_name) != "0"
                ]
            held, found = wire.decode_holdings(pod.annotations, chip.common_word, asking)
            holdings += held
            problems += found
        return tuple(holdings), tuple(problems)

    def selection(self, pod: PodSource, *, is_bound: bool) -> tuple[Selection, tuple[Problem, ...]]:
        return Selection(mode=slice_mode(pod.annotations)), ()

    def memory_resources(self, config: DeviceConfig) -> Mapping[str, int]:
        return {chip.resource_memory_name: MIB for chip in config.ascend}

    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset(keys.hami_allocated(chip.common_word) for chip in config.ascend)

    def assignment_of(self, request: DeviceRequest) -> str:
        return keys.hami_allocated(request.chip)

    def question(self, holdings: tuple[Holding, ...]) -> tuple[str, int]:
        return "pods", 1

    def lock_key(self, held: Holding) -> str:
        return keys.LOCK_ASCEND

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(node, holdings, stamp_s, bind_time_s)


def slice_mode(annotations: Mapping[str, str]) -> str | None:
    """The mode (`Selection.mode`) of a pod that requests Ascend chips: ``hami-core`` for soft
    slices, which not every node has; None for templates, which all have.
    """
    mode = annotations.get(keys.VNPU_MODE)
    return mode if mode == keys.MODE_HAMI_CORE else None


def _registered(
    node: NodeSource, chip: AscendChip, is_soft: bool
) -> tuple[tuple[CardFact, ...], tuple[Problem, ...]]:
    """The chips of one kind. If the device plugin fails, kubelet sets its resource to 0."""
    text = node.annotations.get(keys.hami_register(chip.common_word))
    if not text:
        return (), ()
    place = f"status.allocatable {chip.resource_name}"
    try:
        listed = units.whole_up(node.allocatable.get(chip.resource_name, "0"))
    except units.QuantityError as error:
        return (), (Problem("BrokenQuantity", place, str(error)),)
    if not listed:
        message = "missing or 0 although chips are registered: is the device plugin running?"
        return (), (Problem("NotAllocatable", place, message),)
    register = wire.decode_register(text, chip.common_word, is_soft)
    return register.cards, register.problems


def _twice(card: CardFact) -> Problem:
    place = f"annotation {keys.hami_register(card.model)}"
    message = f"card id {card.id!r} is registered as another kind of chip too; it counts as that"
    return Problem(wire.BROKEN_REGISTER, place, message)


def _names(chip: AscendChip) -> tuple[str, str, str]:
    """Count, memory, compute."""
    return chip.resource_name, chip.resource_memory_name, chip.resource_core_name


def _amounts(container: ContainerSource, chip: AscendChip) -> _Amounts | Problem:
    found: list[int | None] = []
    for key, most in zip(
        _names(chip), (_COUNT_MAX, _MEMORY_MIB_MAX, _cores_most(chip)), strict=True
    ):
        text = container.limits.get(key, container.requests.get(key)) if key else None
        if text is None:
            found.append(None)
            continue
        try:
            amount = units.count(text)
        except units.QuantityError as error:
            return _invalid(container, key, str(error))
        unit = counted_in(key, amount) if key == chip.resource_memory_name else ""
        if unit:
            return _invalid(container, key, unit)
        if amount > most:
            return _invalid(container, key, f"is {amount}; at most {most}")
        found.append(amount)
    if found[0] is not None and chip.resource_name not in container.limits:
        return _invalid(container, chip.resource_name, "must be a limit, not only a request")
    return _Amounts(*found)


def _cores_most(chip: AscendChip) -> int:
    """AI cores of a template's chip, or percent of one with soft slices."""
    return max(chip.ai_core, CORES_WHOLE_PCT)


_Share = tuple[int, int, str]
"""Memory in MiB or in percent of the chip, and the template."""


def _soft_slice(chip: AscendChip, asked: _Amounts) -> _Share | Problem:
    """The memory requested; all of the chip's if none is."""
    if asked.memory_mib:
        return asked.memory_mib, 0, wire.SOFT
    return 0, 100, wire.SOFT


def _template(chip: AscendChip, asked: _Amounts) -> _Share | Problem:
    """The smallest template that is large enough, otherwise the chip. Several chips are always
    whole.
    """
    found = wire.trim_memory(chip, asked.memory_mib or chip.memory_allocatable_mib)
    if isinstance(found, Problem):
        return found
    memory_mib, template = found
    if (asked.number or 0) > 1 and memory_mib != chip.memory_allocatable_mib:
        return Problem(
            reasons.INVALID_REQUEST,
            chip.resource_memory_name,
            f"is {asked.memory_mib} on each of {asked.number} chips; several chips come whole: "
            f"leave it out, or set it to {chip.memory_allocatable_mib}",
        )
    return memory_mib, 0, template


def _invalid(container: ContainerSource, key: str, message: str) -> Problem:
    return Problem(reasons.INVALID_REQUEST, f"container {container.name!r}, {key}", message)
