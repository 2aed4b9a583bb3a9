"""GPU sharing by memory (`volcano.sh/gpu-memory`) and whole cards by number (`gpu-number`).

Both use one ledger. A memory request is one card for the whole pod; a number request takes idle
cards with all their memory.
"""

from collections.abc import Mapping, Sequence

import msgspec

from allotment.core import reasons, units
from allotment.core.placement.devices.base import (
    CORES_WHOLE_PCT,
    MIB,
    SCORE_EACH,
    ContainerSource,
    Family,
    NodeSource,
    PodSource,
    Sense,
    Switch,
    counted_in,
)
from allotment.core.placement.rules import card_names
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    Inventory,
    Policy,
    Problem,
    Selection,
)
from allotment_proto.volcano import gpushare as wire
from allotment_proto.volcano import keys, selection

_POD_LEVEL = 0
"""The requests of all containers are one request of the pod, booked under container 0."""
_CARDS_MAX = 1024
"""More than any node has: a larger number is rejected as a mistake."""
_CARD_MEMORY_MIB_MAX = 10**9
"""More than any card has."""
_MEMORY = Switch("deviceshare.GPUSharingEnable", "nvidia", keys.GPU_MEMORY)
_NUMBER = Switch("deviceshare.GPUNumberEnable", "nvidia", keys.GPU_NUMBER)
_BY_KIND = {"memory": _MEMORY, "number": _NUMBER}
"""The switches by `Policy.gpushare_kind`, if it serves only one kind."""


class Gpushare(Family):
    name = wire.FAMILY
    order = "first"
    counted_again = keys.NVIDIA_COUNTED
    scoring = SCORE_EACH
    switches = _MEMORY, _NUMBER
    one_container = True
    asked_annotations = selection.KEYS

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.GPU_MEMORY, keys.GPU_NUMBER))

    def senses(self, config: DeviceConfig) -> Mapping[Sense, str]:
        return {Sense.CARDS: keys.GPU_NUMBER, Sense.MEMORY: keys.GPU_MEMORY}

    def switches_on(self, policy: Policy) -> tuple[Switch, ...]:
        known = _BY_KIND.get(policy.gpushare_kind)
        return (known,) if known is not None and self.name in policy.families else ()

    def switch_for(self, wanted: DeviceRequest) -> Switch:
        return _MEMORY if wanted.memory_mib else _NUMBER

    def policy_fields(self, on: frozenset[str]) -> Mapping[str, object]:
        kinds = [kind for kind, switch in _BY_KIND.items() if switch.argument in on]
        return {"gpushare_kind": kinds[0] if len(kinds) == 1 else ""}

    def read_by(self, policy: Policy) -> object:
        return policy.gpushare_kind

    def unserved(self, wanted: Sequence[DeviceRequest], policy: Policy) -> Problem | None:
        """The problem of a request for one of the two kinds if the policy serves only the other."""
        served = _BY_KIND.get(policy.gpushare_kind)
        asked = self.switch_for(wanted[0])
        if served is None or asked is served:
            return None
        return Problem(
            reasons.INVALID_REQUEST,
            asked.resource,
            f"is not served, the scheduler's configuration serves {served.resource} only: ask for "
            f"that, or have {asked.argument} switched on in its place",
        )

    def selection(self, pod: PodSource, *, is_bound: bool) -> tuple[Selection, tuple[Problem, ...]]:
        """On a bound pod the index is what it got, no longer what it requested."""
        chosen, problems = selection.decode(pod.annotations)
        if is_bound:
            chosen = msgspec.structs.replace(chosen, indexes=None)
        return card_names.spelled(chosen), problems

    def count_resource(self, config: DeviceConfig) -> str:
        return keys.GPU_NUMBER

    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.GPU_INDEX,))

    def assignment_of(self, request: DeviceRequest) -> str:
        return keys.GPU_INDEX

    def has_served(self, annotations: Mapping[str, str]) -> bool:
        return annotations.get(keys.GPU_ASSIGNED, "false") != "false"

    def question(self, holdings: tuple[Holding, ...]) -> tuple[str, int]:
        first = holdings[0]
        if _shares_memory(first):
            return "MiB", first.memory_mib
        return super().question(holdings)

    def lock_key(self, held: Holding) -> str:
        return keys.LOCK_GPUSHARE if _shares_memory(held) else ""

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The cards are equal parts of the node's *capacity*; both keys must be listed."""
        amounts: list[int] = []
        for key in (keys.GPU_MEMORY, keys.GPU_NUMBER):
            if key not in node.capacity:
                return None, ()
            try:
                amounts.append(units.whole_up(node.capacity[key]))
            except units.QuantityError as error:
                return None, (Problem("BrokenCapacity", f"status.capacity {key}", str(error)),)
        memory_mib, number = amounts
        for key, value, most in (
            (keys.GPU_NUMBER, number, _CARDS_MAX),
            (keys.GPU_MEMORY, memory_mib, max(number, 1) * _CARD_MEMORY_MIB_MAX),
        ):
            if value > most:
                message = f"is {value}; at most {most}"
                return None, (Problem("BrokenCapacity", f"status.capacity {key}", message),)
        unhealthy, problems = _unhealthy(node, number)
        model = node.labels.get(wire.PRODUCT_LABEL) or wire.MODEL
        cards = wire.cards_from_capacity(memory_mib, number, unhealthy, model)
        return (Inventory(self.name, "", cards) if cards else None), problems

    smaller = frozenset(("count", "memory_mib"))

    def memory_resources(self, config: DeviceConfig) -> Mapping[str, int]:
        return {keys.GPU_MEMORY: MIB}

    def amounts(self, wanted: DeviceRequest, config: DeviceConfig) -> Mapping[str, int]:
        if wanted.memory_mib:
            return {keys.GPU_MEMORY: wanted.memory_mib}
        return {keys.GPU_NUMBER: wanted.count}

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """The larger of the sum over containers and the largest init container."""
        memory_mib, problem = _pod_amount(pod, keys.GPU_MEMORY)
        if problem is None:
            number, problem = _pod_amount(pod, keys.GPU_NUMBER)
        if problem is not None:
            return (), problem
        if memory_mib and number:
            return (), Problem(
                reasons.INVALID_REQUEST,
                f"{keys.GPU_MEMORY} and {keys.GPU_NUMBER}",
                "are both given: a pod asks either for memory of a shared card or for whole cards, "
                "not for both",
            )
        for key, amount, most in (
            (keys.GPU_NUMBER, number, _CARDS_MAX),
            (keys.GPU_MEMORY, memory_mib, _CARD_MEMORY_MIB_MAX),
        ):
            if amount > most:
                unit = counted_in(key, amount) if key == keys.GPU_MEMORY else ""
                message = unit or f"of all containers together is {amount}; at most {most}"
                return (), Problem(reasons.INVALID_REQUEST, key, message)
        if memory_mib:
            return (DeviceRequest(self.name, _POD_LEVEL, "", 1, memory_mib, 0, 0),), None
        if number:
            return (
                DeviceRequest(self.name, _POD_LEVEL, "", number, 0, 100, CORES_WHOLE_PCT),
            ), None
        return (), None

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        requests, problem = self.requests(pod)
        if problem is not None or not requests or keys.GPU_INDEX not in pod.annotations:
            return (), ()
        indexes, problems = wire.decode_indexes(
            pod.annotations[keys.GPU_INDEX], f"annotation {keys.GPU_INDEX}"
        )
        wanted = requests[0]
        return tuple(
            Holding(self.name, _POD_LEVEL, str(index), wanted.memory_mib, wanted.cores_pct)
            for index in indexes
        ), problems

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(holdings, stamp_s)


