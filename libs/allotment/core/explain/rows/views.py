"""Nodes and cards of a state as plain facts: what `get`, `ledger` and the pages show.

The structs are the JSON (camelCase, integers with their unit in the name); text is made from them,
so both forms have the same content.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from allotment.core.explain.rows.acknowledgement import forged
from allotment.core.ledger.claims import unreadable
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import Allocation, ClusterState, Health, Node
from allotment.core.ledger.partitions import holding_rules
from allotment.core.ledger.partitions.mig import CONTRADICTORY
from allotment.core.placement.devices import FAMILIES, memory_units
from allotment.core.placement.devices.base import Family
from allotment.core.placement.rules.card_names import PRODUCT
from allotment.core.reasons import (
    CARD_FAILING,
    CARD_UNHEALTHY,
    CARDS_QUARANTINED,
    NODE_FAILING,
    NODE_GONE,
    NODE_NOT_READY,
)
from allotment.core.units import resource_text, rfc3339
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import NodeObserved
from allotment_proto.facts import Amounts, Holding, Problem

MIB = 1 << 20

_FAMILY_RESOURCES = frozenset[str]().union(
    *(family.resources(DeviceConfig()) for family in FAMILIES.values())
)
GONE = "Gone"
_HOLDERS_NAMED = 5
_STRIKES_NAMED = 3
PERHAPS = "perhaps"
PERCENT = frozenset((0, 100))
"""What a card's compute amounts to if it is counted in percent; else it is AI cores."""


class HolderView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One container's part of a card. `seq` is the decision's, 0 if others bound the pod.

    `phase` is ``reserved``, ``bound``, or ``perhaps``: the pod's cards on the node are unreadable.
    """

    namespace: str
    name: str
    uid: str
    container: int
    memory_bytes: int
    compute_percent: int
    phase: str
    seq: int
    instance: str = ""
    """Which piece of the card, if it is partitioned: a MIG instance, a template."""


class CardView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One card and its holders. Free amounts below zero: the card is oversold."""

    node: str
    device: str
    id: str
    family: str
    model: str
    mode: str
    healthy: bool
    oversold: bool
    slots: int
    free_slots: int
    memory_bytes: int
    free_memory_bytes: int
    compute_percent: int
    free_compute_percent: int
    holders: tuple[HolderView, ...]


class UnlistedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card that pods hold and their node does not list: it is gone, or its register is broken.

    The holders keep their parts, which count again as soon as the node lists the card again.
    """

    node: str
    id: str
    family: str
    holders: tuple[HolderView, ...]


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod's part of a counted resource."""

    namespace: str
    name: str
    uid: str
    count: int


class CountedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource that is only counted (`nvidia.com/gpu`), and which pods hold how much of it."""

    node: str
    resource: str
    total: int
    free: int
    holders: tuple[Share, ...]


class NodeProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`seq` is the record to look at first, 0 if there is none; `card` is the id of the card that
    the problem is about, empty if it is about the node.
    """

    code: str
    place: str
    message: str
    seq: int = 0
    card: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node: what it has, what is left, and what is wrong with it."""

    name: str
    status: str
    models: tuple[str, ...]
    cards: int
    cards_idle: int
    memory_bytes: int
    free_memory_bytes: int
    extended: dict[str, int]
    free_extended: dict[str, int]
    cpu_milli: int
    free_cpu_milli: int
    host_memory_bytes: int
    free_host_memory_bytes: int
    pods: int
    problems: tuple[NodeProblem, ...]


def plain(extended: Amounts) -> dict[str, int]:
    """The resources that are only counted, without those of device families, which are shown as
    devices.
    """
    return {name: amount for name, amount in extended if name not in _FAMILY_RESOURCES}


def model_text(model: str) -> str:
    """A card's model on screen: some plugins put the vendor before a name that begins with it."""
    vendor, dash, name = model.partition("-")
    return name if dash and name.startswith(vendor) else model


