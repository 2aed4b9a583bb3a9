"""What a device family is: how its cards are registered, how pods ask for them, what others'
annotations mean, what to write on a pod, how its device plugin is asked and acknowledges, and how
its cards are counted and shown. Which card takes a request is one rule for all (`choosing`).

What the books must know of a family stands below, in `ledger.partitions.holdings`.
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
"""The compute of one card that is counted, however far it is over-committed (`packing`)."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_DEFAULT_CONFIG = DeviceConfig()
MIB = 1 << 20


class Sense(Enum):
    """What a resource counts, whatever it is called."""

    CARDS = "cards"
    MEMORY = "memory of each card"
    MEMORY_PCT = "percent of each card's memory"
    COMPUTE_PCT = "percent of each card's compute"


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
    config: DeviceConfig = _DEFAULT_CONFIG


def without_count(
    asked: str, count: str, *, is_zero: bool, least: int = 1, word: str = "card"
) -> str:
    """What is wrong with amounts of cards where no cards are asked for: to kubelet a count of 0 is
    the same as none. `asked` are the amounts, `count` the resource that is missing.
    """
    how = f"given, but {count} is 0" if is_zero else f"given without {count}"
    return (
        f"is {how}: kubelet would start the container without a {word}; write {count}: "
        f"{max(least, 1)}, or leave {asked} out"
    )


_CARD_BYTES_MAX = 1 << 40
"""More than any card has: an amount beyond it was meant in another unit."""


def in_other_unit(amount: int, unit_bytes: int = MIB) -> int:
    """What was meant by an amount of a card's memory that no card has; 0 if it may be meant as it
    is. Bytes come first, for that is what Kubernetes' suffixes make of a number.
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
    """What an amount of a resource that is memory is counted in, and what was probably meant;
    empty if it may be meant as it is."""
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
    """What ConfigMaps say of this node's devices (MindCluster), by ConfigMap key."""


class Switch(NamedTuple):
    """An argument of plugin `deviceshare` that switches a family on, or a part of it."""

    argument: str
    cards: str = ""
    """Whose cards these are. Of several switches for the same cards one may be on: Volcano keeps
    books of its own for each."""
    resource: str = ""
    """What it serves, where a family has several switches."""


class Record(ABC):
    """The annotations by which alone a device plugin goes: it serves the pod whose work list names
    as many devices as kubelet asks for, whatever became of that pod."""

    work_list: str
    """The annotation with what is left to serve; no comma in it: nothing."""
    phase: str
    """The annotation in which the plugin says how it ended."""

    @abstractmethod
    def phase_of(self, annotations: Mapping[str, str], phase: str) -> str:
        """How far the plugin is with a pod, whose annotation says `phase`."""

    @abstractmethod
    def standing(self, pod: "PodSource") -> Standing | None:
        """What the plugin would serve by a pod's annotations, whoever wrote them."""

    @abstractmethod
    def corrected(self, holdings: tuple[Holding, ...]) -> dict[str, str]:
        """The annotation that tells others which devices a pod holds."""


class BrokenInfo(Exception):
    """Raised for a ConfigMap that cannot be taken apart; says what is wrong with it."""


class InfoPlace(NamedTuple):
    """Which ConfigMaps to list and watch: of one namespace, with one label."""

    namespace: str
    label: tuple[str, str]


class DeviceInfo(ABC):
    """What ConfigMaps say of nodes' devices, where the nodes themselves do not say all."""

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
        """What one ConfigMap says of each node: by node its key (``<namespace>/<name>/<key>``) and
        its text; nothing if it does not tell of devices. Raises BrokenInfo."""


