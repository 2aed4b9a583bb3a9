"""What the state is made of: nodes with their books, pods with what they hold, and the whole.

Plain data with the small operations that keep it consistent. Only `state.apply` calls those that
change a `ClusterState`; everybody else reads.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from allotment.core.ledger.changes import Trail
from allotment.core.ledger.ledger import Ledger, on_any_card, sized
from allotment.core.ledger.segments import Segments
from allotment.core.reasons import CARDS_QUARANTINED, RECORD_FORGED
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import (
    Admission,
    ConfigurationChecked,
    Corrected,
    Eviction,
    GroupObserved,
    Held,
    NodeObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
    Refusal,
    Short,
)
from allotment_proto.facts import (
    ALONE,
    Amounts,
    Attachment,
    DeviceRequest,
    Holding,
    PodPreference,
    PodSubject,
    PodTerm,
    Policy,
)
from allotment_proto.volcano import keys

_K = TypeVar("_K")

ENDED = frozenset(("Succeeded", "Failed"))
ACTIVE = "Pending"
CHANGES_MAX = 1 << 14
FORGED_MOST = 3
"""So many forged records are erased before their pod's nodes are left alone."""
FORGED_NODES_MAX = 16
OWNERS_MAX = 1024
NAMESPACES_MAX = 4096

_NOTHING_MORE = (0, 0)
"""`PodRequest.unrequested` of pods that say all."""

RESERVED = "reserved"
BOUND = "bound"
SINGLE = "pod:"
"""What the job of a pod without a group is called, before the pod's uid."""


class Allocation(msgspec.Struct, gc=False, eq=False, array_like=True):
    """What one pod holds on one node. `seq` is the decision's sequence, 0 if others bound it."""

    uid: str
    node: str
    holdings: tuple[Holding, ...]
    cpu_milli: int
    memory_bytes: int
    extended: Amounts
    phase: str
    seq: int = 0
    stamp_s: int = 0
    tags: tuple[str, ...] = ()
    """What others may want to keep apart from on a card; see `PodObserved.tags`."""
    broken: bool = False
    """It holds devices, but it is unknown which."""
    fact: PodObserved | None = None
    """The pod as it was last seen: its labels, and what it says about other pods."""
    volumes: tuple[tuple[str, str], ...] = ()
    """Of its claims those that are bound to volumes that were there, each with its volume."""
    acknowledged: bool = False
    """Its node's device plugin has handled it. That is final: what its annotations say later
    may be its owner's, who could hold the plugin up for ever."""

    @property
    def asks_plugins(self) -> bool:
        """Whether device plugins have a say in whether the pod starts."""
        return bool(self.holdings) or any(n and "/" in name for name, n in self.extended)

    def see(self, fact: PodObserved) -> None:
        """Take over what was last seen of the pod."""
        self.fact = fact
        self.acknowledged = self.acknowledged or is_acknowledged(fact, self.holdings)

    @property
    def unplaced(self) -> tuple[DeviceRequest, ...]:
        """The requests whose cards are unknown: `holdings` has them on every card that
        they can be on, until they are known."""
        return self.fact.unplaced if self.broken and self.fact is not None else ()

    @property
    def waits_for_plugin(self) -> bool:
        """Whether its node's device plugin has still to serve it. No pod waits for one whose
        claim is unreadable: its owner could leave it so for ever."""
        return bool(self.holdings) and not self.broken and not self.acknowledged

    @property
    def known_places(self) -> frozenset[tuple[str, int, str]]:
        """Of pods that others bound: the family, container and card of what their claim names."""
        return frozenset(map(_place, self.fact.holdings if self.fact is not None else ()))

    @property
    def quota_holdings(self) -> tuple[Holding, ...]:
        """What counts for a quota. What may be on any card counts once for each card that is asked
        for, as the largest of what it can be."""
        if not self.unplaced:
            return self.holdings
        known = self.known_places
        found = [held for held in self.holdings if _place(held) in known]
        for family, container in dict.fromkeys((r.family, r.container) for r in self.unplaced):
            mine = (family, container)
            count = sum(r.count for r in self.unplaced if (r.family, r.container) == mine)
            count -= sum((held.family, held.container) == mine for held in found)
            perhaps = [
                held
                for held in self.holdings
                if (held.family, held.container) == mine and _place(held) not in known
            ]
            perhaps.sort(key=lambda held: (held.memory_mib, held.cores_pct), reverse=True)
            found += perhaps[: max(count, 0)]
        return tuple(found)

    @property
    def closes_node(self) -> bool:
        """Whether it is also unknown how much it can hold of any card."""
        return self.broken and not self.unplaced