def _shares_memory(held: Holding) -> bool:
    """Whether it is a share by memory; whole cards by number take all compute."""
    return held.cores_pct == 0


def _unhealthy(node: NodeSource, number: int) -> tuple[frozenset[int], tuple[Problem, ...]]:
    """The cards that the node names as unhealthy.

    The UUIDs of these cards are unknown: if one is named, any of them may be meant.
    """
    indexes, others = wire.decode_unhealthy(node.annotations.get(keys.GPU_UNHEALTHY_IDS, ""))
    place = f"annotation {keys.GPU_UNHEALTHY_IDS}"
    problems = []
    for word in others:
        if word.startswith(wire.UUID_PREFIX):
            indexes = frozenset(range(number))
            message = (
                f"names {word[:80]!r}, but this node's device plugin tells no UUIDs: no card takes "
                "anything new until the card's index (0, 1, 2, …) is written in its place"
            )
            problems.append(Problem("UnhealthyCardUnknown", place, message))
        else:
            message = f"{word[:80]!r} is not a card index (0, 1, 2, …)"
            problems.append(Problem("BrokenIndexList", place, message))
    return indexes, tuple(problems)


def _pod_amount(pod: PodSource, key: str) -> tuple[int, Problem | None]:
    totals: list[int] = []
    for group in (pod.containers, pod.init_containers):
        amounts: list[int] = []
        for container in group:
            text = container.limits.get(key)
            if text is None:
                if key in container.requests:
                    return 0, _invalid(container, key, "must be a limit, not only a request")
                continue
            try:
                amounts.append(units.count(text))
            except units.QuantityError as error:
                return 0, _invalid(container, key, str(error))
        totals.append(sum(amounts) if group is pod.containers else max(amounts, default=0))
    return max(totals), None


def _invalid(container: ContainerSource, key: str, message: str) -> Problem:
    return Problem(reasons.INVALID_REQUEST, f"container {container.name!r}, {key}", message)
