"""What a device family is: how its cards are registered, how pods ask for them, what others'
annotations mean and what to write on a pod. Which card takes a request is one rule for all
(`choosing`).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import DeviceRequest, Holding, Inventory, Problem

CORES_WHOLE_PCT = 100
CORES_MOST_PCT = 8190
"""The compute of one card that is counted, however far it is over-committed (`packing`)."""
NOTHING: Mapping[str, str] = MappingProxyType({})
DEFAULT_CONFIG = DeviceConfig()


class ContainerSource(NamedTuple):
    """One container as written: its resource limits and requests, still as text."""

    name: str
    limits: Mapping[str, str]
    requests: Mapping[str, str]


class PodSource(NamedTuple):
    """The parts of a Kubernetes pod from which a family reads requests and holdings."""

    annotations: Mapping[str, str]
    containers: Sequence[ContainerSource]
    init_containers: Sequence[ContainerSource]
    labels: Mapping[str, str] = NOTHING
    config: DeviceConfig = DEFAULT_CONFIG


class NodeSource(NamedTuple):
    """The parts of a Kubernetes node from which a family reads its inventory."""

    annotations: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    name: str = ""
    labels: Mapping[str, str] = NOTHING
    config: DeviceConfig = DEFAULT_CONFIG
    device_info: Mapping[str, str] = NOTHING
    """What ConfigMaps say of this node's devices (MindCluster), by ConfigMap key."""


class Family(Protocol):
    """One kind of device. Stateless; everything it needs is in the arguments."""

    name: str
    each_once: bool
    """Whether a pod's containers never share a card."""

    def resources(self, config: DeviceConfig) -> frozenset[str]:
        """Resource names that belong to this family, with which pods ask for its devices."""

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        """Those of them that no node lists, so that they are not counted as plain resources."""

    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The node's cards of this family, None if it has none, and what is wrong with them."""

    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """What the pod asks of this family; a problem makes the whole pod unschedulable."""

    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """What a bound pod holds according to its annotations, whoever bound it."""

    def accepts_model(self, model: str) -> bool:
        """Whether cards of this model belong to the family at all."""

    order: str | None
    """In which order a request tries the cards, one of `ORDERS`; None: as the policy says."""

    scoring: str
    """What of its chosen cards the policies by use score, one of `SCORINGS`."""

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        """What travels in the Binding of a pod that got these holdings."""


ORDERS = ("fullest", "emptiest", "first", "last", "preferred")
"""Most used memory first; fewest holders first; lowest index first; highest index first; as the
device policy sorts them."""

SCORE_EACH, SCORE_FIRST, SCORE_COMPUTE = SCORINGS = ("each", "first", "compute")
"""Every card by its memory in use after the charge; of each container the first card alone, by its
memory in use before; every card by its compute in use after, if it gives what was asked for and not
only what will do."""
