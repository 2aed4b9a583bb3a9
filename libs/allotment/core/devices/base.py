"""What a device family is, and the threshold rules that all families share.

A family says how its cards are registered, how pods ask for them, what others' annotations mean and
what to write on a pod. Which card takes a request is one rule for all: `free >= need` in slots,
memory and cores, with the needs of `Need`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from allotment.core import reasons
from allotment.core.cuts import Piece, Table
from allotment.core.cuts.mig import largest_mib
from allotment.core.ledger import Card, Ledger
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    Inventory,
    PodRequest,
    Policy,
    Problem,
    Selection,
)
from allotment_proto.volcano import keys

CORES_WHOLE_PCT = 100
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


class Free:
    """A card's free amounts while one pod is being placed: the books are not touched."""

    __slots__ = ("card", "cores_pct", "held", "memory_mib", "slots", "state")

    def __init__(self, card: Card) -> None:
        self.card = card
        self.slots = card.free_slots
        self.memory_mib = card.free_memory_mib
        self.cores_pct = card.free_cores_pct
        self.state = card.state
        self.held: list[str] | None = None
        """The pieces that are held once something was taken; None: those of the card."""

    def piece(self, wanted: DeviceRequest, order: str) -> Piece | None:
        """What the card hands out; of a card that is not cut it is the amounts asked for."""
        card = self.card
        if card.cutter is None:
            memory_mib = need_memory_mib(wanted, card.fact.memory_mib)
            return Piece((), memory_mib, wanted.cores_pct, self.state)
        return card.cutter.piece(card.fact, card.table, self.state, wanted, order)

    def charge(self, piece: Piece) -> None:
        """Take a piece's amounts."""
        self.slots -= 1
        self.memory_mib -= piece.memory_mib
        self.cores_pct -= piece.cores_pct
        self.state = piece.after

    def copy(self) -> "Free":
        twin = Free(self.card)
        twin.slots, twin.memory_mib, twin.cores_pct = self.slots, self.memory_mib, self.cores_pct
        twin.state, twin.held = self.state, None if self.held is None else list(self.held)
        return twin

    def take(self, wanted: DeviceRequest, piece: Piece) -> str:
        """Charge a piece that `piece` offered; gives the `Holding.instance` it is known by."""
        self.charge(piece)
        card = self.card
        if card.cutter is None:
            return share_name(wanted)
        if self.held is None:
            self.held = card.held
        name = card.cutter.name(card.table, piece, self.held)
        self.held.append(name)
        return name

    @property
    def idle(self) -> bool:
        return self.slots == self.card.fact.slots

    @property
    def used_memory_mib(self) -> int:
        return self.card.fact.memory_mib - self.memory_mib

    @property
    def used_slots(self) -> int:
        return self.card.fact.slots - self.slots


CardOrder = Callable[[Sequence[Free], DeviceRequest], Sequence[Free]]
"""Sorts a node's cards (given by index) for one device request, the first to try in front."""


def share_name(wanted: DeviceRequest) -> str:
    """The `Holding.instance` of a share of a card that is not cut."""
    if not wanted.chip:
        return ""
    return f"{wanted.chip}/{wanted.templates[0] if wanted.templates else ''}"


def need_memory_mib(request: DeviceRequest, capacity_mib: int, table: Table = ()) -> int:
    """The memory one card must have free: the amount, or the percentage of this card, floored.

    Of a card that is cut by geometries its largest instance is as good as all of it.
    """
    if request.memory_pct:
        share_mib = capacity_mib * request.memory_pct // 100
        return min(share_mib, largest_mib(table)) if table else share_mib
    return request.memory_mib


def in_order(cards: "Sequence[Free]", word: str) -> "list[Free]":
    """The cards (given by index) in the order that `word` names; equals stay by index."""
    match word:
        case "fullest":
            return sorted(cards, key=lambda free: -free.used_memory_mib)
        case "emptiest":
            return sorted(cards, key=lambda free: free.used_slots)
        case "last":
            return list(reversed(cards))
        case _:
            return list(cards)


