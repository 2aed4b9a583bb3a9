"""vGPU in hami-core mode: software slices of NVIDIA cards by memory and compute."""

import msgspec

from allotment.core import quantities, reasons
from allotment.core.devices.base import (
    CORES_WHOLE_PCT,
    ContainerSource,
    NodeSource,
    PodSource,
)
from allotment_proto.facts import DeviceRequest, Holding, Inventory, Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano import vgpu as wire

COUNT_MAX = 64
"""More cards than any node has: a larger number is a mistake, and is said to be one."""


class Vgpu:
    name = wire.FAMILY
    order: str | None = None
    resources = frozenset(
        (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_MEMORY_PERCENTAGE, keys.VGPU_CORES)
    )
    unadvertised = frozenset((keys.VGPU_MEMORY_PERCENTAGE,))

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """A node counts when it is registered and kubelet lists number, memory and cores above 0.

        When the device plugin dies, kubelet drives these to 0: that is the liveness signal.
        """
        text = node.annotations.get(keys.NODE_VGPU_REGISTER)
        if text is None:
            return None, ()
        register = wire.decode_register(text)
        if not register.cards:
            return None, register.problems
        missing = [
            name
            for name in (keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_CORES)
            if not _positive(node.allocatable.get(name))
        ]
        if missing:
            problem = Problem(
                "NotAllocatable",
                "status.allocatable",
                f"{', '.join(missing)} missing or 0 although cards are registered: "
                "is the device plugin running?",
            )
            return None, (*register.problems, problem)
        if register.mode != keys.MODE_HAMI_CORE:
            problem = Problem(
                "ModeNotSupported",
                f"annotation {keys.NODE_VGPU_REGISTER}",
                f"mode {register.mode!r} is not supported yet; supported: {keys.MODE_HAMI_CORE}",
            )
            return None, (*register.problems, problem)
        cards = tuple(
            card if card.memory_mib else msgspec.structs.replace(card, healthy=False)
            for card in register.cards
        )  # all of nothing would fit on a card without memory, and fail there
        return Inventory(self.name, register.mode, cards), register.problems

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """Regular containers only; a count of 0 asks for nothing.

        Init containers are passed over, as Volcano does. A pod in which nothing else asks is
        refused: bound without annotations, it would fail on its node.
        """
        out: list[DeviceRequest] = []
        for index, container in enumerate(pod.containers):
            request, problem = self._request(index, container)
            if problem is not None:
                return (), problem
            if request is not None:
                out.append(request)
        if not out:
            for container in pod.init_containers:
                if self._request(0, container) != (None, None):
                    return (), _invalid(
                        container,
                        keys.VGPU_NUMBER,
                        "is asked for by an init container only, which the device plugin cannot "
                        "serve: ask in a container",
                    )
        return tuple(out), None

    def _request(
        self, index: int, container: ContainerSource
    ) -> tuple[DeviceRequest | None, Problem | None]:
        amounts: dict[str, int] = {}
        for key in sorted(self.resources):
            text = container.limits.get(key, container.requests.get(key))
            if text is None:
                continue
            try:
                amounts[key] = quantities.count(text)
            except quantities.QuantityError as error:
                return None, _invalid(container, key, f"{error}")
        if not amounts:
            return None, None
        if keys.VGPU_NUMBER not in amounts:
            given = ", ".join(sorted(amounts))
            return None, _invalid(
                container,
                given,
                f"is given without {keys.VGPU_NUMBER}: kubelet would start the container "
                f"without a card; add {keys.VGPU_NUMBER}: 1",
            )
        if keys.VGPU_NUMBER not in container.limits:
            return None, _invalid(
                container, keys.VGPU_NUMBER, "must be a limit, not only a request"
            )
        count = amounts[keys.VGPU_NUMBER]
        if count == 0:
            return None, None
        if count > COUNT_MAX:
            return None, _invalid(container, keys.VGPU_NUMBER, f"is {count}; at most {COUNT_MAX}")
        cores = amounts.get(keys.VGPU_CORES, 0)
        if cores > CORES_WHOLE_PCT:
            return None, _invalid(
                container, keys.VGPU_CORES, f"is {cores}; it is percent of a card, so 0 to 100"
            )
        memory = amounts.get(keys.VGPU_MEMORY, 0)
        percent = amounts.get(keys.VGPU_MEMORY_PERCENTAGE)
        if percent is not None and not 1 <= percent <= 100:
            return None, _invalid(
                container, keys.VGPU_MEMORY_PERCENTAGE, f"is {percent}; wanted: 1 to 100"
            )
        if percent is None:
            percent = 100 if memory == 0 else 0
        return (
            DeviceRequest(
                family=self.name,
                container=index,
                container_name=container.name,
                count=count,
                memory_mib=0 if percent else memory,
                memory_pct=percent,
                cores_pct=cores,
            ),
            None,
        )

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """Every entry of every container is charged; group k is the k-th requesting container."""
        text = pod.annotations.get(keys.VGPU_IDS)
        if text is None:
            return (), ()
        groups, problems = wire.decode_assignment(text)
        asking = [i for i, container in enumerate(pod.containers) if _mentions(container)]
        if len(groups) < len(asking):  # ours: a container that asks for 0 cards has no group
            asking = [i for i in asking if pod.containers[i].limits.get(keys.VGPU_NUMBER) != "0"]
        spare = max(asking, default=-1) + 1
        asking.extend(range(spare, spare + len(groups)))
        holdings = tuple(
            Holding(
                self.name,
                asking[number],
                entry.card,
                entry.memory_mib,
                entry.cores_pct,
            )
            for number, group in enumerate(groups)
            for entry in group
        )
        return holdings, problems

    def accepts_model(self, model: str) -> bool:
        return wire.ENTRY_TYPE in model

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(node, holdings, stamp_s, bind_time_s)


def _mentions(container: ContainerSource) -> bool:
    return keys.VGPU_NUMBER in container.limits or keys.VGPU_MEMORY in container.limits


def _positive(text: str | None) -> bool:
    if text is None:
        return False
    try:
        return quantities.whole_up(text) > 0
    except quantities.QuantityError:
        return False


def _invalid(container: ContainerSource, key: str, message: str) -> Problem:
    return Problem(reasons.INVALID_REQUEST, f"container {container.name!r}, {key}", message)
