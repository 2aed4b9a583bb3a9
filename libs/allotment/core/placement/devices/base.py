"""A device family: how its cards are registered, requested, counted and shown, what others'
annotations mean, what to write on a pod, and how its device plugin serves and acknowledges one.
Which card takes a request is one rule for all families (`choosing`).

What the ledger must know of a family is a layer below, in `ledger.partitions.holdings`.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from allotment.core.units import bytes_text
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    Inventory,
    Policy,
    Problem,
    Selection,
)
from allotment_proto.observed import Standing

CORES_WHOLE_PCT = 100
CORES_MOST_PCT = 8190
"""The most compute of one card that counts, however far it is over-committed (`packing`)."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_DEFAULT_CONFIG = DeviceConfig()
MIB = 1 << 20


class Sense(Enum):
    """What a resource counts, whatever its name."""

    CARDS = "cards"
    MEMORY = "memory of each card"
    MEMORY_PCT = "percent of each card's memory"
    COMPUTE_PCT = "percent of each card's compute"


class ContainerSource(NamedTuple):
    """One container as in the manifest: its resource limits and requests, still as text."""

    name: str
    limits: Mapping[str, str]
    requests: Mapping[str, str]


class PodSource(NamedTuple):
    """The parts of a Kubernetes pod from which a family reads requests and holdings."""

    annotations: Mapping[str, str]
    containers: Sequence[ContainerSource]
    init_containers: Sequence[ContainerSource]
    labels: Mapping[str, str] = NOTHING
    config: DeviceConfig = _DEFAULT_CONFIG


def without_count(
    asked: str, count: str, *, is_zero: bool, least: int = 1, word: str = "card"
) -> str:
    """What is wrong with amounts of cards if no cards are requested: to kubelet a count of 0 is the
    same as none. `asked` are the amounts, `count` the resource that is missing.
    """
    how = f"given, but {count} is 0" if is_zero else f"given without {count}"
    return (
        f"is {how}: kubelet would start the container without a {word}; write {count}: "
        f"{max(least, 1)}, or leave {asked} out"
    )


_CARD_BYTES_MAX = 1 << 40
"""More than any card has: a larger amount was probably given in another unit."""


