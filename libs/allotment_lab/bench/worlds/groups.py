"""A cluster full of groups: the workload of `allot bench batch`, repeatable.

Equal nodes, queues of equal weight, and groups of equal pods, each with a part of a card. Groups
that run are facts that another scheduler might have made: bound pods of running PodGroups. Others
wait, come and end as the caller says; everything goes through `apply`, as it does in the services.
"""

from collections.abc import Iterator

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck_all
from allotment_lab.bench.worlds.churn import CARDS, GIB, equal_node
from allotment_proto.events import (
    Bound,
    Decided,
    Event,
    GroupGone,
    GroupObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    QueueObserved,
)
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    PodRequest,
    Policy,
)

CARD_MIB = 81_920
SHARE_MIB = 16_384
SHARES = CARD_MIB // SHARE_MIB
"""So many pods fill a card."""
NAMESPACE = "bench"
NUMBER = "volcano.sh/vgpu-number"

Place = tuple[int, int]
"""A node's number and a card's."""


class CrowdError(ValueError):
    """Raised when a cluster is too small for its groups."""


class Crowd:
    """A state with groups that run, and what happens to it next."""

    def __init__(self, nodes: int, queues: int, groups: int, size: int) -> None:
        room = nodes * CARDS * SHARES // size
        if groups > room:
            raise CrowdError(f"{nodes} nodes hold {room} groups of {size} pods, not {groups}")
        self.state = ClusterState()
        self.size = size
        self._queues = queues
        self._made = 0
        self._running: list[str] = []
        self._tell(PolicyLoaded(policy=Policy(), source="bench", text_sha256=""))
        for number in range(queues):
            self._tell(QueueObserved(uid=f"q{number}", name=f"q{number}", rv=1))
        for number in range(nodes):
            extended = ((NUMBER, 10 * CARDS),)
            self._tell(equal_node(number, "NVIDIA-A100", CARD_MIB, extended))
        places = _places(nodes)
        for _ in range(groups):
            self._running.append(self._group("Running", 1, [next(places) for _ in range(size)]))

    def arrive(self, count: int, cards: int = 1, phase: str = "Inqueue") -> list[str]:
        """So many groups come and wait; each pod asks for shares of so many cards."""
        return [self._group(phase, cards) for _ in range(count)]

    def end(self, key: str) -> None:
        """A group is gone, and its pods are."""
        name = key.partition("/")[2]
        for uid in list(self.state.groups[key].members):
            self._tell(PodGone(uid=uid, namespace=NAMESPACE, name=uid, rv=1))
        self._tell(GroupGone(uid=f"uid-{name}", namespace=NAMESPACE, name=name, rv=1))

    def runs(self, key: str) -> None:
        """A group that was placed is one of those that run."""
        self._running.append(key)

    def end_oldest(self) -> None:
        """The group that ran longest is done: there is room."""
        self.end(self._running.pop(0))

    def decide(self, batch: tuple[str, ...], found: Outcome) -> Decided:
        """What was found is checked, decided and bound."""
        kept, dropped, wholes = recheck_all(self.state, found.placements, found.wholes)
        decided = Decided(
            cycle="bench",
            basis=self.state.seq,
            checked=self.state.seq,
            policy=self.state.policy_seq,
            batch=batch,
            placements=tuple(kept),
            dropped=tuple(dropped),
            refusals=found.refusals,
            wholes=tuple(wholes),
            shorts=found.shorts,
            admissions=found.admissions,
            evictions=found.evictions,
            holds=found.holds,
        )
        self._tell(decided)
        seq = self.state.seq
        for placed in decided.placements:
            self._tell(
                Bound(
                    uid=placed.uid,
                    namespace=placed.namespace,
                    name=placed.name,
                    node=placed.node,
                    decision=seq,
                )
            )
        return decided

    def _tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)

    def _group(self, phase: str, cards: int, places: list[Place] | None = None) -> str:
        self._made += 1
        name = f"group-{self._made}"
        self._tell(
            GroupObserved(
                uid=f"uid-{name}",
                namespace=NAMESPACE,
                name=name,
                rv=1,
                created_ms=self._made,
                queue=f"q{self._made % self._queues}",
                min_member=self.size,
                min_resources=(("cpu", 500 * self.size),),
                phase=phase,
            )
        )
        for index in range(self.size):
            self._tell(self._pod(name, index, cards, None if places is None else places[index]))
        return f"{NAMESPACE}/{name}"

    def _pod(self, group: str, index: int, cards: int, place: Place | None) -> PodObserved:
        uid = f"{group}-worker-{index}"
        return PodObserved(
            uid=uid,
            namespace=NAMESPACE,
            name=uid,
            rv=1,
            created_ms=self._made,
            scheduler="allotment",
            request=PodRequest(
                cpu_milli=500,
                memory_bytes=GIB,
                extended=((NUMBER, cards),),
                devices=(DeviceRequest("vgpu", 0, "main", cards, SHARE_MIB, 0, 10),),
            ),
            phase="Pending" if place is None else "Running",
            node="" if place is None else _name(place[0]),
            holdings=() if place is None else (Holding("vgpu", 0, _card(*place), SHARE_MIB, 10),),
            group=f"{NAMESPACE}/{group}",
            role="worker",
        )


def _places(nodes: int) -> Iterator[Place]:
    """Card by card on every node, so that the whole cluster is used alike."""
    for _ in range(SHARES):
        for card in range(CARDS):
            for node in range(nodes):
                yield node, card


def _name(node: int) -> str:
    return f"gpu-{node:06d}"


def _card(node: int, card: int) -> str:
    return f"GPU-{node}-{card}"
