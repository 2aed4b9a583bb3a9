"""What every card was handed out to, and whether that was ever too much.

The books know the cards as they are, and what the device plugins handed to containers. They know
nothing of the scheduler's log, so they can testify against it: `oversold` stays empty exactly when
no card ever held more than it has.
"""

from collections import deque
from typing import Any, NamedTuple

CORES_WHOLE_PCT = 100
INCIDENTS_MAX = 1000

OVERSOLD = "Oversold"
"""A card holds more pods, memory or compute than it has, or shares what was given exclusively."""
MISDELIVERED = "Misdelivered"
"""A container got devices that its pod was not given: it was served with another pod's record."""
SWAPPED = "Swapped"
"""A container was served with the record of another pod that says the same: the same devices, but
the other pod is served with what is left."""
RECUT = "CutInUse"
"""A card was to be cut another way while an instance of it was held."""
REFUSED = "Refused"
"""The kubelet found too little left for a pod that was bound to the node."""
NOT_OFFERED = "NotOffered"
"""A pod that asks for devices runs on a node that offers none of that kind."""


class CardKey(NamedTuple):
    node: str
    family: str
    card: str


class Grant(NamedTuple):
    """A part of one card, as the plugin handed it to a container."""

    card: CardKey
    memory_mib: int
    cores_pct: int
    slots: int = 1
    """What it takes of the number of holders; of a MindCluster chip, AI CPUs."""
    instance: str = ""
    """A MIG instance, like ``group2-1``."""


class Holder(NamedTuple):
    uid: str
    pod: str
    """Namespace and name."""
    container: str


class Incident(NamedTuple):
    """Something that must not happen in a cluster with a sound scheduler."""

    code: str
    node: str
    card: str
    pod: str
    message: str


class CardAccount:
    """One card: what it has, and who holds what of it."""

    def __init__(self, index: int, slots: int, memory_mib: int, cores: int) -> None:
        self.index = index
        self.slots = slots
        self.memory_mib = memory_mib
        self.cores = cores
        """Percent, or the AI cores of an Ascend chip."""
        self.held: dict[Holder, Grant] = {}
        self.used_memory_mib = 0
        self.used_cores_pct = 0
        self.used_slots = 0

    @property
    def instances(self) -> list[str]:
        """The MIG instances that are held, as often as they are."""
        return [grant.instance for grant in self.held.values() if grant.instance]

    def excess(self) -> str | None:
        """What the card has too little of; None when all is well."""
        holders = len(self.held)
        if self.used_slots > self.slots:
            return f"{self.used_slots} holders on a card of {self.slots}"
        if self.used_memory_mib > self.memory_mib:
            return f"{self.used_memory_mib} MiB handed out of {self.memory_mib}"
        if self.used_cores_pct > self.cores:
            unit = " %" if self.cores >= CORES_WHOLE_PCT else f" of {self.cores}"
            return f"{self.used_cores_pct}{unit} of the cores handed out"
        alone = min(self.cores, CORES_WHOLE_PCT)
        if holders > 1 and any(grant.cores_pct == alone for grant in self.held.values()):
            return f"{holders} holders on a card that one of them has alone"
        return self._broken_cut()

    def _broken_cut(self) -> str | None:
        """Instances that cannot be there at the same time."""
        held = self.instances
        if len(held) > len(set(held)):
            return f"one instance handed out twice: {', '.join(sorted(held))}"
        if len({instance.rpartition("-")[0] for instance in held}) > 1:
            return f"instances of different geometries: {', '.join(sorted(held))}"
        return None


class Books:
    """The cards of all nodes. Every operation costs the same however many pods there are."""

    def __init__(self) -> None:
        self._cards: dict[CardKey, CardAccount] = {}
        self._by_pod: dict[str, list[tuple[CardKey, Holder]]] = {}
        self.incidents: deque[Incident] = deque(maxlen=INCIDENTS_MAX)
        self.counts: dict[str, int] = dict.fromkeys(
            (OVERSOLD, RECUT, MISDELIVERED, SWAPPED, REFUSED, NOT_OFFERED), 0
        )

    def add_card(
        self, key: CardKey, index: int, slots: int, memory_mib: int, cores: int = CORES_WHOLE_PCT
    ) -> None:
        """A card that exists from now on. What is held of a card of the same key stays held."""
        account = self._cards.get(key)
        if account is None:
            self._cards[key] = CardAccount(index, slots, memory_mib, cores)
        else:
            account.index, account.slots = index, slots
            account.memory_mib, account.cores = memory_mib, cores

    def account(self, key: CardKey) -> CardAccount | None:
        return self._cards.get(key)

    def hand_out(self, holder: Holder, grant: Grant) -> None:
        """Book a grant; an oversold card becomes an incident. Handing out twice adds up."""
        account = self._cards[grant.card]
        before = account.held.get(holder)
        whole = grant
        if before is not None:
            whole = grant._replace(
                memory_mib=before.memory_mib + grant.memory_mib,
                cores_pct=before.cores_pct + grant.cores_pct,
            )
        else:
            self._by_pod.setdefault(holder.uid, []).append((grant.card, holder))
        account.held[holder] = whole
        account.used_memory_mib += grant.memory_mib
        account.used_cores_pct += grant.cores_pct
        account.used_slots += grant.slots if before is None else 0
        if excess := account.excess():
            self.incident(OVERSOLD, grant.card.node, grant.card.card, holder.pod, excess)

    def take_back(self, uid: str) -> None:
        """The pod's containers have ended: its parts of all cards are free again."""
        for key, holder in self._by_pod.pop(uid, ()):
            self._give_back(key, holder)

    def hand_on(self, uid: str, card: CardKey) -> None:
        """The container of the pod that holds the card has ended: another one gets it."""
        mine = self._by_pod.get(uid, [])
        for key, holder in [place for place in mine if place[0] == card]:
            mine.remove((key, holder))
            self._give_back(key, holder)

    def _give_back(self, key: CardKey, holder: Holder) -> None:
        account = self._cards[key]
        grant = account.held.pop(holder)
        account.used_memory_mib -= grant.memory_mib
        account.used_cores_pct -= grant.cores_pct
        account.used_slots -= grant.slots

    def cards_of(self, uid: str) -> set[str]:
        """The ids of the cards that a pod holds parts of."""
        return {key.card for key, _ in self._by_pod.get(uid, ())}

    def incident(self, code: str, node: str, card: str, pod: str, message: str) -> None:
        self.counts[code] += 1
        self.incidents.append(Incident(code, node, card, pod, message))

    @property
    def oversold(self) -> list[Incident]:
        """The last incidents of this kind; `counts` has how many there ever were."""
        return [incident for incident in self.incidents if incident.code == OVERSOLD]

    def report(self) -> dict[str, Any]:
        """Everything, as JSON values: served as `/debug/cards`."""
        return {
            "oversold": [incident._asdict() for incident in self.oversold],
            "counts": dict(self.counts),
            "incidents": [incident._asdict() for incident in self.incidents],
            "cards": [
                {
                    **key._asdict(),
                    "index": account.index,
                    "slots": account.slots,
                    "memory_mib": account.memory_mib,
                    "used_memory_mib": account.used_memory_mib,
                    "used_cores_pct": account.used_cores_pct,
                    "holders": [
                        {
                            **holder._asdict(),
                            "memory_mib": grant.memory_mib,
                            "cores_pct": grant.cores_pct,
                            **({"instance": grant.instance} if grant.instance else {}),
                        }
                        for holder, grant in account.held.items()
                    ],
                }
                for key, account in self._cards.items()
            ],
        }
