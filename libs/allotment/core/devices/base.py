"""What a device family is, and the threshold rules that all families share.

A family says how its cards are registered, how pods ask for them, what others' annotations mean and
what to write on a pod. Which card takes a request is one rule for all: `free >= need` in slots,
memory and cores, with the needs of `Need`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from allotment.core import reasons
from allotment.core.ledger import Card, Ledger
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    Inventory,
    Problem,
    Selection,
)

CORES_WHOLE_PCT = 100


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


class NodeSource(NamedTuple):
    """The parts of a Kubernetes node from which a family reads its inventory."""

    annotations: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


class Family(Protocol):
    """One kind of device. Stateless; everything it needs is in the arguments."""

    name: str
    resources: frozenset[str]
    """Resource names that belong to this family, with which pods ask for its devices."""
    unadvertised: frozenset[str]
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

    def annotations(
        self, node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
    ) -> dict[str, str]:
        """What travels in the Binding of a pod that got these holdings."""


ORDERS = ("fullest", "emptiest", "first", "last", "preferred")
"""Most used memory first; fewest holders first; lowest index first; highest index first; as the
device policy sorts them."""


class Free:
    """A card's free amounts while one pod is being placed: the books are not touched."""

    __slots__ = ("card", "cores_pct", "memory_mib", "slots")

    def __init__(self, card: Card) -> None:
        self.card = card
        self.slots = card.free_slots
        self.memory_mib = card.free_memory_mib
        self.cores_pct = card.free_cores_pct

    def take(self, memory_mib: int, cores_pct: int) -> None:
        self.slots -= 1
        self.memory_mib -= memory_mib
        self.cores_pct -= cores_pct

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


def need_memory_mib(request: DeviceRequest, capacity_mib: int) -> int:
    """The memory one card must have free: the amount, or the percentage of this card, floored."""
    if request.memory_pct:
        return capacity_mib * request.memory_pct // 100
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
    reasons.SHARE_LIMIT_REACHED,
    reasons.EXCLUSIVE_CONFLICT,
    reasons.INSUFFICIENT_GPU_MEMORY,
    reasons.INSUFFICIENT_GPU_COMPUTE,
)
"""The order of a card's checks. A node is charged to the reason of the card that got furthest."""
_PROGRESS = {code: step for step, code in enumerate(REFUSAL_ORDER)}


def card_refusal(
    free: Free, request: DeviceRequest, selection: Selection, family: Family
) -> str | None:
    """Why this card does not take one unit of the request; None if it does."""
    fact = free.card.fact
    if not _selected(fact.id, fact.index, selection):
        return reasons.GPU_NOT_SELECTED
    if not (family.accepts_model(fact.model) and model_wanted(fact.model, selection)):
        return reasons.GPU_MODEL_MISMATCH
    if not fact.healthy:
        return reasons.GPU_UNHEALTHY
    if free.slots < 1:
        return reasons.SHARE_LIMIT_REACHED
    if request.cores_pct == CORES_WHOLE_PCT and not free.idle:
        return reasons.EXCLUSIVE_CONFLICT
    if free.memory_mib < need_memory_mib(request, fact.memory_mib):
        return reasons.INSUFFICIENT_GPU_MEMORY
    if free.cores_pct < max(request.cores_pct, 1):
        return reasons.INSUFFICIENT_GPU_COMPUTE
    return None


class Pick(NamedTuple):
    """One card chosen for a pod, with its state around the choice."""

    card: Card
    was_idle: bool
    used_after_mib: int
    free_after_mib: int


class Chosen(NamedTuple):
    """Cards for one pod on one node, in the order they were taken, each with its free amounts
    before and after."""

    holdings: tuple[Holding, ...]
    picks: tuple[Pick, ...]
    """One per holding."""


def choose_cards(
    ledger: Ledger,
    requests: Sequence[DeviceRequest],
    selection: Selection,
    family: Family,
    sort: CardOrder,
    only: frozenset[str] | None = None,
) -> Chosen | str:
    """Cards for all containers that ask one family, or the reason code why this node has none.

    `only` narrows the choice to some cards: the question "are exactly these still right?".

    Containers are served in order, each against what the earlier ones of the same pod left; the
    card order is made anew for each container. Source: volcano `vgpu/utils.go` (deviceshare 4.2).
    """
    if selection.mode is not None and selection.mode != ledger.mode:
        return reasons.GPU_MODE_MISMATCH
    cards = [Free(card) for card in ledger.cards if only is None or card.fact.id in only]
    holdings: list[Holding] = []
    picks: list[Pick] = []
    for wanted in requests:
        if wanted.count > len(cards):
            return reasons.NOT_ENOUGH_GPUS_ON_NODE
        missing, furthest = wanted.count, -1
        for free in sort(cards, wanted):
            code = card_refusal(free, wanted, selection, family)
            if code is not None:
                furthest = max(furthest, _PROGRESS[code])
                continue
            memory_mib = need_memory_mib(wanted, free.card.fact.memory_mib)
            idle = free.idle
            free.take(memory_mib, wanted.cores_pct)
            holdings.append(
                Holding(
                    family.name, wanted.container, free.card.fact.id, memory_mib, wanted.cores_pct
                )
            )
            picks.append(Pick(free.card, idle, free.used_memory_mib, free.memory_mib))
            missing -= 1
            if not missing:
                break
        if missing:
            return REFUSAL_ORDER[furthest]
    return Chosen(tuple(holdings), tuple(picks))


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
