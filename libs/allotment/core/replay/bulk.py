"""Who holds what and what is free, rebuilt from records at bulk speed: a second opinion.

    books = Books()
    for record in records:
        books.take(record.seq, record.payload)
    assert books.picture() == picture_of(state)

It is fast because it does less: it decodes only the fields that can move an amount (`bulk_events`)
and keeps one entry a pod, with the cards that the pod is booked on, so that a release looks nothing
up; and no holders of cards, no pending pods, no changes.

A card that a node does not list (any more) keeps its bookings without a capacity. So a node's
change touches what the node lists and not the pods on it, however many there are.

It shares no arithmetic with `state.apply`, and the tests hold the two against each other. What it
does not know: whether a record is wrong in a field that is not read here (the fold passes such a
record over), and all that is not an amount: phases, refusals, who waits.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.ledger.model import ACTIVE, ENDED, ClusterState
from allotment.core.replay.bulk_events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Event,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    decode,
)
from allotment.core.replay.bulk_nodes import (
    NOWHERE,
    Card,
    Node,
    cover_together,
    once,
    same_cards,
    with_confirmed,
)
from allotment_proto.events import ENVELOPE_VERSION, PolicyLoaded
from allotment_proto.facts import Amounts, Holding, Policy


class _Pod:
    """All about one pod: its last fact, and what it holds and where that is booked, if anything.

    `cards` has a card for each holding. `open_decision` is the decision that it is reserved by, 0
    once its Binding is known to have happened; `decision` is the one that gave it `what` (0: none),
    `is_broken` that it was bound by others and that not all it claims can be read.
    """

    __slots__ = ("cards", "decision", "fact", "is_broken", "node", "open_decision", "what")

    def __init__(self, fact: PodObserved) -> None:
        self.fact = fact
        self.what: Placement | None = None
        self.node = NOWHERE
        self.cards: Sequence[Card] = ()
        self.open_decision = 0
        self.decision = 0
        self.is_broken = False


class Picture(msgspec.Struct, frozen=True):
    """Who holds what and what is free at one sequence. Equal pictures are equal books."""

    holders: dict[str, tuple[str, tuple[Holding, ...], int, int, Amounts]]
    """Pod uid → node, cards, milli-CPU, bytes, extended."""
    cards: dict[str, dict[str, tuple[int, int, int]]]
    """Node → "family/card" → free slots, MiB, cores."""
    hosts: dict[str, tuple[int, int, int]]
    """Node → free milli-CPU, bytes, pods."""
    extended: dict[str, dict[str, int]]
    """Node → resource → free."""


class Books:
    """The books after every record that was taken, in log order from the first."""

    def __init__(self) -> None:
        self.seq = 0
        self.booked = self.released = 0
        """How many allocations were booked and released so far."""
        self._pods: dict[str, _Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._names = Policy().scheduler_names

    def take(self, seq: int, payload: bytes) -> None:
        """Let one record take effect. One that cannot be read changes nothing."""
        self.seq = seq
        try:
            envelope = decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if not 1 <= envelope.v <= ENVELOPE_VERSION:
            return
        pods = self._pods
        for event in envelope.events:
            if isinstance(event, PodObserved):
                pod = pods.get(event.uid)
                if pod is None:
                    pod = pods[event.uid] = _Pod(event)
                elif pod.fact.rv > event.rv:
                    continue
                else:
                    pod.fact = event
                if event.phase in ENDED:
                    self._release(pod)
                elif event.node:
                    self._see(pod, event)
            elif isinstance(event, PodGone):
                pod = pods.pop(event.uid, None)
                if pod is not None:
                    self._release(pod)
            elif isinstance(event, Bound):
                pod = pods.get(event.uid)
                if pod is not None and pod.open_decision == event.decision:
                    pod.open_decision = 0
            elif isinstance(event, Decided):
                self._decide(event, seq)
            else:
                self._take_rare(event)

    def _decide(self, event: Decided, seq: int) -> None:
        """Book placements; those of a whole together or not at all, and what is given to the same
        group beyond them not without them.
        """
        if not event.wholes:
            for placement in event.placements:
                self._place(placement, seq)
            return
        whole_of = {uid: number for number, whole in enumerate(event.wholes) for uid in whole}
        group_of = {p.uid: self._group_of(p.uid) for p in event.placements}
        number_of = {group_of.get(uid, ""): number for uid, number in whole_of.items()}
        number_of.pop("", None)
        broken: set[int] = set()
        for placement in event.placements:
            uid = placement.uid
            number = whole_of.get(uid, number_of.get(group_of[uid], -1))
            if number in broken or self._place(placement, seq) or uid not in whole_of:
                continue
            broken.add(number)
            for other, group in group_of.items():
                pod = self._pods.get(other)
                if (
                    pod is not None
                    and pod.open_decision == seq
                    and number == whole_of.get(other, number_of.get(group, -1))
                ):
                    self._release(pod)

    def _group_of(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return "" if pod is None else pod.fact.group

    def _take_rare(self, event: Event) -> None:
        match event:
            case BindFailed():
                pod = self._pods.get(event.uid)
                if (
                    pod is not None
                    and pod.what is not None
                    and 0 != pod.open_decision == event.decision
                ):
                    self._release(pod)
                    if pod.fact.node:  # others bound it
                        self._adopt(pod, pod.fact, pod.fact.holdings)
            case Corrected():
                pod = self._pods.get(event.uid)
                if pod is not None and pod.what is not None:
                    self._correct(pod, pod.what, event)
            case NodeObserved():
                node = self._node(event.name)
                before = node.fact
                if before is None or before.uid != event.uid or before.rv <= event.rv:
                    node.become(event)
            case NodeGone():
                gone = self._nodes.get(event.name)
                if gone is not None and gone.fact is not None and gone.fact.uid == event.uid:
                    gone.become(None)
            case PolicyLoaded():
                self._names = event.policy.scheduler_names
            case _:
                pass  # says how to choose, not who holds what

    def _correct(self, pod: _Pod, was: Placement, event: Corrected) -> None:
        if not pod.decision or (was.node, pod.decision) != (event.node, event.decision):
            return
        decisions, is_broken = (pod.open_decision, pod.decision), pod.is_broken
        if was.holdings != event.holdings:
            self._release(pod)
            node, held = self._node(event.node), event.holdings
            amounts = was.cpu_milli, was.memory_bytes, was.extended
            what = Placement(was.uid, was.namespace, was.name, event.node, held, *amounts)
            self._book(pod, what, node, tuple(map(node.card, held)))
            (pod.open_decision, pod.decision), pod.is_broken = decisions, is_broken

    def picture(self) -> Picture:
        """Who holds what and what is free now."""
        there = {name: node for name, node in self._nodes.items() if node.fact is not None}
        return Picture(
            holders={
                uid: (p.node, p.holdings, p.cpu_milli, p.memory_bytes, p.extended)
                for uid, pod in self._pods.items()
                if (p := pod.what) is not None
            },
            cards={
                name: {
                    f"{family}/{id_}": (card.slots, card.memory_mib, card.cores_pct)
                    for family, cards in node.cards.items()
                    for id_, card in cards.items()
                    if card.is_listed
                }
                for name, node in there.items()
            },
            hosts={
                name: (node.cpu_milli, node.memory_bytes, node.pods) for name, node in there.items()
            },
            extended={
                name: {resource: node.extended[resource] for resource, _ in node.fact.extended}
                for name, node in there.items()
                if node.fact is not None
            },
        )

    def _see(self, pod: _Pod, fact: PodObserved) -> None:
        """A pod seen on a node holds what a decision gave it there, or what it claims: the first
        time that this can be read.
        """
        request, holdings, was = fact.request, fact.holdings, pod.what
        is_broken = fact.broken is not None
        open_decision = decision = 0
        if was is not None and was.node == fact.node and (pod.decision or was.holdings):
            if pod.decision:
                decision = pod.decision
                if is_broken or not same_cards(was.holdings, fact.annotated or holdings):
                    open_decision = pod.open_decision
                holdings, is_broken = was.holdings, False
            elif not pod.is_broken:
                holdings, is_broken = with_confirmed(was.holdings, holdings), False
            if (
                was.holdings == holdings
                and was.cpu_milli == request.cpu_milli
                and was.memory_bytes == request.memory_bytes
                and was.extended == request.extended
            ):
                pod.open_decision, pod.is_broken = open_decision, is_broken
                return
        self._release(pod)
        self._adopt(pod, fact, holdings)
        pod.open_decision, pod.decision, pod.is_broken = open_decision, decision, is_broken

    def _adopt(self, pod: _Pod, fact: PodObserved, holdings: tuple[Holding, ...]) -> None:
        """Book these cards for a pod where it is, and what it takes of its host."""
        request, node = fact.request, self._node(fact.node)
        amounts = request.cpu_milli, request.memory_bytes, request.extended
        cards = tuple(map(node.card, holdings))
        self._book(pod, Placement(fact.uid, "", "", fact.node, holdings, *amounts), node, cards)
        pod.is_broken = fact.broken is not None

    def _place(self, what: Placement, decision: int) -> bool:
        """Book a placement if its pod waits and its node's books cover it; whether it was."""
        pod = self._pods.get(what.uid)
        if pod is None or pod.what is not None:
            return False
        fact = pod.fact
        if (
            fact.node
            or fact.phase != ACTIVE
            or fact.deleting
            or fact.gated
            or fact.scheduler not in self._names
        ):
            return False
        node = self._nodes.get(what.node)
        if node is None or node.fact is None or node.pods < 1:
            return False
        if what.cpu_milli > node.cpu_milli and what.cpu_milli > 0:
            return False
        if what.memory_bytes > node.memory_bytes and what.memory_bytes > 0:
            return False
        if what.extended:
            listed = dict(node.fact.extended)
            for name, amount in what.extended:
                if amount > (max(node.extended[name], 0) if name in listed else 0):
                    return False
        cards = []
        for holding in what.holdings:
            card = node.card(holding)
            if not (
                card.is_listed
                and card.slots >= 1
                and card.memory_mib >= card.charged_mib(holding)
                and card.cores_pct >= holding.cores_pct
                and card.has_free(holding)
            ):
                return False
            cards.append(card)
        if len(cards) > 1 and not cover_together(what.holdings, cards):
            return False
        pod.open_decision = pod.decision = decision
        self._book(pod, what, node, cards)
        return True

    def _book(self, pod: _Pod, what: Placement, node: Node, cards: Sequence[Card]) -> None:
        if len(cards) > 1:
            cards = once(what.holdings, cards)
        self.booked += 1
        pod.what, pod.node, pod.cards = what, node, cards
        node.cpu_milli -= what.cpu_milli
        node.memory_bytes -= what.memory_bytes
        node.pods -= 1
        for name, amount in what.extended:
            node.extended[name] = node.extended.get(name, 0) - amount
        for holding, card in zip(what.holdings, cards, strict=True):
            card.book(holding, 1)

    def _release(self, pod: _Pod) -> None:
        what, node, cards = pod.what, pod.node, pod.cards
        if what is None:
            return
        pod.what, pod.open_decision, pod.decision, pod.is_broken = None, 0, 0, False
        self.released += 1
        node.cpu_milli += what.cpu_milli
        node.memory_bytes += what.memory_bytes
        node.pods += 1
        for name, amount in what.extended:
            node.extended[name] += amount
        for holding, card in zip(what.holdings, cards, strict=True):
            card.book(holding, -1)

    def _node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node()
        return node


def rebuild(records: Iterable[tuple[int, bytes]]) -> Books:
    """The books of a log from its first record on; pairs of sequence and payload."""
    books = Books()
    for seq, payload in records:
        books.take(seq, payload)
    return books


def picture_of(state: ClusterState) -> Picture:
    """The same of the ordinary fold's state, to hold the two against each other."""
    there = {name: node for name, node in state.nodes.items() if node.fact is not None}
    return Picture(
        holders={
            uid: (a.node, a.holdings, a.cpu_milli, a.memory_bytes, a.extended)
            for uid, pod in state.pods.items()
            if (a := pod.allocation) is not None
        },
        cards={
            name: {
                f"{family}/{id_}": (card.free_slots, card.free_memory_mib, card.free_cores_pct)
                for family, ledger in node.ledgers.items()
                for id_, card in ledger.by_id.items()
            }
            for name, node in there.items()
        },
        hosts={
            name: (node.cpu_milli_free, node.memory_bytes_free, node.pods_free)
            for name, node in there.items()
        },
        extended={name: dict(node.extended_free) for name, node in there.items()},
    )
