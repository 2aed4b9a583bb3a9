"""GPU sharing by memory (`volcano.sh/gpu-memory`) and whole cards by number (`gpu-number`).

Both live on one ledger. A memory request is one card for the whole pod; a number request takes
cards that nobody else holds, with all their memory.
"""

from allotment.core import reasons, units
from allotment.core.placement.devices.base import (
    CORES_WHOLE_PCT,
    SCORE_EACH,
    ContainerSource,
    NodeSource,
    PodSource,
)
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import DeviceRequest, Holding, Inventory, Problem
from allotment_proto.volcano import gpushare as wire
from allotment_proto.volcano import keys

POD_LEVEL = 0
"""Requests of all containers are one request of the pod; it is booked under container 0."""
CARDS_MAX = 1024
"""More than any node has: a larger number is a mistake, and is said to be one."""
CARD_MEMORY_MIB_MAX = 10**9
"""More than any card has."""


class Gpushare:
    name = wire.FAMILY
    order: str | None = "first"
    each_once = False
    scoring = SCORE_EACH

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.GPU_MEMORY, keys.GPU_NUMBER))

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset()

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """Cards are equal parts of the node's *capacity*; both keys must be listed."""
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
            (keys.GPU_NUMBER, number, CARDS_MAX),
            (keys.GPU_MEMORY, memory_mib, max(number, 1) * CARD_MEMORY_MIB_MAX),
        ):
            if value > most:
                message = f"is {value}; at most {most}"
                return None, (Problem("BrokenCapacity", f"status.capacity {key}", message),)
        unhealthy, problems = _unhealthy(node, number)
        model = node.labels.get(wire.PRODUCT_LABEL) or wire.MODEL
        cards = wire.cards_from_capacity(memory_mib, number, unhealthy, model)
        return (Inventory(self.name, "", cards) if cards else None), problems

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
            (keys.GPU_NUMBER, number, CARDS_MAX),
            (keys.GPU_MEMORY, memory_mib, CARD_MEMORY_MIB_MAX),
        ):
            if amount > most:
                message = f"of all containers together is {amount}; at most {most}"
                return (), Problem(reasons.INVALID_REQUEST, key, message)
        if memory_mib:
            return (DeviceRequest(self.name, POD_LEVEL, "", 1, memory_mib, 0, 0),), None
        if number:
            return (DeviceRequest(self.name, POD_LEVEL, "", number, 0, 100, CORES_WHOLE_PCT),), None
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
            Holding(self.name, POD_LEVEL, str(index), wanted.memory_mib, wanted.cores_pct)
            for index in indexes
        ), problems

    def accepts_model(self, model: str) -> bool:
        return True

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(holdings, stamp_s)


def _unhealthy(node: NodeSource, number: int) -> tuple[frozenset[int], tuple[Problem, ...]]:
    """The cards that the node names as unhealthy.

    Nothing tells these cards' UUIDs: if one is named, any of them may be meant.
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
