"""A made-up trace, and experiments of the lab on it."""

from collections.abc import Sequence
from random import Random

from allotment.core.logport import Landed
from allotment_lab import measures, tuning
from allotment_lab.engine import Simulation, Totals
from allotment_lab.openb import parse_nodes, parse_pods
from allotment_lab.runs import ComeAndGo, one_by_one
from allotment_lab.workload import Arrival
from allotment_proto.codec import encode
from allotment_proto.events import Envelope
from allotment_proto.facts import Policy
from tests.memory_log import MemoryLogCore

NODES = parse_nodes(
    "sn,cpu_milli,memory_mib,gpu,model\n"
    + "".join(f"g{n},64000,262144,{2 + 2 * (n % 2)},{'AB'[n % 2]}\n" for n in range(6))
    + "c0,32000,131072,0,\n",
    "nodes",
)


def made_up(pods: int, seed: int) -> tuple[Arrival, ...]:
    """Parts of cards, whole cards, several cards, some of one model, some without any."""
    random = Random(seed)
    rows = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"]
    for number in range(pods):
        cards = random.choice((0, 1, 1, 1, 1, 1, 2, 4))
        milli = 0 if not cards else 1000 if cards > 1 else random.choice((250, 300, 500, 1000))
        spec = random.choice(("", "", "A", "A|B")) if cards else ""
        cpu, created = random.choice((1000, 4000)), random.randrange(400)
        deleted = created + random.randrange(200)
        rows.append(f"p{number:04d},{cpu},1024,{cards},{milli},{spec},{created},{deleted}")
    return parse_pods("\n".join(rows), "pods")[0]


def policy(name: str) -> Policy:
    return Policy(device_policy=name, device_weight=1, host_policy="none", host_weight=0)


def silent(arrived: int) -> None:
    """No progress is shown."""


def loaded(simulated: Simulation, seed: int, inflate_percent: int = 130) -> list[Arrival]:
    random = Random(seed)
    return tuning.tuned(
        tuning.shuffled(made_up(60, 7), random),
        simulated.capacity_milli * inflate_percent // 100,
        lambda arrival: simulated.wanted.milli(arrival.fact.request),
        random,
    )


def experiment(simulated: Simulation, seed: int) -> Totals:
    arrivals = loaded(simulated, seed)
    one_by_one(simulated, arrivals, (), silent)
    return simulated.totals(measures.typical((a.fact.request for a in arrivals), NODES))


def come_and_go(simulated: Simulation, arrivals: Sequence[Arrival]) -> Totals:
    run = ComeAndGo(simulated, measures.typical((a.fact.request for a in arrivals), NODES))
    run.run(arrivals, silent)
    return run.totals()


class Kept:
    """A run's records in a log."""

    def __init__(self) -> None:
        self.log = MemoryLogCore()

    def sink(self, subject: str, envelope: Envelope) -> None:
        number = self.log.last_seq + 1
        landed = self.log.try_append(subject, encode(envelope), msg_id=f"lab/{number}")
        assert landed == Landed(number)
