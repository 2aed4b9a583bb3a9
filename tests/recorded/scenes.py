"""What is recorded, by the name of its file. Everything here is the same each time it is played.

* Every golden script: races, failed bindings, void decisions, MIG, Ascend, preemption, reclaim …
* `busy`, `queues`, `preempted`: the logs of the golden screens.
* `faults-SEED`: simulated services whose messages, bindings and appends are lost, late or doubled.
* `segments-SEED`: the same, with segments of the log that are closed and checkpoints.
* `churn-POLICY`: pods come and go under each device policy.
* `walk-SEED`: queues, gangs, evictions and nominations at random, and pods and groups that change
  what they are: pods join a PodGroup after they ran alone, groups are made again, queues change.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from allotment.core.logport import Record
from allotment.core.placement.evaluator import Evaluator
from allotment_lab.engine import Simulation
from allotment_lab.measures import learned
from allotment_proto.codec import encode
from allotment_proto.events import Envelope, Event
from allotment_proto.registry import subject_of
from tests.golden.interpreter import Interpreter
from tests.property.batch_world import OPS, World
from tests.property.identity import IDENTITY, other_policy
from tests.recording import busy_cluster
from tests.recording_batch import busy_queues, joined_after_it_ran, preempted
from tests.sim.world import World as Services
from tests.unit.lab_parts import NODES, Kept, come_and_go, made_up, policy

SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[1] / "golden" / "scripts").glob("*.txt"))
    if "\ndecide " in path.read_text(encoding="utf-8")
]
POLICIES = ("binpack", "spread", "none", "best-fit", "fill-ahead")
SEEDS_OF_FAULTS = range(6)
SEEDS_OF_SEGMENTS = (7, 11)
SEEDS_OF_WALKS = range(8)
STEPS = 150


def script(path: Path) -> list[Record]:
    world = Interpreter()
    for block in path.read_text(encoding="utf-8").split("\n\n")[1:]:
        for command in block.split("\n----")[0].splitlines():
            world.run(command)
    return world.log.records


def faults(seed: int) -> list[Record]:
    world = Services(seed)
    world.run()
    return world.log.records


def churn(name: str) -> list[Record]:
    kept, arrivals = Kept(), made_up(120, 4)
    mix = learned(name, [arrival.fact.request for arrival in arrivals], NODES)
    come_and_go(Simulation(NODES, policy(name), Evaluator, prelude=mix, sink=kept.sink), arrivals)
    return kept.log.records


class Walk(World):
    """A world that keeps its records."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        super().__init__()

    def tell(self, event: Event) -> None:
        super().tell(event)
        events = (event,)
        envelope = Envelope(at_ms=0, by="test", events=events)
        msg_id = f"test/{self.seq}"
        record = Record(self.seq, subject_of(event), encode(envelope), self.seq * 1_000_000, msg_id)
        self.records.append(record)


def walk(seed: int) -> list[Record]:
    random, world = Random(seed), Walk()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 3, 3)
    steps = (*OPS, *OPS, *IDENTITY, other_policy)
    for _ in range(STEPS):
        a, b, c = (random.randrange(6) for _ in range(3))
        random.choice(steps)(world, a, b, c)
    return world.records


SCENES: Mapping[str, Callable[[], list[Record]]] = {
    **{path.stem.replace("_", "-"): partial(script, path) for path in SCRIPTS},
    "busy": lambda: busy_cluster().records,
    "queues": lambda: busy_queues().records,
    "preempted": lambda: preempted().records,
    "joined": lambda: joined_after_it_ran().records,
    **{f"faults-{seed}": partial(faults, seed) for seed in SEEDS_OF_FAULTS},
    **{f"segments-{seed}": partial(faults, seed) for seed in SEEDS_OF_SEGMENTS},
    **{f"churn-{name}": partial(churn, name) for name in POLICIES},
    **{f"walk-{seed}": partial(walk, seed) for seed in SEEDS_OF_WALKS},
}
