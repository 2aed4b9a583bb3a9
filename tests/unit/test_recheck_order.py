"""On the very state that a proposal stands on, the binder upholds all of it."""

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck_all, run_cycle
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_filter.groups import Groups
from allotment_proto.events import Event, NodeObserved, PodObserved, PolicyLoaded, QueueObserved
from allotment_proto.facts import (
    BUILT_IN_TIERS,
    Company,
    Expression,
    Inventory,
    PodRequest,
    PodTerm,
    Policy,
    Spread,
)
from tests import build, chips
from tests.strategies import MIG_TABLE
from tests.unit.rounds_world import group

CHIP = "Ascend910B3"
PODS_EACH = 3


def round_of(policy: Policy, min_member: int, nodes: list[Event], wanted: PodRequest) -> None:
    """Two groups of pods that are alike, whose turns alternate once they have their minimum."""
    state = ClusterState()
    groups = Groups(state)
    queue = QueueObserved(uid="default", name="default", rv=1)
    told: list[Event] = [PolicyLoaded(policy=policy, source="", text_sha256=""), queue, *nodes]
    for name in ("a", "b"):
        told.append(group(name, min_member))
        told += [
            build.pod(f"{name}{n}", wanted, group=f"default/{name}", labels=(("app", "web"),))
            for n in range(PODS_EACH)
        ]
    for seq, event in enumerate(told, start=1):
        apply(state, event, seq)
    found = groups.next_batch((), 16)
    assert found is not None
    outcome = Rounds(state).run(found.batch.uids, Board(state))
    names = [placement.uid[0] for placement in outcome.placements]
    assert len(names) == 2 * PODS_EACH
    assert names != sorted(names), "the groups take turns"
    assert_upheld(state, outcome)


def assert_upheld(state: ClusterState, outcome: Outcome) -> None:
    checked = recheck_all(state, outcome.placements, outcome.wholes)
    assert checked.dropped == ()
    assert checked.kept == outcome.placements
    assert checked.wholes == outcome.wholes


@pytest.mark.parametrize("min_member", [1, 2])
def test_instances_of_a_card_are_named_in_turn(min_member: int) -> None:
    card = build.card(0, table=0, mode="mig")
    node = build.node("n1", 0, inventories=(Inventory("vgpu", "mig", (card,), (MIG_TABLE,)),))
    wanted = build.request(build.wants(1_000, 0))
    round_of(Policy(tiers=BUILT_IN_TIERS), min_member, [node], wanted)


@pytest.mark.parametrize("device_policy", ["binpack", "spread"])
def test_containers_that_share_cards(device_policy: str) -> None:
    wanted = build.request(build.wants(2_000, 10), build.wants(3_000, 10, container=1))
    policy = Policy(tiers=BUILT_IN_TIERS, device_policy=device_policy)
    round_of(policy, 2, [build.node("n1", 3), build.node("n2", 2)], wanted)


def test_pods_that_keep_apart() -> None:
    term = PodTerm("host", ("default",), (Expression("app", "In", ("web",)),))
    wanted = PodRequest(1_000, 0, company=Company(spread=(Spread(term, 1, True, True),)))
    nodes: list[Event] = [build.node(name, 0, labels=(("host", name),)) for name in "wxyz"]
    round_of(Policy(tiers=BUILT_IN_TIERS), 1, nodes, wanted)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_minima_that_are_complete_only_after_others_had_a_turn(nodes: int) -> None:
    """A pod that asks for nothing is placed last, and is part of its group's minimum."""
    term = PodTerm("host", ("default",), (Expression("app", "In", ("web",)),))
    spread = Company(spread=(Spread(term, 1, True, True),))
    told: list[Event] = [
        PolicyLoaded(policy=Policy(tiers=BUILT_IN_TIERS), source="", text_sha256=""),
        QueueObserved(uid="default", name="default", rv=1),
        *(build.node(f"n{n}", 0, labels=(("host", f"n{n}"),)) for n in range(nodes)),
    ]
    for name in ("a", "b"):
        told.append(group(name, 3))
        for number, cpu_milli in enumerate((1_000, 1_000, 0)):
            wanted = PodRequest(cpu_milli, 0, company=spread)
            pod = build.pod(
                f"{name}{number}", wanted, group=f"default/{name}", labels=(("app", "web"),)
            )
            told.append(pod)
    state = ClusterState()
    groups = Groups(state)
    for seq, event in enumerate(told, start=1):
        apply(state, event, seq)
    found = groups.next_batch((), 16)
    assert found is not None
    outcome = Rounds(state).run(found.batch.uids, Board(state))
    made = [placement.uid for placement in outcome.placements]
    assert made == ["a0", "a1", "b0", "b1", "a2", "b2"]
    assert set(outcome.wholes) == {("a0", "a1", "a2"), ("b0", "b1", "b2")}
    assert_upheld(state, outcome)


def test_containers_whose_chips_should_be_of_one_network() -> None:
    """The first gets one of the larger network; what is left then is two networks of one."""
    entries = [chips.entry(f"c{n}", CHIP, network) for n, network in enumerate((0, 1, 1))]
    inventory = chips.inventory("ascend", chips.ascend_source(*entries))
    wanted = chips.request("ascend", chips.pod_source(chips.asks(CHIP), chips.asks(CHIP)))
    node: NodeObserved = chips.node("n1", inventory)
    pod: PodObserved = build.pod("a", wanted)
    state = build.state_of(node, pod)
    outcome = run_cycle(state, ["a"], Board(state))
    held = [(h.container, h.card) for h in outcome.placements[0].holdings]
    assert held == [(0, "c1"), (1, "c0")]
    assert_upheld(state, outcome)