def _place(held: Holding) -> tuple[str, int, str]:
    return held.family, held.container, held.card


def is_acknowledged(fact: PodObserved, holdings: Iterable[Holding]) -> bool:
    """Whether what is seen of a pod that was bound says that the device plugin has handled it:
    it marked it, where that is final, or the pod started. `holdings` are what is booked for it.
    """
    if not fact.node:
        return False
    if fact.phase != ACTIVE or fact.bind_phase == keys.PHASE_FAILED:
        return True
    return fact.bind_phase == keys.PHASE_SUCCESS and not any(
        held.family in keys.SUCCESS_IS_EARLY for held in holdings
    )


CardPlace = tuple[str, str, str]
"""Node, family, card id: of some families ids tell cards apart on one node only."""


class Strike(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod of ours that its node turned away, or that died there as it started: the record that
    says so, the decision that sent it there, and what kubelet said."""

    seq: int
    decision: int
    pod: str
    namespace: str
    owner: str
    cards: tuple[tuple[str, str], ...]
    """Family and id of each."""
    message: str
    has_died: bool = False
    """It was admitted and failed within seconds, or its CPUs or memory could not be pinned."""
    image: str = ""
    """Of one that died."""
    has_run: bool = False
    """Pods with that image ran on other nodes then."""
    is_excused: bool = False
    """Its namespace's image died on another node, too: it does not count."""
    is_unserved: bool = False
    """It was bound, and its device plugin has not acknowledged it for long. It names no cards."""


class Health(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is held against a node or a card since the last pod that started there; see `health`."""

    strikes: tuple[Strike, ...] = ()
    """The last ones, one a stranger, the newest last."""
    times: int = 0
    """How often in a row it was held back."""
    since: int = 0
    """The record since which it is held back; 0: it is not."""
    until_ms: int = 0
    """Until when it is held back, or on trial; 0: the log has not told the time since."""
    trial_seq: int = 0
    """The record since which a node takes volunteers, 0 if it does not."""
    alive: str = ""
    """The uid of a pod that runs there since it is known that others died, and"""
    alive_ms: int = 0
    """when it will have lived for long enough."""

    @property
    def counted(self) -> tuple[Strike, ...]:
        """The strikes that count."""
        return tuple(strike for strike in self.strikes if not strike.is_excused)

    @property
    def namespaces(self) -> frozenset[str]:
        """Whose pods were turned away or died."""
        return frozenset(strike.namespace for strike in self.counted)

    def concerns(self, namespace: str) -> bool:
        """Whether it counts for a namespace's pods: its own were struck, or those of several
        others. One tenant's pods prove nothing to others, and how pods die is up to tenants: that
        takes one namespace more. A plugin that does not allocate is no tenant's doing.
        """
        if any(strike.is_unserved for strike in self.strikes):
            return True
        namespaces = self.namespaces
        turned_away = {strike.namespace for strike in self.counted if not strike.has_died}
        return namespace in namespaces or len(turned_away) > 1 or len(namespaces) > 2


Change = tuple[int, Allocation | None, int]
"""A node's row, and the allocation that was booked (1), released (−1) or acknowledged (0) there, if
that is all."""


class Node:
    """One node: its last observed fact, its ledgers, what is free on the host, who is on it.

    `fact` is None while pods still hold something on a node that is gone (or was never seen).
    """

    __slots__ = (
        "allocations",
        "attached",
        "backlog",
        "broken",
        "cpu_milli_free",
        "extended_free",
        "fact",
        "forgers",
        "labels",
        "last_stamp_s",
        "ledgers",
        "memory_bytes_free",
        "name",
        "pods_free",
        "row",
        "spaces",
        "unrequested_bytes",
        "unrequested_milli",
    )

    def __init__(self, name: str, row: int) -> None:
        self.name = name
        self.row = row
        self.fact: NodeObserved | None = None
        self.labels: dict[str, str] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.cpu_milli_free = 0
        self.memory_bytes_free = 0
        self.pods_free = 0
        self.extended_free: dict[str, int] = {}
        self.allocations: dict[str, Allocation] = {}
        self.last_stamp_s = 0
        self.backlog = 0
        """How many pods with devices its device plugins have still to serve (`awaits`). kubelet
        asks for one pod after the other, so all of them stand in front of the next one here."""
        self.broken: set[str] = set()
        """Uids of pods that hold devices here, unknown which and how much."""
        self.forgers: set[str] = set()
        """Uids of pods that write device records again and again with which others are served."""
        self.unrequested_milli = self.unrequested_bytes = 0
        """What scores add to what is in use; see `PodRequest.unrequested`."""
        self.attached: dict[str, dict[str, int]] = {}
        """Driver → claims of the pods here, with how many pods have each."""
        self.spaces: dict[str, int] = {}
        """Namespaces of the pods here, with how many pods are of each: most rules about pods are
        about those of one."""

    @property
    def blocked(self) -> str | None:
        """The reason why no card of this node takes anything new, None if they do."""
        if self.forgers:
            return RECORD_FORGED
        return CARDS_QUARANTINED if self.broken else None

    def awaits(self, allocation: Allocation) -> bool:
        """Whether a device plugin of this node has still to serve an allocation. One that is gone
        (kubelet no longer lists its devices) serves no pods.
        """
        return allocation.waits_for_plugin and allocation.holdings[0].family in self.ledgers

    def has_volunteer(self, health: Health) -> bool:
        """Whether a pod has still to start here since the node is on trial."""
        return any(
            held.seq >= health.trial_seq and held.asks_plugins for held in self.allocations.values()
        )

    def rebuild(self, fact: NodeObserved | None) -> list[Allocation]:
        """Take over a new fact and book every allocation on it afresh. Those that hold something
        else on the cards as they are now."""
        self.fact = fact
        self.labels = dict(fact.labels) if fact else {}
        blocked = self.blocked
        self.ledgers = {i.family: Ledger(i, blocked) for i in fact.inventories} if fact else {}
        cards = [card for ledger in self.ledgers.values() for card in ledger.cards]
        for slot, card in enumerate(cards):
            card.slot = slot
        self.cpu_milli_free = fact.cpu_milli if fact else 0
        self.memory_bytes_free = fact.memory_bytes if fact else 0
        self.pods_free = fact.pods if fact else 0
        self.extended_free = dict(fact.extended) if fact else {}
        self.unrequested_milli = self.unrequested_bytes = self.backlog = 0
        self.attached, self.spaces = {}, {}
        changed = []
        for allocation in self.allocations.values():
            before = allocation.holdings
            allocation.holdings = self.holdings_of(allocation)
            if allocation.holdings != before:
                changed.append(allocation)
            self._book(allocation, 1)
        return changed

    def charge(self, allocation: Allocation) -> None:
        self.allocations[allocation.uid] = allocation
        allocation.holdings = self.holdings_of(allocation)
        if allocation.closes_node:
            self.broken.add(allocation.uid)
            self._block()
        self._book(allocation, 1)

    def release(self, allocation: Allocation) -> None:
        del self.allocations[allocation.uid]
        if allocation.broken:
            self.broken.discard(allocation.uid)
            self._block()
        self._book(allocation, -1)

    def holdings_of(self, allocation: Allocation) -> tuple[Holding, ...]:
        """What an allocation holds of this node's cards. What others bound holds of each card what
        its limits say in percent of that card, and a share of every card that it can be on.
        """
        fact, holdings = allocation.fact, allocation.holdings
        if allocation.seq or fact is None:
            return holdings
        if allocation.unplaced:
            holdings = on_any_card(fact.holdings, allocation.unplaced, self.ledgers)
        if fact.shares_pct:
            holdings = sized(holdings, fact.shares_pct, self.ledgers)
        return holdings

    def note_forger(self, uid: str, is_forger: bool) -> None:
        """Take note of a pod that writes device records for this node, or does no more."""
        (self.forgers.add if is_forger else self.forgers.discard)(uid)
        self._block()

    def _block(self) -> None:
        for ledger in self.ledgers.values():
            ledger.blocked = self.blocked

    def _book(self, allocation: Allocation, sign: int) -> None:
        self.cpu_milli_free -= sign * allocation.cpu_milli
        self.memory_bytes_free -= sign * allocation.memory_bytes
        self.pods_free -= sign
        for name, amount in allocation.extended:
            if name in self.extended_free:
                self.extended_free[name] -= sign * amount
        fact, holdings = allocation.fact, allocation.holdings
        if fact is not None:
            self.book_said(fact, sign)
        if not holdings:
            return
        if self.awaits(allocation):
            self.backlog += sign
        ledgers, uid, tags = self.ledgers, allocation.uid, allocation.tags
        known = allocation.known_places if allocation.broken else None
        for holding in holdings:
            ledger = ledgers.get(holding.family)
            if ledger is None:
                continue
            if sign < 0:
                ledger.release(uid, holding, tags)
            elif known is None:
                ledger.charge(uid, holding, tags)
            else:
                ledger.charge(uid, holding, tags, perhaps=_place(holding) not in known)

    def book_said(self, fact: PodObserved, sign: int) -> None:
        """Book what only a pod's fact says of it: whose it is, what scores add, its volumes."""
        request = fact.request
        _add(self.spaces, fact.namespace, sign)
        if request.unrequested != _NOTHING_MORE:
            self.unrequested_milli += sign * request.unrequested[0]
            self.unrequested_bytes += sign * request.unrequested[1]
        for volume in request.attachments:
            claims = self.attached.setdefault(volume.driver, {})
            _add(claims, volume.claim, sign)
            if not claims:
                del self.attached[volume.driver]

    def fork(self) -> "Node":
        """A copy whose books can be charged without touching this one."""
        twin = Node.__new__(Node)
        twin.name, twin.row, twin.fact, twin.labels = self.name, self.row, self.fact, self.labels
        twin.ledgers = {family: ledger.copy() for family, ledger in self.ledgers.items()}
        twin.cpu_milli_free = self.cpu_milli_free
        twin.memory_bytes_free = self.memory_bytes_free
        twin.pods_free = self.pods_free
        twin.extended_free = dict(self.extended_free)
        twin.allocations = dict(self.allocations)
        twin.last_stamp_s, twin.backlog = self.last_stamp_s, self.backlog
        twin.broken, twin.forgers = set(self.broken), set(self.forgers)
        twin.unrequested_milli, twin.unrequested_bytes = (
            self.unrequested_milli,
            self.unrequested_bytes,
        )
        twin.attached = {driver: dict(claims) for driver, claims in self.attached.items()}
        twin.spaces = dict(self.spaces)
        return twin


class Pod(msgspec.Struct, gc=False, eq=False, array_like=True):
    """One pod: its last observed fact, what it holds, and the last refusal said about it."""

    fact: PodObserved
    changed_seq: int
    allocation: Allocation | None = None
    refusal: Refusal | None = None
    refused_basis: int = 0
    bind_failures: int = 0
    forged: dict[str, int] | None = None
    """By node, how often its annotations came to be such that the node's device plugin would serve
    others with what they were never given, of the last `FORGED_NODES_MAX` nodes, the last one at
    the end; None: never.
    """

    @property
    def forged_on(self) -> str:
        """The node on which nothing is placed because of that; empty if there is none. One pod has
        one record at a time, so it keeps others from one node at a time: the last that it named."""
        found = self.forged or {}
        return next(reversed(found), "") if sum(found.values()) >= FORGED_MOST else ""


class Group(msgspec.Struct, eq=False, array_like=True):
    """A PodGroup: its last observed fact, its pods, and what was decided about it.

    `fact` is None while pods name a group that was never seen.
    """

    fact: GroupObserved | None = None
    members: dict[str, None] = {}
    """Uids of its pods, in the order in which they were first seen."""
    queue: str = ""
    """The queue of the last PodGroup of this name: what its pods hold counts there also when
    the PodGroup is gone."""
    admitted_seq: int = 0
    """The decision that let it pass the gate of its queue, 0 if none did."""
    promised_for: int = 0
    """How many more moments (`TimePassed`) it counts for what it was admitted for and does not
    hold; 0: it counts for nothing but what its pods hold."""
    gate: Admission | None = None
    """What was last said of it at the gate."""
    short: Short | None = None
    short_basis: int = 0
    short_since: int = 0
    """Why it did not get its minimum when it was last tried, on which state; and the decision
    that first found it so."""
    passed: int = 0
    """How many pods of others were placed since then."""
    changed_seq: int = 0
    """The last sequence at which anything about it or its pods changed."""


class Nominated(msgspec.Struct, eq=False, array_like=True):
    """The places of a preemptor: they are kept until it was tried there with all victims gone."""

    nodes: dict[str, str]
    """By uid of a pod that waits."""
    holdings: dict[str, tuple[Holding, ...]]
    """By uid, what was found for the pod there."""
    awaited: set[str]
    """The pods that make room for it and are still there."""
    ripe_seq: int = 0
    """When the last of them was gone, or stayed for good; 0 while some are still to go."""

    def is_tried(self, batch: Iterable[str], basis: int) -> bool:
        """Whether a round over the batch on the state at `basis` tries the preemptor with all
        victims gone: what is kept for it ends with that decision, also if that says nothing else.
        """
        return 0 < self.ripe_seq <= basis and not self.nodes.keys().isdisjoint(batch)


class RulesAbout(NamedTuple):
    """The topology keys by which others' rules are about a pod, with the pod as they see it."""

    repelled: tuple[PodSubject, ...]
    wanted: tuple[PodSubject, ...]


class CardModels(NamedTuple):
    """The models of all cards of the cluster since a change of a node: of those that nodes register
    and of those that are only counted; and by the words that a pod has for models those that mean
    whole words."""

    nodes_seq: int
    registered: frozenset[str]
    counted: frozenset[str]
    telling: dict[tuple[str, ...], tuple[str, ...]]


class _Trails:
    """What changed, for those who follow a state. Each keeps his own position in a trail."""

    def __init__(self) -> None:
        self.nodes: Trail[Change] = Trail(CHANGES_MAX)
        self.jobs: Trail[str] = Trail()
        """Groups, and while there are queues pods without one (`SINGLE`)."""
        self.told: Trail[str] = Trail()
        """Groups of which a decision said why they wait, or whether they are admitted."""


class _Memo:
    """Answers about a state that are asked for again and again. Nothing in it is in the log."""

    def __init__(self) -> None:
        self.rules_about: dict[tuple[str, tuple[tuple[str, str], ...]], RulesAbout] = {}
        """By namespace and labels, what the rules of other pods say of such a pod: another
        dictionary when a new rule comes, or one goes with the last pod that has it.
        """
        self.unserved: tuple[tuple[object, ...], tuple[str, ...]] | None = None
        """What was asked of `unserved` last, and its answer."""
        self.models: CardModels | None = None
        """The models of all cards."""


class ClusterState:
    """Everything the log says, at sequence `seq`. Read it freely; only `apply` changes it."""

    def __init__(self) -> None:
        self.seq = 0
        self.corrected: dict[str, tuple[int, Corrected]] = {}
        """Pods that were served with another pod's record and hold something still, and the
        sequence at which that was said."""
        self.decision_seq = 0
        self.policy = Policy()
        self.policy_seq = 0
        self.devices = DeviceConfig()
        self.devices_seq = 0
        """The active device configuration, and the sequence at which it took effect."""
        self.config_checks: dict[str, tuple[int, ConfigurationChecked]] = {}
        """By kind, what there is to say of its newest text (why it is not active, or which lines
        of it have no effect), and the sequence at which that was said."""
        self.config_sources: dict[str, str] = {}
        """By kind, where the active configuration was read."""
        self.avoided: dict[str, dict[CardPlace, int]] = {}
        """Owner's uid → cards on which its pods could not start, with the sequence of the last
        failure: the owner's next pod goes elsewhere if it can. At most `OWNERS_MAX` owners."""
        self.health: dict[CardPlace, Health] = {}
        """What is held against nodes (no family, no card) and cards on which pods did not start."""
        self.forging: dict[str, None] = {}
        """Uids of the pods that have `Pod.forged`."""
        self.forged_at: dict[str, int] = {}
        """Node → the last record that says that a pod forged device records for it."""
        self.served: dict[str, int] = {}
        """Namespaces in the order in which they were last given something (a place, or the
        admission of a group), with growing numbers: whose turn it is. At most `NAMESPACES_MAX`;
        noted while the policy lets the namespaces take turns.
        """
        self.groups: dict[str, Group] = {}
        """By ``<namespace>/<name>``."""
        self.short: dict[str, None] = {}
        """The groups that have a `Group.short`."""
        self.promised: dict[str, None] = {}
        """The groups that have a `Group.promised_for`."""
        self.unseen: dict[str, None] = {}
        """The groups that pods name and that were never seen."""
        self.queues: dict[str, QueueObserved] = {}
        self.classes: dict[str, PriorityClassObserved] = {}
        self.order_seq = 0
        """The last sequence at which something changed that order and quota depend on."""
        self.time_ms = 0
        """The last moment that the log recorded."""
        self.holds: tuple[Held, ...] = ()
        """What is held for groups that were passed by too often."""
        self.nominated: dict[str, Nominated] = {}
        """Preemptor → where its pods will be placed, for which others were evicted."""
        self.evicting: dict[str, Eviction] = {}
        """Evicted pods that are not gone yet."""
        self.deleting: dict[str, None] = {}
        """Uids of pods that are being deleted and are not gone yet."""
        self.spared: dict[str, str] = {}
        """Pods whose eviction was refused → their owner's uid: no eviction is tried before
        something happens to one of the owner's pods.
        """
        self.local: dict[str, None] = {}
        """Uids of pods that hold something and were given volumes that were there already."""
        self.singles: dict[str, None] = {}
        """Uids of pods without a group that hold something."""
        self.nodes: dict[str, Node] = {}
        self.nodes_seq = 0
        """The last sequence at which a node was observed or went."""
        self.keep_away: dict[PodTerm, int] = {}
        self.preferences: dict[PodPreference, int] = {}
        """What the pods that are known say about others (required anti-affinity, and preferences),
        with how many of them say it; see `company.situated`."""
        self.claimed: dict[Attachment, int] = {}
        """Volumes of the pods that are known, with how many of them have each."""
        self.followers = 0
        """How many pods wait for others to be somewhere: any placement may be room for them."""
        self.rows: list[Node | None] = []
        self.vacant: list[int] = []
        """Rows without a node, as a heap: the lowest is given away first."""
        self.forgotten = 0
        """How many nodes were forgotten: for caches, whose rows may be another node's by now."""
        self.pods: dict[str, Pod] = {}
        self.pending: dict[str, None] = {}
        """Uids of pods that wait for us, in the order they began to wait."""
        self.reserved: dict[str, None] = {}
        """Uids of pods whose Binding is not known to have happened or failed yet."""
        self.room_seq = 0
        """The last sequence at which room may have appeared somewhere."""
        self.voided: dict[str, int] = {}
        """Pods whose last placement did not stand, or that wait behind such a one → the sequence of
        that decision."""
        self.segments = Segments()
        """The stretches of the log that end with a checkpoint."""
        self.trails = _Trails()
        self.memo = _Memo()

    def is_gang(self, key: str) -> bool:
        """Whether pods of a group start together."""
        group = self.groups.get(key)
        return group is not None and group.fact is not None and group.fact.min_member > 1

    @property
    def is_batched(self) -> bool:
        """Whether queues and groups are in use: then order and quota go by the policy's tiers."""
        return bool(self.queues)

    @property
    def turns(self) -> Mapping[str, int] | None:
        """`served` if the policy lets the namespaces take turns, else None."""
        return self.served if self.policy.namespace_turns else None

    def scope_of(self, fact: PodObserved) -> str:
        """A pod's namespace while nodes are held back: pods that ask the same may have other nodes
        in another namespace. Else empty."""
        return fact.namespace if self.is_scoped else ""

    @property
    def is_scoped(self) -> bool:
        """Whether nodes or cards are held back; see `scope_of`."""
        return any(h.since for h in self.health.values())

    def note_company(self, fact: PodObserved, sign: int) -> None:
        """Note what a pod says about others and shares with them (1), or no more (−1)."""
        for volume in fact.request.attachments:
            _add(self.claimed, volume, sign)
        company = fact.request.company
        if company == ALONE:
            return
        if company.near or any(rule.is_required for rule in company.spread):
            self.followers += sign
        news = [_add(self.keep_away, term, sign) for term in company.away]
        news += [_add(self.preferences, preference, sign) for preference in company.preferred]
        if any(news):  # one more pod with a rule that is known says nothing new
            self.memo.rules_about = {}

    def touch(self, node: Node, allocation: Allocation | None = None, sign: int = 0) -> None:
        """Note that a node changed: an allocation was booked (1), released (−1) or acknowledged
        (0), or, without one, anything about it.
        """
        self.trails.nodes.add((node.row, allocation, sign))

    def waits(self, fact: PodObserved) -> bool:
        """Whether the fact describes a pod that is ours to schedule now."""
        return (
            not fact.node
            and fact.phase == ACTIVE
            and not fact.deleting
            and not fact.gated
            and fact.scheduler in self.policy.scheduler_names
        )


def _add(counts: dict[_K, int], key: _K, number: int) -> bool:
    """Add to a count; one that is 0 is forgotten. Whether that made or ended a key."""
    before = counts.get(key, 0)
    now = before + number
    if now:
        counts[key] = now
    else:
        del counts[key]
    return not (before and now)