def device_name(node: Node | None, holding: Holding) -> str:
    """``GPU-3``: the card's index on its node; its id when the node does not list it."""
    ledger = node.ledgers.get(holding.family) if node is not None else None
    card = ledger.by_id.get(holding.card) if ledger is not None else None
    return holding.card if card is None else card_name(card)


def card_name(card: Card) -> str:
    """``GPU-3``, or ``NPU-3`` for a card that is none."""
    return f"{card_word(card.family)}-{card.fact.index}"


def card_word(family: str) -> str:
    """What a card of a family is called; those of a family that is not known count as GPUs."""
    return FAMILIES[family].word if family in FAMILIES else Family.word


def asked_whole(family: str) -> int:
    """100 if pods ask for compute in percent of such a card, 0 if for its AI cores."""
    return FAMILIES[family].compute_whole if family in FAMILIES else Family.compute_whole


def piece_name(holding: Holding) -> str:
    """The piece of a card that a holding is, as its users know it: a MIG instance, a template."""
    return holding_rules(holding.family).shown(holding.instance)


def whole_of(card: Card) -> int:
    """100 if the card's compute is percent, else its AI cores."""
    return 100 if card.fact.cores_pct in PERCENT else card.fact.cores_pct


def compute_whole(node: Node | None, holding: Holding) -> int:
    """The compute of the whole card: 100 where it is percent, else its AI cores."""
    ledger = node.ledgers.get(holding.family) if node is not None else None
    card = ledger.by_id.get(holding.card) if ledger is not None else None
    return 100 if card is None else whole_of(card)


def cards_of(state: ClusterState, node: Node) -> list[CardView]:
    """All cards of a node by family and index."""
    return [
        _card_view(state, node, family, card)
        for family in sorted(node.ledgers)
        for card in node.ledgers[family].cards
    ]


def _card_view(state: ClusterState, node: Node, family: str, card: Card) -> CardView:
    fact = card.fact
    return CardView(
        node=node.name,
        device=card_name(card),
        id=fact.id,
        family=family,
        model=fact.model,
        mode=fact.mode,
        healthy=fact.healthy,
        oversold=card.oversold,
        slots=fact.slots,
        free_slots=card.free_slots,
        memory_bytes=fact.memory_mib * MIB,
        free_memory_bytes=card.free_memory_mib * MIB,
        compute_percent=fact.cores_pct,
        free_compute_percent=card.free_cores_pct,
        holders=holders_of(state, card),
    )


def holders_of(state: ClusterState, card: Card) -> tuple[HolderView, ...]:
    """The holders of parts of a card, the largest part first."""
    return _largest_first(
        _holder_view(state, key[0], key[1], holding, perhaps=key in card.perhaps)
        for key, holding in card.holders.items()
    )


def unlisted_of(state: ClusterState, node: Node) -> list[UnlistedView]:
    """The cards of a node that are held although it does not list them, by family and id."""
    found: dict[tuple[str, str], list[HolderView]] = {}
    for held in node.allocations.values():
        for holding in held.holdings:
            ledger = node.ledgers.get(holding.family)
            if ledger is None or holding.card not in ledger.by_id:
                view = _holder_view(state, held.uid, holding.container, holding)
                found.setdefault((holding.family, holding.card), []).append(view)
    return [
        UnlistedView(node=node.name, id=card, family=family, holders=_largest_first(holders))
        for (family, card), holders in sorted(found.items())
    ]


def _holder_view(
    state: ClusterState, uid: str, container: int, holding: Holding, *, perhaps: bool = False
) -> HolderView:
    pod = state.pods[uid]
    held = pod.allocation
    return HolderView(
        namespace=pod.fact.namespace,
        name=pod.fact.name,
        uid=uid,
        container=container,
        memory_bytes=holding.memory_mib * MIB,
        compute_percent=holding.cores_pct,
        phase=PERHAPS if perhaps else held.phase if held is not None else "",
        seq=held.seq if held is not None else 0,
        instance=piece_name(holding),
    )