class Family(ABC):
    """One kind of device. Stateless; everything it needs is in the arguments.

    What is abstract here every family has to say. The rest has a default, which is that of a
    family whose cards are GPUs, shared by memory and percent of compute.
    """

    name: str
    order: str | None = None
    """In which order a request tries the cards, one of `_ORDERS`; None: as the policy says."""
    each_once = False
    """Whether a pod's containers never share a card."""

    # Configuration

    switches: tuple[Switch, ...]
    """What switches it on: at least one."""
    modes: tuple[str, ...] = ()
    """The modes in which its nodes share cards, where there are several."""
    mode_key = ""
    """The annotation with which a pod names one of them."""

    @abstractmethod
    def resources(self, config: DeviceConfig) -> frozenset[str]:
        """Resource names that belong to this family, with which pods ask for its devices."""

    def senses(self, config: DeviceConfig) -> Mapping[Sense, str]:
        """Those of them with which pods ask for NVIDIA's cards, by what they count."""
        return {}

    def unadvertised(self, config: DeviceConfig) -> frozenset[str]:
        """Those of them that no node lists, so that they are not counted as plain resources."""
        return frozenset()

    def configured(self, config: DeviceConfig) -> tuple[str, ...]:
        """What a configuration says of such devices, in a few words."""
        return ()

    def switches_on(self, policy: Policy) -> tuple[Switch, ...]:
        """Its switches that are on under a policy, as far as the policy tells."""
        return self.switches if self.name in policy.families else ()

    def switch_for(self, wanted: DeviceRequest) -> Switch:
        """The one that would let a request be served."""
        return self.switches[0]

    def policy_fields(self, on: frozenset[str]) -> Mapping[str, object]:
        """What more of the policy follows from the arguments that are on."""
        return {}

    def read_by(self, policy: Policy) -> object:
        """All of a policy on which this family's part of a pod's fact can depend."""
        return None

    # Nodes

    info: DeviceInfo | None = None
    """ConfigMaps that say more of a node's devices than the node; None if there are none."""
    own_problems: frozenset[str] = frozenset()
    """Codes of problems of a node that nobody minds who does not use the family."""
    absent_problems: frozenset[str] = frozenset()
    """Codes of problems of a node for which it offers none of these devices."""

    @abstractmethod
    def inventory(self, node: NodeSource) -> tuple[Inventory | None, tuple[Problem, ...]]:
        """The node's cards of this family, None if it has none, and what is wrong with them."""

    def accepts_model(self, model: str) -> bool:
        """Whether cards of this model belong to the family at all."""
        return True

    counted_again: tuple[str, ...] = ()
    """Resources with which another device plugin counts the same cards, to be given whole."""

    # Pods

    asked_annotations: frozenset[str] = frozenset()
    """Annotations that tell what a pod asks for. Others differ from pod to pod of a kind."""
    asked_labels: frozenset[str] = frozenset()
    """Likewise labels."""
    one_container = False
    """Whether most device plugins serve one container of a pod (`Policy.multi_container`)."""
    several_served = ""
    """What to do where the plugins do serve several."""
    keeps_apart = False
    """Whether exclusivity rules hold on its shared cards, and groups can be spread over cards."""

    @abstractmethod
    def requests(self, pod: PodSource) -> tuple[tuple[DeviceRequest, ...], Problem | None]:
        """What the pod asks of this family; a problem makes the whole pod unschedulable."""

    def unserved(self, wanted: Sequence[DeviceRequest], policy: Policy) -> Problem | None:
        """Why a policy that serves the family does not serve this."""
        return None

    smaller: frozenset[str] = frozenset()
    """The fields of a request of which its user may write a smaller amount."""

    def amounts(self, wanted: DeviceRequest, config: DeviceConfig) -> Mapping[str, int]:
        """What a container that asks so takes of the resources that nodes list."""
        return {}

    def selection(self, pod: PodSource, *, is_bound: bool) -> tuple[Selection, tuple[Problem, ...]]:
        """The cards that a pod accepts, by its annotations, and what in them cannot be meant."""
        return Selection(), ()

    def count_resource(self, config: DeviceConfig) -> str:
        """The resource with which to ask for cards that are only counted elsewhere (NVIDIA's)."""
        return ""

    @abstractmethod
    def holdings(self, pod: PodSource) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
        """What a bound pod holds according to its annotations, whoever bound it."""

    @abstractmethod
    def assignments(self, config: DeviceConfig) -> frozenset[str]:
        """All annotations in which may stand what a pod holds."""

    @abstractmethod
    def assignment_of(self, request: DeviceRequest) -> str:
        """The one of them in which stands what a request got."""

    # Binding, and the device plugin

    phase_key = ""
    """The annotation in which the plugin says how far it is with a pod."""
    record: Record | None = None
    """What the plugin goes by, if that is annotations alone."""
    swappable = True
    """Whether pods with the very same assignment may be served in any order."""

    @abstractmethod
    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        """What travels in the Binding of a pod that got these holdings."""

    def has_served(self, annotations: Mapping[str, str]) -> bool:
        """Whether a pod's annotations show that the plugin served it, beside the phase."""
        return False

    def question(self, holdings: tuple[Holding, ...]) -> tuple[str, int]:
        """All that the plugin is told of a pod by kubelet: a unit, and how many."""
        return "devices", len(holdings)

    def lock_key(self, held: Holding) -> str:
        """The annotation of the node that is its lock for old plugins; empty: there is none."""
        return ""

    # Counting and showing

    scoring: str
    """What of its chosen cards the policies by use score, one of `_SCORINGS`."""
    word = "GPU"
    """What a card is called, with its index."""
    compute_whole = 100
    """The compute of a whole card where pods ask for percent; 0 where they ask for AI cores."""
    has_memory = True
    """Whether its nodes tell the memory of their cards."""
    gauges = ""
    """What the names of Volcano's metrics of its cards begin with; empty if it has none."""
    has_card_quota = False
    """Whether shares count as parts of cards in the quotas of plugin `capacity-card`."""

    def memory_unit_bytes(self, config: DeviceConfig) -> int:
        """The unit in which its cards' memory is registered."""
        return MIB

    def memory_resources(self, config: DeviceConfig) -> Mapping[str, int]:
        """The resources that are amounts of its cards' memory, and what one of each is in bytes."""
        return {}

    def share_resources(self, config: DeviceConfig) -> frozenset[str]:
        """The resources with which pods ask for shares that have no card quota of their own."""
        return frozenset()

    def quota_names(self, config: DeviceConfig) -> tuple[str, str] | None:
        """The resources (memory, compute) of which quotas count what a pod really takes of all its
        cards; None: they count what it asks for."""
        return None


_ORDERS = ("fullest", "emptiest", "first", "last", "preferred")
"""Most used memory first; fewest holders first; lowest index first; highest index first; as the
device policy sorts them."""

SCORE_EACH, SCORE_FIRST, SCORE_COMPUTE = _SCORINGS = ("each", "first", "compute")
"""Every card by its memory in use after the charge; of each container the first card alone, by its
memory in use before; every card by its compute in use after, if it gives what was asked for and not
only what will do."""