REFUSAL_ORDER = (
    reasons.GPU_NOT_SELECTED,
    reasons.GPU_MODEL_MISMATCH,
    reasons.GPU_UNHEALTHY,
    reasons.CARD_KEPT_APART,
    reasons.SHARE_LIMIT_REACHED,
    reasons.EXCLUSIVE_CONFLICT,
    reasons.INSUFFICIENT_GPU_MEMORY,
    reasons.NO_FITTING_INSTANCE,
    reasons.INSUFFICIENT_GPU_COMPUTE,
)
"""The order of a card's checks. A node is charged to the reason of the card that got furthest."""
_PROGRESS = {code: step for step, code in enumerate(REFUSAL_ORDER)}


class Rules(NamedTuple):
    """What beside the amounts decides whether a card takes a pod."""

    selection: Selection = Selection()
    apart: tuple[str, ...] = ()
    """Tags of holders with which the pod shares no card."""
    mig_order: str = Policy().mig_order
    by_amount: bool = False
    """Whether a cut card counts as if it were shared by amounts: a rough view, for estimates."""
    node: str = ""
    """Whose cards are asked: cards are shunned by node, because an id may occur on several."""


def rules_of(request: PodRequest, policy: Policy, node: str) -> Rules:
    """The rules for a pod under a policy, for the cards of one node."""
    return Rules(request.selection, request.apart, policy.mig_order, node=node)


def card_refusal(free: Free, request: DeviceRequest, rules: Rules, family: Family) -> str | None:
    """Why this card does not take one unit of the request; None if it does."""
    card, fact, selection = free.card, free.card.fact, rules.selection
    if not _selected(fact.id, fact.index, selection):
        return reasons.GPU_NOT_SELECTED
    if selection.shunned and (rules.node, family.name, fact.id) in selection.shunned:
        return reasons.GPU_NOT_SELECTED
    if not (
        family.accepts_model(fact.model)
        and (not request.chip or request.chip == fact.model)
        and model_wanted(fact.model, selection)
    ):
        return reasons.GPU_MODEL_MISMATCH
    if not fact.healthy:
        return reasons.GPU_UNHEALTHY
    if card.tags and any(tag in card.tags for tag in rules.apart):
        return reasons.CARD_KEPT_APART
    if free.slots < 1:
        return reasons.SHARE_LIMIT_REACHED
    if request.cores_pct == CORES_WHOLE_PCT and not free.idle:
        return reasons.EXCLUSIVE_CONFLICT
    if free.memory_mib < need_memory_mib(request, fact.memory_mib, card.table):
        return reasons.INSUFFICIENT_GPU_MEMORY
    if card.cutter is not None and not rules.by_amount:
        piece = free.piece(request, rules.mig_order)
        if piece is None or free.memory_mib < piece.memory_mib:
            return reasons.NO_FITTING_INSTANCE
    if free.cores_pct < need_cores_pct(request, fact.cores_pct):
        return reasons.INSUFFICIENT_GPU_COMPUTE
    return None


def need_cores_pct(request: DeviceRequest, capacity_pct: int) -> int:
    """The compute one card must have free. Who asks for none still needs a card that is not used
    up, unless the card has no compute to count.
    """
    return max(request.cores_pct, 1 if capacity_pct else 0)


class Pick(NamedTuple):
    """One card chosen for a pod, with its state around the choice."""

    card: Card
    was_idle: bool
    used_after_mib: int
    free_after_mib: int
    charged_mib: int = 0
    free_after_pct: int = 0
    is_second_best: bool = False
    """It will do, but something better was asked for."""


class Chosen(NamedTuple):
    """Cards for one pod on one node, in the order they were taken, each with its free amounts
    before and after."""

    holdings: tuple[Holding, ...]
    picks: tuple[Pick, ...]
    """One per holding."""