def _largest_first(views: Iterable[HolderView]) -> tuple[HolderView, ...]:
    return tuple(
        sorted(
            views, key=lambda h: (-h.memory_bytes, -h.compute_percent, h.namespace, h.name, h.uid)
        )
    )


def counted_of(state: ClusterState, node: Node) -> list[CountedView]:
    """The counted GPU resources of a node, and others that pods hold."""
    views = []
    for name, total in plain(node.fact.extended).items() if node.fact else ():
        shares = []
        for held in node.allocations.values():
            amount = dict(held.extended).get(name, 0)
            if amount:
                fact = state.pods[held.uid].fact
                shares.append(
                    Share(namespace=fact.namespace, name=fact.name, uid=held.uid, count=amount)
                )
        if shares or name.endswith("/gpu"):
            shares.sort(key=lambda s: (-s.count, s.namespace, s.name, s.uid))
            views.append(
                CountedView(
                    node=node.name,
                    resource=name,
                    total=total,
                    free=node.extended_free[name],
                    holders=tuple(shares),
                )
            )
    return views


class CardsSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All cards of one model, mode and zone. A full card takes nothing more: a slot, memory or
    compute of it is used up. Cards that are only counted (`nvidia.com/gpu`) have no memory here.
    """

    model: str
    mode: str
    zone: str
    nodes: int
    cards: int
    idle: int
    partly: int
    full: int
    unhealthy: int
    memory_bytes: int
    free_memory_bytes: int
    largest_free_bytes: int


ZONE = "topology.kubernetes.io/zone"
_COUNTED = "counted"
"""The mode of cards that are only counted."""


def summaries(state: ClusterState, nodes: Iterable[Node], *, by_zone: bool) -> list[CardsSummary]:
    """The cards of these nodes by model and mode, and perhaps by their nodes' zone."""
    found: dict[tuple[str, str, str], _Counts] = {}
    for node in nodes:
        zone = node.labels.get(ZONE, "") if by_zone else ""
        for view in cards_of(state, node):
            key = view.model, view.mode, zone
            found.setdefault(key, _Counts()).card(view)
        for counted in counted_of(state, node):
            if counted.resource.endswith("/gpu"):
                key = _counted_model(node, counted.resource), _COUNTED, zone
                found.setdefault(key, _Counts()).counted(counted)
    return [
        CardsSummary(
            model=model,
            mode=mode,
            zone=zone,
            nodes=len(counts.nodes),
            cards=counts.cards,
            idle=counts.idle,
            partly=counts.cards - counts.idle - counts.full - counts.unhealthy,
            full=counts.full,
            unhealthy=counts.unhealthy,
            memory_bytes=counts.memory_bytes,
            free_memory_bytes=counts.free_bytes,
            largest_free_bytes=counts.largest_bytes,
        )
        for (model, mode, zone), counts in sorted(found.items())
    ]


