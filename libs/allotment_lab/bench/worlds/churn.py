"""A cluster under churn: the workload of `allot bench core`, seeded and repeatable.

Four card models, one card in a hundred unhealthy, requests with a cloud-like mix (most of them a
part of one card, few of several cards). The cluster is filled by scatter to two thirds, which is
the fragmented case; then every step ends one pod picked at random and decides one new one.
The cards may be MIG cards instead, cut into instances on demand, or Ascend chips with templates.
Everything goes through `apply`, as it does in the services. The scatter's cards are picked as
binpack picks them whatever the policy is: plain loops that look ahead would take minutes.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from random import Random

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, run_cycle
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies import POLICIES
from allotment.core.placement.policies.valued import Valued
from allotment.core.placement.rules.predicates import fits
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.events import (
    Decided,
    Event,
    MixLearned,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    QueueObserved,
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
from allotment_proto.volcano import device_config

GIB = 1 << 30
MODELS = (
    ("NVIDIA-A100-80GB", 81_920, 40),
    ("NVIDIA-L40S", 46_068, 25),
    ("NVIDIA-Tesla T4", 15_360, 20),
    ("NVIDIA-H100", 81_559, 15),
)
WORDS = ("A100", "L40S", "T4", "H100")
FILL = 0.66
CARDS = 8
MISFIT_CARDS = 1_000
DEFAULT_QUEUE = "default"
MISSES_MAX = 10_000
DRAWN_AT_A_TIME = 256
DEVICES = ("hami-core", "mig", "ascend")
"""What the cluster's cards are."""
MIG_MODEL = "NVIDIA-NVIDIA A100-SXM4-80GB"
CHIP = "Ascend910B3"
CHIP_MIB, CHIP_CORES = 65_536, 20
CUT_SHAPES = 16
"""So many different requests need no finer steps: templates × steps of CPU are more."""
TEMPLATES = (("vir05_1c_16g", 16_384), ("vir10_3c_32g", 32_768), ("", CHIP_MIB))


