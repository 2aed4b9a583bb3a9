"""A long log as production writes it, made quickly: the material of `allot bench replay`.

A cluster of nodes with eight cards each, then pod after pod: it arrives, a decision places it, its
Binding is known, it is seen running, and an old one is gone once enough are alive. All records go
through the codec, with one event in each, as where pods come one at a time. Placements fit (they
are put on random cards with room), so the fold upholds every one of them.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    Bound,
    Decided,
    Envelope,
    Event,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    PolicyLoaded,
    RunnerUp,
)
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
    PodRequest,
    Policy,
    Selection,
)

GIB = 1 << 30
CARDS = 8
SLOTS = 10
MEMORY_MIB = 81_920
TRIES_MAX = 10_000
COUNTS = (1,) * 12 + (2, 2, 4, 8)
START_MS = 1_795_183_200_000


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record to be, of one event: its subject and its bytes."""

    subject: str
    payload: bytes


class _Running(msgspec.Struct, gc=False):
    pending: PodObserved
    node: int
    cards: list[int]
    share: int


class LongLog:
    """Makes the records in order; `placed` and `gone` count pods so far."""

    def __init__(self, nodes: int, live: int, random: Random, *, shapes: int = 16) -> None:
        self.placed = self.gone = self.events = 0
        self._seq = 0
        self._nodes = nodes
        self._live = live
        self._random = random
        self._shapes = [_shape(random, number) for number in range(shapes)]
        self._free = [[SLOTS] * CARDS for _ in range(nodes)]
        self._running: list[_Running] = []

    def entries(self, events: int) -> Iterator[Entry]:
        """Records until there were at least `events` events; may be called again for more."""
        if self._seq == 0:
            policy = PolicyLoaded(policy=Policy(), source="bench", text_sha256="")
            yield self._entry(subjects.CONFIG, policy)
            for number in range(self._nodes):
                yield self._entry(subjects.FACTS, self._node(number))
        target = self.events + events if self._running else events
        while self.events < target:
            yield from self._life()

    def skip(self, records: int) -> None:
        """So many other records come before the next one."""
        self._seq += records

    def _life(self) -> Iterator[Entry]:
        pod = self._pod()
        yield self._entry(subjects.FACTS, pod.pending)
        decided = Decided(
            cycle=f"scorer-0/{self._seq}",
            basis=self._seq,
            checked=self._seq,
            policy=1,
            batch=(pod.pending.uid,),
            placements=(self._placement(pod),),
        )
        yield self._entry(subjects.DECISION, decided)
        bound = Bound(
            uid=pod.pending.uid,
            namespace=pod.pending.namespace,
            name=pod.pending.name,
            node=_node_name(pod.node),
            decision=self._seq,
        )
        yield self._entry(subjects.OUTCOME, bound)
        yield self._entry(subjects.FACTS, self._seen(pod))
        self._running.append(pod)
        self.placed += 1
        while len(self._running) > self._live:
            yield self._entry(subjects.FACTS, self._end())

    def _pod(self) -> _Running:
        random = self._random
        number = self.placed + random.getrandbits(30) * 1_000_000
        request = random.choice(self._shapes)
        wanted = request.devices[0]
        share = max(1, SLOTS * wanted.memory_mib // MEMORY_MIB)
        node, cards = self._room(wanted.count, share)
        free = self._free[node]
        for card in cards:
            free[card] -= share
        uid = f"{random.getrandbits(32):08x}-1c2d-4e3f-a0b1-{number:012x}"
        pending = PodObserved(
            uid=uid[:36],
            namespace=f"team-{number % 20}",
            name=f"trainer-{number % 1000:04d}-{uid[:8]}",
            rv=self._seq + 1,
            created_ms=START_MS + self._seq,
            scheduler="allotment",
            phase="Pending",
            request=request,
        )
        return _Running(pending, node, cards, share)

    def _room(self, count: int, share: int) -> tuple[int, list[int]]:
        """A random node and cards of it with room. Raises ValueError if the cluster is too full."""
        for _ in range(TRIES_MAX):
            node = self._random.randrange(self._nodes)
            free, first = self._free[node], self._random.randrange(CARDS)
            cards = [card % CARDS for card in range(first, first + CARDS)]
            cards = [card for card in cards if free[card] >= share][:count]
            if len(cards) == count:
                return node, cards
        raise ValueError(f"no room on {self._nodes} nodes for {self._live} pods; take more nodes")

    def _placement(self, pod: _Running) -> Placement:
        request, runners = pod.pending.request, range(pod.node, pod.node + 3)
        return Placement(
            pod.pending.uid,
            pod.pending.namespace,
            pod.pending.name,
            _node_name(pod.node),
            _holdings(pod),
            request.cpu_milli,
            request.memory_bytes,
            request.extended,
            612_500_000,
            (("device", 600_000_000), ("host", 12_500_000)),
            tuple(
                RunnerUp(_node_name(node), 600_000_000, (_card_id(node, 0),)) for node in runners
            ),
            self._nodes - 17,
            self._nodes,
            START_MS // 1000 + self._seq,
        )

    def _seen(self, pod: _Running) -> PodObserved:
        return msgspec.structs.replace(
            pod.pending,
            rv=pod.pending.rv + 1,
            phase="Running",
            node=_node_name(pod.node),
            holdings=_holdings(pod),
            bind_phase="success",
        )

    def _end(self) -> PodGone:
        at = self._random.randrange(len(self._running))
        pod, self._running[at] = self._running[at], self._running[-1]
        self._running.pop()
        self.gone += 1
        for card in pod.cards:
            self._free[pod.node][card] += pod.share
        fact = pod.pending
        return PodGone(uid=fact.uid, namespace=fact.namespace, name=fact.name, rv=fact.rv + 2)

    def _node(self, number: int) -> NodeObserved:
        cards = tuple(
            CardFact(
                _card_id(number, index),
                index,
                "NVIDIA-A100-80GB",
                SLOTS,
                MEMORY_MIB,
                100,
                True,
                "hami-core",
            )
            for index in range(CARDS)
        )
        return NodeObserved(
            name=_node_name(number),
            uid=f"node-{number}",
            rv=1,
            labels=(
                ("kubernetes.io/arch", "amd64"),
                ("kubernetes.io/hostname", _node_name(number)),
                ("topology.kubernetes.io/zone", f"zone-{number % 3}"),
            ),
            cpu_milli=512_000,
            memory_bytes=2048 * GIB,
            pods=110,
            inventories=(Inventory("vgpu", "hami-core", cards),),
        )

    def _entry(self, subject: str, event: Event) -> Entry:
        self._seq += 1
        self.events += 1
        envelope = Envelope(at_ms=START_MS + self._seq, by="bench/0", events=(event,))
        return Entry(subject, encode(envelope))


def _shape(random: Random, number: int) -> PodRequest:
    count = COUNTS[number % len(COUNTS)]
    memory_mib = MEMORY_MIB * (random.choice((1, 1, 2, 3)) if count == 1 else 1) // SLOTS
    device = DeviceRequest("vgpu", 0, "main", count, memory_mib, 0, 10)
    return PodRequest(
        cpu_milli=1000 + 250 * (number % 4),
        memory_bytes=4 * GIB,
        devices=(device,),
        selection=Selection(use_types=("A100",)),
    )


def _holdings(pod: _Running) -> tuple[Holding, ...]:
    wanted = pod.pending.request.devices[0]
    return tuple(
        Holding("vgpu", 0, _card_id(pod.node, card), wanted.memory_mib, wanted.cores_pct)
        for card in pod.cards
    )


def _node_name(number: int) -> str:
    return f"gpu-{number:06d}"


def _card_id(node: int, index: int) -> str:
    return f"GPU-{node:08x}-5d0b-4a6e-9f3c-{index:012x}"