class _Counts:
    """Sums over the cards of a summary."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.cards = self.idle = self.full = self.unhealthy = 0
        self.memory_bytes = self.free_bytes = self.largest_bytes = 0

    def card(self, view: CardView) -> None:
        self.nodes.add(view.node)
        self.cards += 1
        self.memory_bytes += view.memory_bytes
        if not view.healthy:
            self.unhealthy += 1
            return
        self.idle += is_idle(view)
        self.full += is_full(view)
        self.free_bytes += max(view.free_memory_bytes, 0)
        if not is_full(view):
            self.largest_bytes = max(self.largest_bytes, view.free_memory_bytes)

    def counted(self, view: CountedView) -> None:
        self.nodes.add(view.node)
        self.cards += view.total
        self.idle += max(view.free, 0)
        self.full += view.total - max(view.free, 0)


def is_idle(card: CardView) -> bool:
    """Whether the card is idle."""
    return card.slots == card.free_slots


def is_full(card: CardView) -> bool:
    """Whether it accepts no more pods, because a slot, memory or compute of it is used up."""
    return (
        card.free_slots <= 0
        or (card.memory_bytes > 0 and card.free_memory_bytes <= 0)
        or (card.compute_percent > 0 and card.free_compute_percent <= 0)
    )


def usable_compute(card: CardView) -> int:
    """The free compute that pods can use. A pod that takes a chip by its memory, or whole, books no
    AI cores, but leaves none to other pods.
    """
    is_percent = card.compute_percent in PERCENT
    return 0 if is_full(card) and not is_percent else card.free_compute_percent


def usable_cores(card: Card) -> int:
    """The same of a card in the books."""
    fact = card.fact
    is_used_up = (
        card.free_slots < 1
        or (fact.memory_mib > 0 and card.free_memory_mib < 1)
        or (fact.cores_pct > 0 and card.free_cores_pct < 1)
    )
    return 0 if is_used_up and fact.cores_pct not in PERCENT else card.free_cores_pct


def _counted_model(node: Node, resource: str) -> str:
    """What the node's label says of the model of cards that are only counted, or else their
    resource's name.
    """
    return node.labels.get(resource + PRODUCT) or resource


def node_views(state: ClusterState) -> list[NodeView]:
    return [node_view(state, node) for node in sorted(state.nodes.values(), key=lambda n: n.name)]


def node_view(state: ClusterState, node: Node) -> NodeView:
    fact = node.fact
    cards = [card for family in sorted(node.ledgers) for card in node.ledgers[family].cards]
    return NodeView(
        name=node.name,
        status=node_status(node),
        models=tuple(sorted({card.fact.model for card in cards})),
        cards=len(cards),
        cards_idle=sum(card.fact.healthy and card.used_slots == 0 for card in cards),
        memory_bytes=sum(card.fact.memory_mib for card in cards) * MIB,
        free_memory_bytes=sum(card.free_memory_mib for card in cards) * MIB,
        extended=plain(fact.extended) if fact else {},
        free_extended=plain(tuple(sorted(node.extended_free.items()))),
        cpu_milli=fact.cpu_milli if fact else 0,
        free_cpu_milli=node.cpu_milli_free,
        host_memory_bytes=fact.memory_bytes if fact else 0,
        free_host_memory_bytes=node.memory_bytes_free,
        pods=len(node.allocations),
        problems=(*node_problems(state, node), *_quarantine(state, node)),
    )


def node_status(node: Node) -> str:
    if node.fact is None:
        return GONE
    words = ["Ready" if node.fact.ready else "NotReady"]
    if node.fact.unschedulable:
        words.append("Cordoned")
    return ",".join(words)


def node_problems(state: ClusterState, node: Node) -> list[NodeProblem]:
    """What the watcher found wrong, what the books show (unhealthy and oversold cards), and what is
    held back because pods did not start there.
    """
    fact = node.fact
    if fact is None:
        return [
            NodeProblem(
                code=NODE_GONE,
                place=f"node {node.name}",
                message=f"the node is gone; pods that still hold parts: {len(node.allocations)}",
            )
        ]
    problems = [_problem(problem) for problem in fact.problems]
    problems += _held_back(state, node)
    problems += _overbooked(state, node, fact)
    for family in sorted(node.ledgers):
        if family not in FAMILIES:
            problems.append(
                NodeProblem(
                    code="UnknownFamily",
                    place=f"device family {family!r}",
                    message=f"is not one that this release knows ({', '.join(FAMILIES)}); its"
                    f" {len(node.ledgers[family].cards)} cards are left alone",
                )
            )
        for card in node.ledgers[family].cards:
            if not card.fact.healthy:
                problems.append(
                    NodeProblem(
                        code=CARD_UNHEALTHY,
                        place=card_name(card),
                        message=f"{unhealthy_text(card)}; {_holders_text(node, card)}",
                        card=card.fact.id,
                    )
                )
            if card.state == CONTRADICTORY and not card.perhaps:
                pieces = ", ".join(sorted(f"[{piece}]" for piece in card.held))
                problems.append(
                    NodeProblem(
                        code="InstancesContradict",
                        place=card_name(card),
                        message=(
                            f"its holders say {pieces}: not pieces of one geometry of its table, "
                            "so it takes nothing new until they are gone or the table knows them"
                        ),
                        card=card.fact.id,
                    )
                )
            if card.oversold:
                problems.append(
                    NodeProblem(
                        code="CardOversold",
                        place=card_name(card),
                        message=(
                            f"{-min(card.free_memory_mib, 0)} MiB, "
                            f"{-min(card.free_cores_pct, 0)}% compute and "
                            f"{-min(card.free_slots, 0)} slots more are held than it has"
                        ),
                        card=card.fact.id,
                    )
                )
    return problems


def _held_back(state: ClusterState, node: Node) -> Iterator[NodeProblem]:
    """The node, or those of its cards, that are held back, with the records that say why."""
    names = {
        (family, card.fact.id): card_name(card)
        for family, ledger in node.ledgers.items()
        for card in ledger.cards
    }
    for place in sorted(state.health):
        (name, family, card), health = place, state.health[place]
        if name == node.name and health.since:
            yield NodeProblem(
                code=CARD_FAILING if family else NODE_FAILING,
                place=names.get((family, card), card) if family else _failing_part(health),
                message=_health_text(state, place),
                seq=health.counted[-1].seq,
                card=card,
            )


def _failing_part(health: Health) -> str:
    """What of a node it may be: its device plugin turned pods away, or pods died on it."""
    has_died = any(strike.has_died for strike in health.counted)
    return "its devices" if has_died else "its device plugin"


def _health_text(state: ClusterState, place: tuple[str, str, str]) -> str:
    """``turned away 2 pods in a row (default/a at seq 8, default/b at seq 9): "…"; …``"""
    health = state.health[place]
    strikes = health.counted
    pods = [f"{strike.pod} at seq {strike.seq}" for strike in strikes[-_STRIKES_NAMED:]]
    more = "the last ones " * (len(strikes) > len(pods))
    count = f"{len(strikes)} pods in a row"
    if len(strikes) == 1:
        count = "a pod on retry" if health.times > 1 else "a pod"
    died = sum(strike.has_died for strike in strikes)
    what = "lost within seconds of their start" if died == len(strikes) else "turned away or lost"
    what = what if died else "turned away"
    what = "has not served" if any(strike.is_unserved for strike in strikes) else what
    said = f': "{strikes[-1].message}"' if strikes[-1].message else ""
    (only, *others) = sorted(health.namespaces)
    whom = "all pods that ask for devices" if others else f"such pods of namespace {only}"
    when = "until the next TimePassed record"
    if health.trial_seq:
        well = "has run for a while" if died else "starts"
        when = f"on trial since seq {health.trial_seq}: it takes one pod at a time until one {well}"
    elif health.until_ms:
        when = f"next attempt after {rfc3339(health.until_ms)}"
    times = f", for the {health.times}. time" if health.times > 1 else ""
    return (
        f"{what} {count} ({more}{', '.join(pods)}){said}; held back since seq {health.since}"
        f"{times} for {whom}; {when}"
    )


def _overbooked(state: ClusterState, node: Node, fact: NodeObserved) -> Iterator[NodeProblem]:
    """What the node's pods hold beyond what it offers now, by resource, with the pod that holds
    most.
    """
    units = memory_units(state.devices)
    held: dict[str, Counter[str]] = {}
    for each in node.allocations.values():
        pod = state.pods[each.uid].fact
        who = f"{pod.namespace}/{pod.name}"
        host = (("cpu", each.cpu_milli), ("memory", each.memory_bytes), ("pods", 1))
        for name, amount in (*host, *each.extended):
            held.setdefault(name, Counter())[who] += amount
    free, offered = dict(node.extended_free), dict(fact.extended)
    free |= {"cpu": node.cpu_milli_free, "memory": node.memory_bytes_free, "pods": node.pods_free}
    offered |= {"cpu": fact.cpu_milli, "memory": fact.memory_bytes, "pods": fact.pods}

    def text(name: str, amount: int) -> str:
        is_host = name in ("cpu", "memory", "pods")
        return resource_text(name, amount if is_host else amount * 1000, units.get(name, 0))

    for name in sorted(name for name, left in free.items() if left < 0):
        by_amount = sorted(held[name].items(), key=lambda item: (-item[1], item[0]))
        most = by_amount[:_HOLDERS_NAMED]
        more = f" and {len(held[name]) - len(most)} more" if len(held[name]) > len(most) else ""
        yield NodeProblem(
            code="NodeOversold",
            place=name,
            message=(
                f"{text(name, held[name].total())} in use, {text(name, offered[name])} allocatable;"
                f" in use by {', '.join(f'{who} ({text(name, n)})' for who, n in most)}{more}"
            ),
        )


def unhealthy_text(card: Card) -> str:
    """Which of the sources declares a card unhealthy."""
    if by := card.fact.unhealthy_by:
        return f"declared unhealthy by {by}"
    is_told = card.family not in FAMILIES or FAMILIES[card.family].has_memory
    why = "without memory" if is_told and not card.fact.memory_mib else "as unhealthy"
    return f"registered {why} by its device plugin"


def unhealthy_under(node: Node, held: Allocation) -> list[Card]:
    """The unhealthy cards that an allocation holds a part of."""
    found = (
        ledger.by_id.get(holding.card)
        for holding in held.holdings
        if (ledger := node.ledgers.get(holding.family)) is not None
    )
    return list({card.fact.id: card for card in found if card and not card.fact.healthy}.values())


def trouble_under(node: Node, held: Allocation) -> str:
    """The reason code of what is wrong under a placed pod: its node or a card; "" if nothing is."""
    if node.fact is None:
        return NODE_GONE
    if not node.fact.ready:
        return NODE_NOT_READY
    return CARD_UNHEALTHY if unhealthy_under(node, held) else ""


def _holders_text(node: Node, card: Card) -> str:
    """The holders of parts of a card: the first by name, and how many more."""
    facts = (node.allocations[uid].fact for uid in {uid for uid, _, _ in card.holders})
    names = sorted(f"{fact.namespace}/{fact.name}" for fact in facts if fact is not None)
    if not names:
        return "the card is idle"
    more = f" and {len(names) - _HOLDERS_NAMED} more" if len(names) > _HOLDERS_NAMED else ""
    return f"held by {', '.join(names[:_HOLDERS_NAMED])}{more}"


def _quarantine(state: ClusterState, node: Node) -> Iterator[NodeProblem]:
    """The pods that hold unknown cards of the node, or write records with which other pods are
    served, and what that costs.
    """
    for uid in sorted(node.forgers):
        fact, said = state.pods[uid].fact, forged(state.pods[uid])
        if said is not None:
            place = f"pod {fact.namespace}/{fact.name}"
            message = f"its {said.place} {said.message}"
            yield NodeProblem(code=said.code, place=place, message=message)
    for uid in sorted(node.broken):
        fact = state.pods[uid].fact
        why = "" if fact.broken is None else f": {fact.broken.place} {fact.broken.message}"
        yield NodeProblem(
            code=CARDS_QUARANTINED,
            place=f"pod {fact.namespace}/{fact.name}",
            message=f"no card of the node takes anything new because of it{why}",
        )
    for uid in sorted(node.allocations):
        pod = state.pods[uid]
        found = unreadable(pod) if node.allocations[uid].unplaced else None
        if found is not None:
            yield NodeProblem(
                code=found.code,
                place=f"pod {pod.fact.namespace}/{pod.fact.name}",
                message=f"{found.place} {found.message}",
            )


def _problem(problem: Problem) -> NodeProblem:
    return NodeProblem(code=problem.code, place=problem.place, message=problem.message)
