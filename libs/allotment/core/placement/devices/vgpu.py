"""vGPU: NVIDIA cards by share or by MIG instance, depending on the node's mode.

In mode `hami-core` software limits a share's memory and compute, in `mps` its compute alone; in
`mig` a card is partitioned into instances (`allotment.core.ledger.partitions.mig`).
"""

from collections.abc import Mapping

from allotment.core import reasons, units
from allotment.core.placement.devices.base import (
    CORES_WHOLE_PCT,
    MIB,
    SCORE_EACH,
    ContainerSource,
    Family,
    NodeSource,
    PodSource,
    Record,
    Sense,
    Switch,
    without_count,
)
from allotment.core.placement.devices.vgpu_nodes import registered
from allotment_proto.device_config import DeviceConfig, Nvidia
from allotment_proto.facts import DeviceRequest, Holding, Inventory, Problem, Selection
from allotment_proto.observed import Standing
from allotment_proto.volcano import keys, selection
from allotment_proto.volcano import vgpu as wire

_COUNT_MAX = 64
"""More cards than any node has: a larger number is rejected as a mistake."""


class _VgpuRecord(Record):
    work_list = keys.DEVICES_TO_ALLOCATE
    phase = keys.BIND_PHASE

    def phase_of(self, annotations: Mapping[str, str], phase: str) -> str:
        """The plugin serves what is left in its work list and ignores the phase that it wrote, so
        the list outranks the phase here as well. A pod that it gave up keeps its list, with a time
        that makes it the last.
        """
        left = annotations.get(self.work_list)
        if left is None or phase == "":
            return phase
        is_given_up = phase == keys.PHASE_FAILED and (
            annotations.get(keys.VGPU_TIME) == keys.VGPU_TIME_DONE
        )
        if "," in left:
            return phase if is_given_up else keys.PHASE_ALLOCATING
        return keys.PHASE_SUCCESS if phase == keys.PHASE_ALLOCATING else phase

    def standing(self, pod: PodSource) -> Standing | None:
        """The plugin reads neither the pod's node nor its phase, and counts entries by their
        commas, even those that it cannot parse.
        """
        text, node = pod.annotations.get(self.work_list, ""), pod.annotations.get(keys.VGPU_NODE)
        devices = sum("," in piece for group in text.split(";") for piece in group.split(":"))
        if not node or not devices:
            return None
        holdings, _ = _held(pod, text)
        return Standing(node, wire.FAMILY, devices, holdings[:_COUNT_MAX])

    def corrected(self, holdings: tuple[Holding, ...]) -> dict[str, str]:
        return {keys.VGPU_IDS: wire.encode_assignment(holdings)}


