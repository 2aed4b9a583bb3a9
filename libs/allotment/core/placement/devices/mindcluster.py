"""Ascend 310P chips through MindCluster: whole, or pieces by AI cores.

`ledger.partitions.mindcluster` has the rules of partitioning.

A card's and a holding's percent of compute counts AI cores here, and a card's slots its AI CPUs.
One container of a pod requests its chips, because one annotation records them for all its
containers. Source: volcano `ascend/mindcluster` (deviceshare 2.7, 4.10, 6.9, 7.4), with quirk Q24
corrected.
"""

from collections.abc import Container, Mapping

import msgspec

from allotment.core import reasons, units
from allotment.core.ledger.partitions import UNCONFIRMED
from allotment.core.placement.devices.base import (
    SCORE_COMPUTE,
    BrokenInfo,
    ContainerSource,
    DeviceInfo,
    Family,
    InfoPlace,
    NodeSource,
    PodSource,
    Switch,
)
from allotment.core.plugin_arguments import INIT_PARAMS, is_configured
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import DeviceRequest, Holding, Inventory, Policy, Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano import mindcluster as wire
from allotment_proto.volcano import mindcluster_node as wire_node

_KIND = "Ascend310P"
_CORES_PER_CHIP = (8, 10)
"""AI cores of the chips that pods can request whole, the usual number first."""
_CHIPS_MAX = 64
"""More than any node has: a larger number is rejected as a mistake."""
_NAMESPACES = (keys.MINDX_NAMESPACE, keys.MINDX_NODE_NAMESPACE)
"""The namespaces of device information: of the whole cluster, otherwise of single nodes."""


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class MindclusterInfo(DeviceInfo):
    """One ConfigMap may describe all nodes. It is split, so that a change touches only the nodes
    whose own part changed and each node has only its part, in the layout of the whole.

    Source: volcano `ascend/mindcluster/ascend310p/vnpu/init_policy.go` (deviceshare 2.7).
    """

    remedy = "apply deploy/base/watcher-mindcluster.yaml if the watcher has no right to it"

    def place(self, policy: Policy) -> InfoPlace | None:
        if wire.FAMILY not in policy.families:
            return None
        if is_configured(policy, INIT_PARAMS, "useClusterInfoManager"):
            return InfoPlace(keys.MINDX_NAMESPACE, keys.LABEL_CLUSTER_INFO)
        return InfoPlace(keys.MINDX_NODE_NAMESPACE, keys.LABEL_NODE_INFO)

    def concerns(self, capacity: Container[str]) -> bool:
        return keys.NPU_CORE in capacity

    def parts(
        self, namespace: str, name: str, data: Mapping[str, str]
    ) -> dict[str, tuple[str, str]]:
        place = f"{namespace}/{name}"
        if name.startswith(keys.CLUSTER_INFO_DEVICE_PREFIX):
            if name not in data:
                raise BrokenInfo(f"ConfigMap {place} has no key {name}")
            try:
                entries = _decode(data[name])
            except msgspec.MsgspecError as error:
                message = f"ConfigMap {place}, key {name}, is no JSON map of nodes: {error}"
                raise BrokenInfo(message) from error
            return {
                key.removeprefix(keys.DEVICE_INFO_PREFIX): (
                    f"{place}/{name}",
                    msgspec.json.encode({key: entry}).decode(),
                )
                for key, entry in entries.items()
                if key.startswith(keys.DEVICE_INFO_PREFIX)
            }
        if name.startswith(keys.DEVICE_INFO_PREFIX):
            if keys.DEVICE_INFO_KEY not in data:
                raise BrokenInfo(f"ConfigMap {place} has no key {keys.DEVICE_INFO_KEY}")
            node = name.removeprefix(keys.DEVICE_INFO_PREFIX)
            return {node: (f"{place}/{keys.DEVICE_INFO_KEY}", data[keys.DEVICE_INFO_KEY])}
        return {}