def choose_cards(
    ledger: Ledger,
    requests: Sequence[DeviceRequest],
    rules: Rules,
    family: Family,
    sort: CardOrder,
    only: frozenset[str] | None = None,
) -> Chosen | str:
    """Cards for all containers that ask one family, or the reason code why this node has none.

    `only` narrows the choice to some cards: the question "are exactly these still right?".

    Containers are served in order, each against what the earlier ones of the same pod left; the
    card order is made anew for each container. Source: volcano `vgpu/utils.go` (deviceshare 4.2).
    """
    if ledger.blocked is not None:
        return ledger.blocked
    if not mode_fits(rules.selection, ledger.mode):
        return reasons.GPU_MODE_MISMATCH
    cards = [Free(card) for card in ledger.cards if only is None or card.fact.id in only]
    holdings: list[Holding] = []
    picks: list[Pick] = []
    taken: list[Free] = []
    for wanted in requests:
        if wanted.count > len(cards) - len(taken):
            return reasons.NOT_ENOUGH_GPUS_ON_NODE
        good, furthest = [], -1
        for free in sort(cards, wanted):
            if free in taken:
                continue
            code = card_refusal(free, wanted, rules, family)
            if code is None:
                good.append(free)
            else:
                furthest = max(furthest, _PROGRESS[code])
        if len(good) < wanted.count:
            return REFUSAL_ORDER[furthest]
        if is_wired(wanted):
            chips = [card for card in ledger.cards if card.fact.model == wanted.chip]
            good = wired_together(chips, good)
        good = _gladly(good, wanted, rules)
        chosen = good[: wanted.count]
        for free in chosen:
            piece = free.piece(wanted, rules.mig_order)
            assert piece is not None
            idle, fact = free.idle, free.card.fact
            need_mib = need_memory_mib(wanted, fact.memory_mib, free.card.table)
            instance = free.take(wanted, piece)
            holdings.append(
                Holding(family.name, wanted.container, fact.id, need_mib, piece.cores_pct, instance)
            )
            picks.append(
                Pick(
                    free.card,
                    idle,
                    free.used_memory_mib,
                    free.memory_mib,
                    piece.memory_mib,
                    free.cores_pct,
                    piece.is_second_best,
                )
            )
        if family.each_once:
            taken += chosen
    return Chosen(tuple(holdings), tuple(picks))


def _gladly(good: list[Free], wanted: DeviceRequest, rules: Rules) -> list[Free]:
    """The good cards as their pieces are ranked (`Piece.rank`); equals stay as they are."""
    if all(free.card.cutter is None for free in good):
        return good

    def rank(free: Free) -> int:
        piece = free.piece(wanted, rules.mig_order)
        return -piece.rank if piece is not None else 0

    return sorted(good, key=rank)


def is_wired(wanted: DeviceRequest) -> bool:
    """Whether the cards of a request should be of one network, where cards tell theirs.

    Source: volcano `ascend/hami` (deviceshare 4.9): chips whose type begins with Ascend910.
    """
    return wanted.chip.startswith("Ascend910")


def wired_together(cards: Sequence[Card], good: Sequence[Free]) -> list[Free]:
    """The good ones of a node's cards of one kind, those of the network with most of them in front;
    otherwise as given.

    Of equals the lower network comes first. Nothing changes if a card's network is unknown.
    """
    if any(card.fact.network < 0 for card in cards):
        return list(good)
    sizes = Counter(free.card.fact.network for free in good)
    return sorted(good, key=lambda free: (-sizes[free.card.fact.network], free.card.fact.network))


def mode_fits(selection: Selection, mode: str) -> bool:
    """Whether a node's sharing mode is one that the pod accepts.

    A pod that names none goes where its memory is kept from others: not to `mps` nodes, where
    nothing holds a process to its share of memory.
    """
    if selection.mode is None:
        return mode != keys.MODE_MPS
    return selection.mode == mode


def _selected(card_id: str, index: int, selection: Selection) -> bool:
    if selection.nouse_ids is not None and card_id in selection.nouse_ids:
        return False
    if selection.use_ids is not None and card_id not in selection.use_ids:
        return False
    return selection.indexes is None or index in selection.indexes


def model_wanted(model: str, selection: Selection) -> bool:
    """Whether the pod's lists of card types admit this model (case does not matter)."""
    if selection.use_types is None and selection.nouse_types is None:
        return True
    lowered = model.lower()
    if selection.use_types is not None:
        return any(word.lower() in lowered for word in selection.use_types)
    return not any(word.lower() in lowered for word in selection.nouse_types or ())
