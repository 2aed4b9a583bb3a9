"""Best fit on MIG: no larger instance than has to be, of all that can be had anywhere."""

import pytest

from allotment.core.config.policy import built_in, parse
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import Event, NodeObserved, PolicyLoaded
from allotment_proto.facts import CardFact, Inventory, Policy, Selection
from allotment_proto.volcano import device_config
from tests import build

MODEL = "NVIDIA-NVIDIA A100-SXM4-80GB"
TABLE = device_config.geometries_for(device_config.default(), MODEL)
BEST_FIT = Policy(fit_weight=10, mig_order="best-fit")
OLD = Policy(fit_weight=10)


def cut(name: str, cards: int) -> NodeObserved:
    """A node of 80 GB cards that are cut."""
    facts = tuple(
        CardFact(f"{name}-{index}", index, MODEL, 7, 81920, 100, True, "mig", 0)
        for index in range(cards)
    )
    return build.node(name, 0, inventories=(Inventory("vgpu", "mig", facts, (TABLE,)),))


def shared(name: str) -> NodeObserved:
    return build.node(name, 2)


class World:
    """Places pods one by one, on both roads."""

    def __init__(self, policy: Policy, *nodes: NodeObserved) -> None:
        loaded = PolicyLoaded(policy=policy, source="test", text_sha256="")
        self.state = build.state_of(loaded, *nodes)
        self.board = Board(self.state)

    def place(self, uid: str, memory_mib: int, mode: str | None = None) -> str:
        """Card and instance of a pod; empty if it is refused."""
        wanted = build.request(build.wants(memory_mib, 0), selection=Selection(mode=mode))
        self._tell(build.pod(uid, wanted))
        outcome: Outcome = run_cycle(self.state, (uid,), Evaluator(self.state))
        assert run_cycle(self.state, (uid,), self.board) == outcome
        if not outcome.placements:
            return ""
        self._tell(build.decided(*outcome.placements))
        (held,) = outcome.placements[0].holdings
        return f"{held.card} {held.instance}".strip()

    def _tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)


def test_a_small_pod_leaves_a_large_instance_of_a_card_in_use_alone() -> None:
    world = World(BEST_FIT, cut("n1", 4))
    assert world.place("big", 30000) == "n1-0 group3-0"
    small = world.place("small", 5000)
    assert small.startswith("n1-1 group1"), small
    assert world.place("next", 5000).startswith("n1-1 group1"), "of equal instances binpack chooses"
    assert world.place("big-2", 30000) == "n1-0 group3-1"


def test_a_smaller_instance_may_be_on_another_node() -> None:
    world = World(BEST_FIT, cut("n1", 1), cut("n2", 1))
    assert world.place("big", 30000) == "n1-0 group3-0"
    assert world.place("small", 5000).startswith("n2-0 group1")


def test_a_large_instance_is_given_where_no_smaller_is_left() -> None:
    world = World(BEST_FIT, cut("n1", 1))
    assert world.place("big", 30000) == "n1-0 group3-0"
    assert world.place("small", 5000) == "n1-0 group3-1"
    assert world.place("none-left", 5000) == ""


def test_all_the_rooms_of_four_cards_are_used() -> None:
    """With the instances taken as they come the last of these found no place."""
    world = World(BEST_FIT, cut("n1", 3))
    assert world.place("big", 30000)
    for number in range(14):
        assert world.place(f"small-{number}", 5000).partition(" ")[0] != "n1-0"
    assert world.place("last", 40000) == "n1-0 group3-1"


def test_a_pod_that_shares_gladly_is_not_kept_from_a_share() -> None:
    world = World(BEST_FIT, cut("n1", 1), shared("n2"))
    assert world.place("big", 30000, mode="mig")
    assert "group" not in world.place("any", 12000)


def test_logs_that_tell_of_no_best_fit_are_decided_as_they_were() -> None:
    assert Policy().mig_order == "least-stranded"
    world = World(OLD, cut("n1", 4))
    assert world.place("big", 30000) == "n1-0 group3-0"
    assert world.place("small", 5000) == "n1-0 group3-1"


def test_best_fit_is_what_a_policy_has_that_says_nothing_else() -> None:
    assert built_in(("a",)).mig_order == "best-fit"
    assert parse("actions: allocate", "test", ("a",)).policy.mig_order == "best-fit"
    text = """
tiers:
- plugins:
  - name: allotment
    arguments: {allotment.MigGeometryOrder: least-stranded}
"""
    assert parse(text, "test", ("a",)).policy.mig_order == "least-stranded"


@pytest.mark.parametrize("memory_mib", [1, 9728, 9729, 19968, 19969, 40192, 40193])
def test_an_empty_card_gives_the_smallest_that_it_can_be_cut_into(memory_mib: int) -> None:
    world = World(BEST_FIT, cut("n1", 2))
    instance = world.place("p", memory_mib).partition(" ")[2]
    group, _, position = instance.rpartition("-")
    (geometry,) = [each for each in TABLE if each.name == group]
    sizes = [p.memory_mib for p in geometry.profiles for _ in range(p.count)]
    every = {p.memory_mib for each in TABLE for p in each.profiles}
    assert sizes[int(position)] == min(size for size in every if size >= memory_mib)