class Mindcluster(Family):
    name = wire.FAMILY
    order = "first"
    each_once = True
    scoring = SCORE_COMPUTE
    switches = (Switch("deviceshare.AscendMindClusterVNPUEnable"),)
    info = MindclusterInfo()
    own_problems = frozenset(("BrokenNpuNode",))
    absent_problems = own_problems
    asked_labels = frozenset((keys.LABEL_RING, keys.LABEL_VNPU_LEVEL, keys.LABEL_VNPU_DVPP))
    word = "NPU"
    compute_whole = 0
    has_memory = False

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.NPU_CORE,))

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The chips of a node that lists AI cores; a node that Huawei set apart takes nothing."""
        if keys.NPU_CORE not in node.capacity:
            return None, ()
        place = f"status.capacity {keys.NPU_CORE}"
        try:
            npu_cores = units.whole_up(node.capacity[keys.NPU_CORE])
        except units.QuantityError as error:
            return None, (Problem("BrokenCapacity", place, str(error)),)
        if not npu_cores:
            return None, ()
        info, problems = _device_info(node)
        found = wire_node.decode_node(node.labels, node.annotations, npu_cores, info)
        problems += found.problems
        cards = found.cards
        if node.annotations.get(keys.NPU_NODE_HEALTH) == keys.NPU_NODE_SEPARATED:
            cards = tuple(msgspec.structs.replace(card, healthy=False) for card in cards)
            place = f"annotation {keys.NPU_NODE_HEALTH}"
            message = f"is {keys.NPU_NODE_SEPARATED}: its chips take nothing new"
            problems += (Problem("NodeSeparated", place, message),)
        return (Inventory(self.name, "", cards) if cards else None), problems

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        asking = [c for c in pod.containers if _asks(c)]
        for container in pod.init_containers:
            if not asking and _asks(container):
                message = "is asked for by an init container only: ask in a container"
                return (), _invalid(container, message)
        if not asking:
            return (), None
        if len(asking) > 1:
            names = ", ".join(container.name for container in asking)
            return (), Problem(
                reasons.INVALID_REQUEST,
                f"containers {names}",
                f"ask for {keys.NPU_CORE}, but a pod's chips serve only one container: put them "
                "into one container or into several pods",
            )
        container = asking[0]
        text = container.requests.get(keys.NPU_CORE, container.limits.get(keys.NPU_CORE, ""))
        if keys.NPU_CORE not in container.limits:
            return (), _invalid(container, "must be a limit, not only a request")
        try:
            cores = units.count(text)
        except units.QuantityError as error:
            return (), _invalid(container, str(error))
        if cores == 0:
            return (), None
        ring = pod.labels.get(keys.LABEL_RING, keys.RING_310P)
        if ring != keys.RING_310P:
            place = f"label {keys.LABEL_RING}"
            message = f"is {ring!r}; {keys.NPU_CORE} needs {keys.RING_310P}"
            return (), Problem(reasons.INVALID_REQUEST, place, message)
        return self._request(pod, list(pod.containers).index(container), container, cores)

    def _request(
        self, pod: PodSource, index: int, container: ContainerSource, cores: int
    ) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        templates, problems = wire.templates_for(cores, pod.labels)
        for problem in problems:
            if problem.code == wire.INVALID_REQUEST:
                return (), problem
        chips, each = _whole_chips(cores)
        if chips > _CHIPS_MAX:
            return (), _invalid(container, f"is {cores}; at most {_CHIPS_MAX} chips")
        if chips:
            templates = ()
        elif templates:
            chips, each = 1, cores
        else:
            sizes = " or ".join(map(str, _CORES_PER_CHIP))
            message = f"is {cores}; wanted: 1, 2 or 4 cores of a chip, or a multiple of {sizes}"
            return (), _invalid(container, message)
        wanted = DeviceRequest(
            family=self.name,
            container=index,
            container_name=container.name,
            count=chips,
            memory_mib=0,
            memory_pct=0,
            cores_pct=each,
            chip=_KIND,
            templates=templates,
        )
        return (wanted,), None

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """The holdings in the annotation. A piece that another scheduler allocated and Huawei's
        plugin has not yet reported closes its chip (`UNCONFIRMED`).
        """
        text = pod.annotations.get(keys.NPU_CORE)
        if text is None:
            return (), ()
        found = wire.decode_npu_core(text)
        if isinstance(found, Problem):
            return (), (found,)
        index = next((i for i, c in enumerate(pod.containers) if _asks(c)), 0)
        if not found.template:
            requests, _ = self.requests(pod)
            # nothing is left of a chip of unknown size anyway: it is held whole
            each = requests[0].cores_pct if requests and not requests[0].templates else 0
            return tuple(Holding(self.name, index, c, 0, each) for c in found.chips), ()
        is_known = keys.LOG_SEQ in pod.annotations or keys.ASCEND_REAL in pod.annotations
        instance = found.template if is_known else found.template + UNCONFIRMED
        cores = wire.TEMPLATES[found.template].cores
        return (Holding(self.name, index, found.chips[0], 0, cores, instance),), ()

    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        return frozenset((keys.NPU_CORE,))

    def assignment_of(self, request: DeviceRequest) -> str:
        return keys.NPU_CORE

    def has_served(self, annotations: Mapping[str, str]) -> bool:
        return keys.ASCEND_REAL in annotations

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        return wire.binding_annotations(holdings, stamp_s)


def _asks(container: ContainerSource) -> bool:
    return keys.NPU_CORE in container.limits or keys.NPU_CORE in container.requests


def _whole_chips(cores: int) -> tuple[int, int]:
    """The number of whole chips in these cores, and the cores of each; 0 if they are none."""
    for each in _CORES_PER_CHIP:
        chips = wire.whole_chips(cores, each)
        if chips:
            return chips, each
    return 0, 0


def _device_info(node: NodeSource) -> tuple[wire_node.DeviceInfo | None, tuple[Problem, ...]]:
    """The data of ConfigMaps about the node's chips (keys like
    ``mindx-dl/cluster-info-device-0/cluster-info-device-0``); None without any.
    """
    accelerator = node.labels.get(keys.LABEL_ACCELERATOR, "")
    kind = accelerator.split("-")[1] if "-" in accelerator else _KIND
    maps: dict[tuple[str, str], dict[str, str]] = {}
    for path, text in node.device_info.items():
        namespace, _, rest = path.partition("/")
        name, _, key = rest.partition("/")
        maps.setdefault((namespace, name), {})[key] = text
    problems: tuple[Problem, ...] = ()
    for namespace in _NAMESPACES:
        for where in sorted(maps):
            if where[0] != namespace:
                continue
            infos, found = wire_node.decode_device_infos(where[1], maps[where], kind)
            problems += found
            if node.name in infos:
                return infos[node.name], ()
    return None, problems


def _invalid(container: ContainerSource, message: str) -> Problem:
    place = f"container {container.name!r}, {keys.NPU_CORE}"
    return Problem(reasons.INVALID_REQUEST, place, message)