def in_other_unit(amount: int, unit_bytes: int = MIB) -> int:
    """The probable amount, in units of `unit_bytes`, if no card has as much memory as requested; 0
    if the request is plausible. Bytes are tried first, because that is what Kubernetes' suffixes
    make of a number.
    """
    if amount * unit_bytes < _CARD_BYTES_MAX:
        return 0
    each = max(unit_bytes // MIB, 1)
    for factor in (unit_bytes, each * 10**6, each << 10, each * 10**3):
        meant, rest = divmod(amount, factor)
        if not rest and 0 < meant * unit_bytes < _CARD_BYTES_MAX:
            return meant
    return 0


def counted_in(resource: str, amount: int, unit_bytes: int = MIB) -> str:
    """The unit of a memory resource, and what was probably meant; empty if the amount is
    plausible.
    """
    meant = in_other_unit(amount, unit_bytes)
    if not meant:
        return ""
    unit = "MiB" if unit_bytes == MIB else f"blocks of {unit_bytes // MIB} MiB"
    return f"counts {unit}: write {resource}: {meant} for {bytes_text(meant * unit_bytes)}"


class NodeSource(NamedTuple):
    """The parts of a Kubernetes node from which a family reads its inventory."""

    annotations: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    name: str = ""
    labels: Mapping[str, str] = NOTHING
    config: DeviceConfig = _DEFAULT_CONFIG
    device_info: Mapping[str, str] = NOTHING
    """The data of ConfigMaps about this node's devices (MindCluster), by ConfigMap key."""


class Switch(NamedTuple):
    """An argument of plugin `deviceshare` that switches a family on, or a part of it."""

    argument: str
    cards: str = ""
    """The cards that it serves. Only one of several switches for the same cards may be on: Volcano
    keeps separate books for each.
    """
    resource: str = ""
    """The resource that it serves, where a family has several switches."""


class Record(ABC):
    """The only annotations that a device plugin reads: it serves the pod whose work list names as
    many devices as kubelet requests, whatever became of that pod.
    """

    work_list: str
    """The annotation with what is left to serve; without a comma, nothing."""
    phase: str
    """The annotation in which the plugin records its result."""

    @abstractmethod
    def phase_of(self, annotations: Mapping[str, str], phase: str) -> str:
        """How far the plugin is with a pod whose annotation is `phase`."""

    @abstractmethod
    def standing(self, pod: "PodSource") -> Standing | None:
        """What the plugin would serve by a pod's annotations, no matter who wrote them; None:
        nothing.
        """

    @abstractmethod
    def corrected(self, holdings: tuple[Holding, ...]) -> dict[str, str]:
        """The annotation that shows others which devices a pod holds."""


class BrokenInfo(Exception):
    """Raised for a ConfigMap that cannot be parsed; its text says why."""


class InfoPlace(NamedTuple):
    """The ConfigMaps to list and watch: of one namespace, with one label."""

    namespace: str
    label: tuple[str, str]


class DeviceInfo(ABC):
    """ConfigMaps with data about nodes' devices that the nodes themselves do not have."""

    remedy: str
    """What to do if they cannot be read."""

    @abstractmethod
    def place(self, policy: Policy) -> InfoPlace | None:
        """What to list and watch; None if the policy does not use the family."""

    @abstractmethod
    def concerns(self, capacity: Container[str]) -> bool:
        """Whether a node with this capacity has such devices."""

    @abstractmethod
    def parts(
        self, namespace: str, name: str, data: Mapping[str, str]
    ) -> dict[str, tuple[str, str]]:
        """One ConfigMap's data by node: its key (``<namespace>/<name>/<key>``) and its text; empty
        if it is not about devices. Raises BrokenInfo.
        """


class Family(ABC):
    """One kind of device. Stateless; everything it needs is in the arguments.

    Each family implements what is abstract here. The defaults of the rest suit families whose cards
    are GPUs, shared by memory and percent of compute.
    """

    name: str
    order: str | None = None
    """The order in which a request tries the cards, one of `_ORDERS`; None: that of the policy."""
    each_once = False
    """Whether a pod's containers never share a card."""

    # Configuration

    switches: tuple[Switch, ...]
    """The switches that turn it on: at least one."""
    modes: tuple[str, ...] = ()
    """The modes in which its nodes share cards, if there are several."""
    mode_key = ""
    """The annotation with which a pod names one of them."""

    @abstractmethod
    def resources(self, config: DeviceConfig) -> frozenset[str]:
        """The names of the resources with which pods request its devices."""

    def senses(self, config: DeviceConfig) -> Mapping[Sense, str]:
        """Those of them that request NVIDIA cards, by what they count."""
        return {}

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        """Those of them that no node lists, so that they are not counted as plain resources."""
        return frozenset()

    def configured(self, config: DeviceConfig) -> tuple[str, ...]:
        """A configuration's settings for such devices, in a few words."""
        return ()

    def switches_on(self, policy: Policy) -> tuple[Switch, ...]:
        """The switches that a policy turns on, as far as the policy shows."""
        return self.switches if self.name in policy.families else ()

    def switch_for(self, wanted: DeviceRequest) -> Switch:
        """The switch that would serve a request."""
        return self.switches[0]

    def policy_fields(self, on: frozenset[str]) -> Mapping[str, object]:
        """The other fields of the policy that follow from the arguments that are on."""
        return {}

    def read_by(self, policy: Policy) -> object:
        """The part of a policy on which this family's part of a pod's fact can depend."""
        return None

    # Nodes

    info: DeviceInfo | None = None
    """ConfigMaps with more data about a node's devices; None if there are none."""
    own_problems: frozenset[str] = frozenset()
    """Codes of problems of a node that matter only to pods that use the family."""
    absent_problems: frozenset[str] = frozenset()
    """Codes of problems that leave a node without devices of the family."""

    @abstractmethod
    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The node's cards of this family (None if it has none), and what is wrong with them."""

    def accepts_model(self, model: str) -> bool:
        """Whether cards of this model belong to the family at all."""
        return True

    counted_again: tuple[str, ...] = ()
    """Resources with which another device plugin counts the same cards, to be allocated whole."""

    # Pods

    asked_annotations: frozenset[str] = frozenset()
    """Annotations that define what a pod requests. Others differ between pods of a kind."""
    asked_labels: frozenset[str] = frozenset()
    """Labels that do."""
    one_container = False
    """Whether most device plugins serve only one container of a pod (`Policy.multi_container`)."""
    several_served = ""
    """What to do if the plugins serve several."""
    keeps_apart = False
    """Whether exclusivity rules apply to its shared cards, and groups can be spread over cards."""

    @abstractmethod
    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """What the pod requests of this family; a problem makes the whole pod unschedulable."""

    def unserved(self, wanted: Sequence[DeviceRequest], policy: Policy) -> Problem | None:
        """Why a policy that serves the family does not serve this request."""
        return None

    smaller: frozenset[str] = frozenset()
    """The fields of a request that its user may make smaller."""

    def amounts(self, wanted: DeviceRequest, config: DeviceConfig) -> Mapping[str, int]:
        """The amounts that such a container takes of the resources that nodes list."""
        return {}

    def selection(self, pod: PodSource, *, is_bound: bool) -> tuple[Selection, tuple[Problem, ...]]:
        """The cards that a pod accepts, by its annotations, and which of these are invalid."""
        return Selection(), ()

    def count_resource(self, config: DeviceConfig) -> str:
        """The resource that requests cards which other schedulers only count (NVIDIA's)."""
        return ""

    @abstractmethod
    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """What a bound pod holds according to its annotations, no matter who bound it."""

    @abstractmethod
    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        """All annotations that can record what a pod holds."""

    @abstractmethod
    def assignment_of(self, request: DeviceRequest) -> str:
        """The annotation that records what a request got."""

    # Binding, and the device plugin

    phase_key = ""
    """The annotation in which the plugin records how far it is with a pod."""
    record: Record | None = None
    """What the plugin reads, if that is annotations alone."""
    swappable = True
    """Whether pods with identical assignments may be served in any order."""

    @abstractmethod
    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        """The annotations that the Binding of a pod with these holdings carries."""

    def has_served(self, annotations: Mapping[str, str]) -> bool:
        """Whether a pod's annotations, apart from the phase, show that the plugin served it."""
        return False

    def question(self, holdings: tuple[Holding, ...]) -> tuple[str, int]:
        """All that kubelet passes to the plugin: a unit, and how many."""
        return "devices", len(holdings)

    def lock_key(self, held: Holding) -> str:
        """The node annotation that is its lock for old plugins; empty: there is none."""
        return ""

    # Counting and showing

    scoring: str
    """What the usage policies score in its chosen cards, one of `_SCORINGS`."""
    word = "GPU"
    """The word for a card, used with its index."""
    compute_whole = 100
    """The compute of a whole card where pods ask for percent; 0 where they ask for AI cores."""
    has_memory = True
    """Whether its nodes report the memory of their cards."""
    gauges = ""
    """The prefix of Volcano's metrics of its cards; empty if there are none."""
    has_card_quota = False
    """Whether shares count as parts of cards in the quotas of plugin `capacity-card`."""

    def memory_unit_bytes(self, config: DeviceConfig) -> int:
        """The unit in which its cards' memory is registered."""
        return MIB

    def memory_resources(self, config: DeviceConfig) -> Mapping[str, int]:
        """The resources that are amounts of its cards' memory, and the bytes of one unit."""
        return {}

    def share_resources(self, config: DeviceConfig) -> frozenset[str]:
        """The resources with which pods ask for shares that have no card quota of their own."""
        return frozenset()

    def quota_names(self, config: DeviceConfig) -> tuple[str, str] | None:
        """The resources (memory, compute) of which quotas count what a pod really takes of all its
        cards; None: they count its request."""
        return None


_ORDERS = ("fullest", "emptiest", "first", "last", "preferred")
"""Most used memory first; fewest holders first; lowest index first; highest index first; as the
device policy sorts them."""

SCORE_EACH, SCORE_FIRST, SCORE_COMPUTE = _SCORINGS = ("each", "first", "compute")
"""Every card by its memory in use after the charge; only the first card of each container, by its
memory in use before; every card by its compute in use after, unless it is a second best."""
