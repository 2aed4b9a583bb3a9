"""Who used how much, and for how long: adds up what pods held between two moments, during a fold.

    meter = Meter(state, edges, by)       # before the record after the state's
    meter.take(at_ms)                     # after each record took effect
    meter.found()                         # a list of `Usage` for each span between two edges

Bookings and releases are taken from `state.trails.nodes`, where every change of the books is noted,
so this module need not interpret decisions or Bindings again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.ledger.model import Allocation, ClusterState
from allotment_proto.facts import Amounts, Holding

MICRO = 1_000_000

NAMESPACE, LABEL = "namespace", "label="
NAMES = (NAMESPACE, "queue", "node", "model")
"""What usage is added up by; a label is possible as well."""
_UNLABELLED, _EMPTY = "(none)", "(empty)"
"""Of pods without the label, and with an empty one: no label has such a value."""
_UNKNOWN, _NO_CARDS = "(unknown)", "(no cards)"
"""Of pods on cards that their node no longer lists, and of pods without cards."""


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """What the pods of one namespace, on one node, or of one name held: amounts times milliseconds.

    A device is a card or a part of one that a container held; where the log does not tell which
    cards, as many as were asked for. Memory is what was asked for; of an instance that has more,
    the rest counts for no pod. `counted_ms` are extended resources, by name.

    `card_micro_ms` are millionths of cards: a device counts as its part of its card (see
    `part_micro`), and one of a counted resource ``…/gpu`` as a whole card.
    """

    name: str
    pods: int
    device_ms: int
    memory_mib_ms: int
    cpu_milli_ms: int
    counted_ms: dict[str, int] = {}
    card_micro_ms: int = 0


class CardKind(NamedTuple):
    """What a card has."""

    memory_mib: int
    cores_pct: int
    slots: int


_UNLISTED = CardKind(0, 100, 1)
"""For a card that its node did not list, compute counts as percent, and the rest is unknown."""


class _Amounts(NamedTuple):
    """What one allocation counts for, each millisecond."""

    devices: int
    memory_mib: int
    cpu_milli: int
    card_micro: int
    extended: Amounts


class _Held(NamedTuple):
    """An allocation that lasts, with what it counts for."""

    allocation: Allocation
    since_ms: int
    amounts: _Amounts


class _Sums(msgspec.Struct):
    """What was added up for one name in one span."""

    pods: set[str] = set()
    devices: int = 0
    memory_mib: int = 0
    cpu_milli: int = 0
    card_micro: int = 0
    counted: dict[str, int] = {}

    def add(self, uid: str, amounts: _Amounts, ms: int) -> None:
        self.pods.add(uid)
        self.devices += amounts.devices * ms
        self.memory_mib += amounts.memory_mib * ms
        self.cpu_milli += amounts.cpu_milli * ms
        self.card_micro += amounts.card_micro * ms
        for resource, amount in amounts.extended:
            self.counted[resource] = self.counted.get(resource, 0) + amount * ms

    def usage(self, name: str) -> Usage:
        return Usage(
            name,
            len(self.pods),
            self.devices,
            self.memory_mib,
            self.cpu_milli,
            dict(sorted(self.counted.items())),
            self.card_micro,
        )


class _Image(msgspec.Struct, frozen=True):
    """What a meter knows besides its state; of what is held, since when and for what it counts."""

    sums: list[dict[str, _Sums]]
    held: dict[str, tuple[int, _Amounts]]


class Meter:
    """Adds up what pods hold, from the present `state` until `found` is called.

    `edges` are moments in Unix milliseconds, ascending; what is held between two of them is one
    span. What `state` has booked counts from the first edge on. `name_of` says for whom an
    allocation counts, and is asked when it ends.
    """

    def __init__(
        self, state: ClusterState, edges: Sequence[int], name_of: Callable[[Allocation], str]
    ) -> None:
        self._state = state
        self._edges = edges
        self._name_of = name_of
        self._sums: list[dict[str, _Sums]] = [{} for _ in pairwise(edges)]
        self._held: dict[str, _Held] = {}
        self._cursor = 0
        self._look_anew(edges[0])

    def image(self) -> bytes:
        """What was added up, to go on from with an equal state (`go_on`)."""
        held = {uid: (each.since_ms, each.amounts) for uid, each in self._held.items()}
        return msgspec.msgpack.encode(_Image(self._sums, held))

    def go_on(self, image: bytes) -> None:
        """Go on from an image of a meter with the same edges, of which the last may be later, and
        with a state that has the same bookings. Raises `msgspec.MsgspecError` for other bytes.
        """
        found = msgspec.msgpack.decode(image, type=_Image)
        self._sums = found.sums
        self._held = {
            uid: _Held(each.allocation, *found.held[uid])
            for uid, each in self._held.items()
            if uid in found.held
        }

    def take(self, at_ms: int) -> None:
        """What the record of that time did, once it took effect."""
        changes = self._state.trails.nodes.since(self._cursor)
        if changes is None:
            self._look_anew(at_ms)
            return
        for _, allocation, sign in changes:
            if allocation is None or not sign:
                continue
            self._end(allocation.uid, at_ms)
            if sign > 0:
                self._begin(allocation, at_ms)
        self._cursor += len(changes)

    def found(self) -> list[list[Usage]]:
        """For each span what was held in it, in the order of names."""
        for uid in tuple(self._held):
            self._end(uid, self._edges[-1])
        return [
            [sums.usage(name) for name, sums in sorted(of_span.items())] for of_span in self._sums
        ]

    def _look_anew(self, at_ms: int) -> None:
        """Compare with all that is booked: a record changed more than the state remembers of it."""
        booked = {
            uid: pod.allocation
            for uid, pod in self._state.pods.items()
            if pod.allocation is not None
        }
        for uid, held in tuple(self._held.items()):
            if booked.get(uid) is not held.allocation:
                self._end(uid, at_ms)
        for uid, allocation in booked.items():
            if uid not in self._held:
                self._begin(allocation, at_ms)
        self._cursor = self._state.trails.nodes.end

    def _begin(self, allocation: Allocation, at_ms: int) -> None:
        amounts = _amounts_of(allocation, self._state)
        self._held[allocation.uid] = _Held(allocation, at_ms, amounts)

    def _end(self, uid: str, at_ms: int) -> None:
        held = self._held.pop(uid, None)
        if held is None:
            return
        name = self._name_of(held.allocation)
        for span, ms in self._parts(held.since_ms, at_ms):
            self._sums[span].setdefault(name, _Sums()).add(uid, held.amounts, ms)

    def _parts(self, from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
        """The spans that a stretch of time reaches into, and for how long."""
        edges = self._edges
        for span in range(max(bisect_right(edges, from_ms) - 1, 0), len(edges) - 1):
            if edges[span] >= to_ms:
                return
            ms = min(to_ms, edges[span + 1]) - max(from_ms, edges[span])
            if ms > 0:
                yield span, ms


def adds_up(by: str) -> bool:
    """Whether usage can be added up by this: one of `NAMES`, or `LABEL` with a key."""
    return by in NAMES or (by.startswith(LABEL) and by != LABEL)


def name_of(by: str, state: ClusterState) -> Callable[[Allocation], str]:
    """Returns for whom an allocation counts: its namespace, queue or node, the model of the cards
    that it holds, or the value of a label of its pod (``label=KEY``).
    """

    def queue(held: Allocation) -> str:
        fact = held.fact
        group = None if fact is None else state.groups.get(fact.group)
        named = group.queue if group is not None else "" if fact is None else fact.queue
        return named or DEFAULT_QUEUE

    def model(held: Allocation) -> str:
        node = state.nodes.get(held.node)
        ledgers = {} if node is None else node.ledgers
        cards = (
            ledgers[part.family].by_id.get(part.card)
            for part in held.holdings
            if part.family in ledgers
        )
        models = sorted({card.fact.model for card in cards if card is not None})
        return ", ".join(models) or (_UNKNOWN if held.holdings else _NO_CARDS)

    def label(held: Allocation) -> str:
        key, labels = by.removeprefix(LABEL), {} if held.fact is None else dict(held.fact.labels)
        return (labels[key] or _EMPTY) if key in labels else _UNLABELLED

    match by:
        case "namespace":
            return lambda held: "" if held.fact is None else held.fact.namespace
        case "node":
            return lambda held: held.node
        case "queue":
            return queue
        case "model":
            return model
        case _:
            return label


def _amounts_of(allocation: Allocation, state: ClusterState) -> _Amounts:
    counted = allocation.quota_holdings
    card_micro = sum(
        amount * MICRO for name, amount in allocation.extended if name.endswith("/gpu")
    )
    # A container has a piece of a card once, however many holdings name it.
    pieces = {(h.family, h.card, h.container, h.instance): h for h in reversed(counted)}
    for holding in pieces.values():
        card_micro += part_micro(holding, _kind(allocation.node, holding, state))
    return _Amounts(
        len(counted),
        sum(holding.memory_mib for holding in counted),
        allocation.cpu_milli,
        card_micro,
        allocation.extended,
    )


def _kind(node: str, holding: Holding, state: ClusterState) -> CardKind:
    """The card as its node lists it at the booking."""
    known = state.nodes.get(node)
    ledger = None if known is None else known.ledgers.get(holding.family)
    card = None if ledger is None else ledger.by_id.get(holding.card)
    if card is None:
        return _UNLISTED
    return CardKind(card.fact.memory_mib, card.fact.cores_pct, card.fact.slots)


def part_micro(share: Holding, card: CardKind) -> int:
    """Which part of its card a share is, in millionths: of memory or of compute, whichever is more;
    of a card that is handed out by neither, one of its slots.
    """
    cores = 100 if card.cores_pct in (0, 100) else card.cores_pct
    parts = [share.cores_pct * MICRO // cores]
    if card.memory_mib:
        parts.append(share.memory_mib * MICRO // card.memory_mib)
    return min(max(parts) or MICRO // max(card.slots, 1), MICRO)