class Vgpu(Family):
    name = wire.FAMILY
    counted_again = keys.NVIDIA_COUNTED
    scoring = SCORE_EACH
    switches = (Switch("deviceshare.VGPUEnable", "nvidia"),)
    modes = tuple(sorted(wire.MODES))
    mode_key = keys.VGPU_MODE
    absent_problems = frozenset(("NotRegistered", "NotAllocatable", "BrokenRegister"))
    asked_annotations = selection.KEYS
    one_container = True
    several_served = (
        "if the device plugin of vGPU is v1.11 or older on all nodes, it can serve several: set "
        "`allotment.MultiContainerEnable: true` in the arguments of plugin `allotment` of the "
        "scheduler's configuration"
    )
    keeps_apart = True
    phase_key = keys.BIND_PHASE
    record = _VgpuRecord()
    gauges = "volcano_vgpu_device"
    has_card_quota = True
    smaller = frozenset(("count", "memory_mib", "memory_pct", "cores_pct"))

    def amounts(self, wanted: DeviceRequest, config: DeviceConfig) -> Mapping[str, int]:
        nvidia = config.nvidia
        return {
            nvidia.count_name: wanted.count,
            nvidia.memory_name: wanted.memory_mib,
            nvidia.cores_name: wanted.cores_pct,
        }

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        nvidia = config.nvidia
        names = (
            nvidia.count_name,
            nvidia.memory_name,
            nvidia.memory_percentage_name,
            nvidia.cores_name,
        )
        return frozenset(name for name in names if name)

    def senses(self, config: DeviceConfig) -> Mapping[Sense, str]:
        nvidia = config.nvidia
        names = {
            Sense.CARDS: nvidia.count_name,
            Sense.MEMORY: nvidia.memory_name,
            Sense.MEMORY_PCT: nvidia.memory_percentage_name,
            Sense.COMPUTE_PCT: nvidia.cores_name,
        }
        return {sense: name for sense, name in names.items() if name}

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset(filter(None, (config.nvidia.memory_percentage_name,)))

    def configured(self, config: DeviceConfig) -> tuple[str, ...]:
        return (f"{len(config.nvidia.mig)} MIG tables",)

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        return registered(self.name, node)

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """The requests of regular containers; a count of 0 requests nothing.

        Init containers are ignored, as in Volcano. A pod in which only an init container requests
        cards is rejected: bound without annotations, it would fail on its node.
        """
        out: list[DeviceRequest] = []
        for index, container in enumerate(pod.containers):
            request, problem = self._request(index, container, pod.config.nvidia)
            if problem is not None:
                return (), problem
            if request is not None:
                out.append(request)
        if not out:
            for container in pod.init_containers:
                if self._request(0, container, pod.config.nvidia) != (None, None):
                    return (), _invalid(
                        container,
                        pod.config.nvidia.count_name,
                        "is asked for by an init container only, which the device plugin cannot "
                        "serve: ask in a container",
                    )
        return tuple(out), None

    def _request(
        self, index: int, container: ContainerSource, nvidia: Nvidia
    ) -> tuple[DeviceRequest | None, Problem | None]:
        amounts: dict[str, int] = {}
        names = (nvidia.count_name, nvidia.memory_name, nvidia.cores_name)
        for key in sorted({*names, nvidia.memory_percentage_name} - {""}):
            text = container.limits.get(key, container.requests.get(key))
            if text is None:
                continue
            try:
                amounts[key] = units.count(text)
            except units.QuantityError as error:
                return None, _invalid(container, key, f"{error}")
        if not amounts:
            return None, None
        if not amounts.get(nvidia.count_name):
            given = ", ".join(key for key, amount in amounts.items() if amount)
            if not given:
                return None, None
            is_zero = nvidia.count_name in amounts
            message = without_count(
                given, nvidia.count_name, is_zero=is_zero, least=nvidia.default_count
            )
            return None, _invalid(container, given, message)
        if nvidia.count_name not in container.limits:
            return None, _invalid(
                container, nvidia.count_name, "must be a limit, not only a request"
            )
        count = amounts[nvidia.count_name]
        if count > _COUNT_MAX:
            return None, _invalid(container, nvidia.count_name, f"is {count}; at most {_COUNT_MAX}")
        cores = amounts.get(nvidia.cores_name, nvidia.default_cores_pct)
        if cores > CORES_WHOLE_PCT:
            return None, _invalid(
                container, nvidia.cores_name, f"is {cores}; it is percent of a card, so 0 to 100"
            )
        percent = amounts.get(nvidia.memory_percentage_name)
        if percent is not None and not 1 <= percent <= 100:
            return None, _invalid(
                container, nvidia.memory_percentage_name, f"is {percent}; wanted: 1 to 100"
            )
        memory = amounts.get(nvidia.memory_name)
        if memory is None and percent is None:
            memory = nvidia.default_memory
        if percent is None:
            percent = 0 if memory else 100
        return (
            DeviceRequest(
                family=self.name,
                container=index,
                container_name=container.name,
                count=count,
                memory_mib=0 if percent else memory or 0,
                memory_pct=percent,
                cores_pct=cores,
            ),
            None,
        )

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """Every entry of every container is charged; group k is the k-th requesting container."""
        text = pod.annotations.get(keys.VGPU_IDS)
        return ((), ()) if text is None else _held(pod, text)

    def selection(self, pod: PodSource, *, is_bound: bool) -> tuple[Selection, tuple[Problem, ...]]:
        return selection.decode(pod.annotations)

    def count_resource(self, config: DeviceConfig) -> str:
        return config.nvidia.count_name

    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.VGPU_IDS,))

    def assignment_of(self, request: DeviceRequest) -> str:
        return keys.VGPU_IDS

    def accepts_model(self, model: str) -> bool:
        return wire.ENTRY_TYPE in model

    def lock_key(self, held: Holding) -> str:
        return keys.LOCK_VGPU

    def memory_unit_bytes(self, config: DeviceConfig) -> int:
        return max(config.nvidia.memory_factor, 1) * MIB

    def memory_resources(self, config: DeviceConfig) -> Mapping[str, int]:
        return {config.nvidia.memory_name: self.memory_unit_bytes(config)}

    def share_resources(self, config: DeviceConfig) -> frozenset[str]:
        nvidia = config.nvidia
        names = (nvidia.count_name, nvidia.memory_name, nvidia.cores_name)
        return frozenset(name for name in names if name)

    def quota_names(self, config: DeviceConfig) -> tuple[str, str]:
        return config.nvidia.memory_name, config.nvidia.cores_name

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(node, holdings, stamp_s, bind_time_s)


def _held(pod: PodSource, text: str) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
    """What a pod's containers hold according to an assignment string."""
    groups, problems = wire.decode_assignment(text)
    nvidia = pod.config.nvidia
    names = (nvidia.count_name, nvidia.memory_name)
    asking = [
        i
        for i, container in enumerate(pod.containers)
        if any(name in container.limits for name in names)
    ]
    if len(groups) < len(asking):  # ours: one that requests 0 cards has no group
        asking = [i for i in asking if pod.containers[i].limits.get(nvidia.count_name) != "0"]
    spare = max(asking, default=-1) + 1
    asking.extend(range(spare, spare + len(groups)))
    holdings = tuple(
        Holding(
            wire.FAMILY,
            asking[number],
            entry.card,
            entry.memory_mib,
            entry.cores_pct,
            entry.instance,
        )
        for number, group in enumerate(groups)
        for entry in group
    )
    return holdings, problems


def _invalid(container: ContainerSource, key: str, message: str) -> Problem:
    return Problem(reasons.INVALID_REQUEST, f"container {container.name!r}, {key}", message)
