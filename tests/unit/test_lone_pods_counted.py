"""What a round looks at does not grow with the pods that run or wait beside its batch."""

from collections.abc import Iterator

import pytest

from allotment.core.ledger.model import SINGLE
from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import queue_room
from allotment.core.queues.session import Session
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.batch_parts import gone
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.rounds_world import World

RUNNING = 40
PROPORTION = Policy(
    tiers=((PluginUse("gang"),), (PluginUse("proportion"), PluginUse("overcommit"))),
    actions=("enqueue", "allocate"),
)


def world_of(policy: Policy, running: int = RUNNING) -> World:
    """A node for many, with so many that run on it."""
    node = build.node("n1", 0, cpu_milli=1_000_000, pods=1_000)
    world = World(node, queue("default"), policy=policy)
    for number in range(running):
        world.tell(lone(f"r{number}", node="n1", phase="Running"))
    return world


def opened(world: World) -> int:
    session = world.rounds.session()
    session.open_all()
    return session.world.opened


@pytest.mark.parametrize("policy", [GATED, PROPORTION])
def test_none_of_those_that_run_is_made_a_job(policy: Policy) -> None:
    world = world_of(policy)
    assert opened(world) == 0
    world.tell(gone("r0"))
    world.tell(lone("r-more", node="n1", phase="Running"))
    assert opened(world) == 0


def test_only_who_is_tried_is_made_a_job() -> None:
    world = world_of(GATED, running=0)
    for number in range(RUNNING):
        world.tell(lone(f"w{number}"))
    before = opened(world)
    session = world.rounds.session()
    enqueue(session, [SINGLE + "w1", SINGLE + "w2"])
    assert session.world.opened - before <= 2


@pytest.mark.parametrize("policy", [GATED, PROPORTION])
def test_the_books_are_those_of_each_counted_alone(policy: Policy) -> None:
    world = world_of(policy)
    for number in range(5):
        world.tell(lone(f"w{number}"))
    world.tell(gone("r3"))
    kept, afresh = world.rounds.session(), Rounds(world.state).session()
    held = {"cpu": (RUNNING - 1) * 2_000, "pods": RUNNING - 1}
    for session in (kept, afresh):
        assert _allocated(session) == held


def _allocated(session: Session) -> dict[str, int]:
    found = session.plugin("capacity") or session.plugin("proportion")
    books = getattr(found, "books")  # noqa: B009  (of either plugin)
    return {name: int(amount) for name, amount in books["default"].allocated.items()}


class _Counting(dict[str, None]):
    """Counts how often its names are gone through."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def test_what_is_tried_for_a_refused_pod_goes_through_those_that_run_a_few_times() -> None:
    """Once for each of them took 18 s beside 10,000."""
    world = world_of(GATED)
    counting = world.state.singles = _Counting(world.state.singles)
    room = queue_room(world.state, "default")
    assert sorted(room.holders) == sorted((f"r{number}",) for number in range(RUNNING))
    assert counting.times <= 3