def shapes(
    count: int, random: Random, most_cards: int = CARDS, devices: str = DEVICES[0]
) -> list[PodRequest]:
    """`count` different requests, none for more than so many cards."""
    found: dict[PodRequest, None] = {}
    while devices != "hami-core" and len(found) < count:
        found[_cut_shape(random, devices, finer=-(-count // CUT_SHAPES))] = None
    while len(found) < count:
        number = random.choice((1,) * 9 + (2, 2, 4, 8))
        percent = random.choice((0, 0, 0, 0, 25, 50, 100)) if number < 8 else 100
        memory_mib = 256 * random.randint(8, 160) if not percent else 0
        cores = 100 if percent == 100 else random.choice((0, 10, 15, 20, 25, 30, 50))
        types = (
            None
            if random.random() < 0.6
            else tuple(sorted(random.sample(WORDS, random.randint(1, 3))))
        )
        request = PodRequest(
            cpu_milli=2000 * number,
            memory_bytes=8 * GIB * number,
            devices=(DeviceRequest("vgpu", 0, "main", number, memory_mib, percent, cores),),
            selection=Selection(use_types=types),
        )
        if number <= most_cards:
            found[request] = None
    return list(found)


def _cut_shape(random: Random, devices: str, finer: int) -> PodRequest:
    """A request for one MIG instance or one share of a chip; they differ in CPU as well, in steps
    that are finer by the same factor, since of chips there are only as many shares as templates.
    """
    if devices == "mig":
        memory_mib = 256 * random.randint(8, 160)
        ask = DeviceRequest("vgpu", 0, "main", 1, memory_mib, 0, 0)
    else:
        name, memory_mib = random.choice(TEMPLATES)
        templates = (name,) if name else ()
        ask = DeviceRequest("ascend", 0, "main", 1, memory_mib, 0, 0, CHIP, templates)
    cpu_milli = 500 * random.randint(1, 8 * finer) // finer
    return PodRequest(cpu_milli=cpu_milli, memory_bytes=8 * GIB, devices=(ask,))


def equal_node(
    number: int, model: str, card_mib: int, extended: tuple[tuple[str, int], ...] = ()
) -> NodeObserved:
    """A node with `CARDS` cards of one model, each with `card_mib` MiB, that all are shared."""
    cards = tuple(
        CardFact(f"GPU-{number}-{card}", card, model, 10, card_mib, 100, True, "hami-core")
        for card in range(CARDS)
    )
    return _node(number, Inventory("vgpu", "hami-core", cards), extended)


def node_fact(
    number: int, random: Random, cards_per_node: int = CARDS, devices: str = DEVICES[0]
) -> NodeObserved:
    """An idle node with cards of one of the models."""
    weights = [weight for _, _, weight in MODELS]
    model, memory_mib, _ = random.choices(MODELS, weights)[0]
    family, mode, cores, table = "vgpu", devices, 100, -1
    if devices == "mig":
        model, memory_mib, table = MIG_MODEL, 81_920, 0
    elif devices == "ascend":
        family, mode, model, memory_mib, cores = "ascend", "", CHIP, CHIP_MIB, CHIP_CORES
    cards = tuple(
        CardFact(
            f"GPU-{number}-{index}",
            index,
            model,
            10,
            memory_mib,
            cores,
            random.random() > 0.01,
            mode,
            table,
        )
        for index in range(cards_per_node)
    )
    tables = (
        (device_config.geometries_for(device_config.default(), MIG_MODEL),)
        if devices == "mig"
        else ()
    )
    return _node(number, Inventory(family, mode, cards, tables))


def _node(
    number: int, inventory: Inventory, extended: tuple[tuple[str, int], ...] = ()
) -> NodeObserved:
    return NodeObserved(
        name=f"gpu-{number:06d}",
        uid=str(number),
        rv=1,
        cpu_milli=128_000,
        memory_bytes=1024 * GIB,
        pods=110,
        extended=extended,
        inventories=(inventory,),
    )


def queue_facts(count: int) -> Iterator[QueueObserved]:
    """So many queues, named by `queue_name`."""
    for number in range(count):
        name = queue_name(number)
        yield QueueObserved(uid=f"queue-{name}", name=name, rv=1, created_ms=1, weight=1)


def queue_name(number: int) -> str:
    """The first queue is the one that pods without a queue are in."""
    return f"q{number}" if number else DEFAULT_QUEUE


def misfit(request: PodRequest) -> PodRequest:
    """The request for more cards than any node has."""
    device = msgspec.structs.replace(request.devices[0], count=MISFIT_CARDS)
    return msgspec.structs.replace(request, devices=(device,))


class Churn:
    """A filled cluster, and the steps that follow."""

    def __init__(
        self,
        nodes: int,
        wanted: list[PodRequest],
        random: Random,
        policy: Policy,
        *,
        cards_per_node: int = CARDS,
        devices: str = DEVICES[0],
        is_each_its_own: bool = False,
        queues: int = 0,
        misfits: int = 0,
        fill: float = FILL,
    ) -> None:
        """The policy's mix is recorded as an event, as services learn it. With `is_each_its_own` no
        two pods have an equal request. With `queues` decisions are made by rounds over queues.
        Of a hundred pods that come later `misfits` fit nowhere. `fill` is the part of the cards'
        memory that is taken first.
        """
        self.state = ClusterState()
        self._is_each_its_own = is_each_its_own
        self._queues, self._misfits = queues, 0
        self._random = random
        self._wanted = wanted
        self._weights = list(accumulate(1 / request.devices[0].count for request in wanted))
        self._drawn: list[PodRequest] = []
        self._pods = 0
        self._running: list[str] = []
        filling = policy
        if isinstance(POLICIES.get(policy.device_policy), Valued):
            filling = msgspec.structs.replace(policy, device_policy="binpack", mix=())
        self._apply(PolicyLoaded(policy=filling, source="bench", text_sha256=""))
        for number in range(nodes):
            self._apply(node_fact(number, random, cards_per_node, devices))
        for queue in queue_facts(queues):
            self._apply(queue)
        self._fill(fill)
        self._misfits = misfits
        if filling != policy:
            self._apply(PolicyLoaded(policy=policy, source="bench", text_sha256=""))
            self._apply(
                MixLearned(policy=policy.device_policy, mix=policy.mix, pods=len(self._running))
            )

    def step(self, decide: Callable[[str], Outcome]) -> bool:
        """End one pod, let `decide` place a new one; whether it found a place."""
        self.end_one()
        uid = self._arrive(self._pick())
        outcome = decide(uid)
        if not outcome.placements:
            self._apply(PodGone(uid=uid, namespace="bench", name=uid, rv=3))
            return False
        self.decided((uid,), outcome)
        return True

    def end_one(self) -> None:
        """One of the pods that run, picked at random, ends."""
        if self._running:
            at = self._random.randrange(len(self._running))
            ended, self._running[at] = self._running[at], self._running[-1]
            self._running.pop()
            self._apply(PodGone(uid=ended, namespace="bench", name=ended, rv=3))

    def arrive(self, count: int) -> None:
        """So many pods come and wait."""
        for _ in range(count):
            self._arrive(self._pick())

    def decided(self, batch: tuple[str, ...], outcome: Outcome) -> None:
        """What came of a batch is in the log; those that have a place run."""
        basis = self.state.seq
        self._apply(
            Decided(
                cycle="bench",
                basis=basis,
                checked=basis,
                policy=self.state.policy_seq,
                batch=batch,
                placements=outcome.placements,
                refusals=outcome.refusals,
                admissions=outcome.admissions,
            )
        )
        self._running += [placement.uid for placement in outcome.placements]

    def decider(self, ranker: Ranker) -> Callable[[str], Outcome]:
        """One cycle for one pod; while there are queues, one round."""
        if not self.state.is_batched:
            return lambda uid: run_cycle(self.state, (uid,), ranker)
        rounds = Rounds(self.state)
        return lambda uid: rounds.run((uid,), ranker)

    def _apply(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)

    def _pick(self) -> PodRequest:
        if not self._drawn:
            self._drawn = self._random.choices(
                self._wanted, cum_weights=self._weights, k=DRAWN_AT_A_TIME
            )
        request = self._drawn.pop()
        if self._misfits and self._random.randrange(100) < self._misfits:
            request = misfit(request)
        if self._is_each_its_own:
            memory_bytes = request.memory_bytes + self._pods
            request = msgspec.structs.replace(request, memory_bytes=memory_bytes)
        return request

    def _arrive(
        self, request: PodRequest, node: str = "", holdings: tuple[Holding, ...] = ()
    ) -> str:
        self._pods += 1
        uid = f"pod-{self._pods}"
        fact = PodObserved(
            uid=uid,
            namespace="bench",
            name=uid,
            rv=1,
            created_ms=self._pods,
            queue=queue_name(self._pods % self._queues) if self._queues else "",
            scheduler="allotment",
            phase="Pending",
            request=request,
            node=node,
            holdings=holdings,
        )
        self._apply(fact)
        return uid

    def _fill(self, part: float) -> None:
        """Put pods on random nodes, as their owners would find them, until the cards are full."""
        state, random = self.state, self._random
        nodes = list(state.nodes.values())
        books = [ledger for node in nodes for ledger in node.ledgers.values()]
        capacity = sum(card.fact.memory_mib for ledger in books for card in ledger.cards)
        used = misses = 0
        while used < part * capacity and misses < MISSES_MAX:
            request, node = self._pick(), random.choice(nodes)
            fit = fits(node, request, state.policy)
            if isinstance(fit, str):
                misses += 1
                continue
            misses = 0
            holdings = tuple(h for chosen in fit.chosen for h in chosen.holdings)
            self._running.append(self._arrive(request, node.name, holdings))
            used += sum(h.memory_mib for h in holdings)
