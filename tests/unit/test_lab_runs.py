"""The lab keeps the books, is repeatable, and decides what the log's replay decides again."""

from hashlib import sha256
from random import Random

import msgspec
import pytest

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies.typical import PPM, cluster_fragmentation
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_lab import measures, tuning
from allotment_lab.dice import Dice
from allotment_lab.engine import Simulation, Sink
from allotment_lab.openb import parse_pods
from allotment_lab.runs import one_by_one
from allotment_lab.workload import Arrival
from tests.replaying import verify
from tests.unit.lab_parts import (
    NODES,
    Kept,
    come_and_go,
    experiment,
    loaded,
    made_up,
    policy,
    silent,
)


def simulation(
    name: str = "binpack", *, sink: Sink | None = None, dice: Random | None = None
) -> Simulation:
    def ranker(state: ClusterState) -> Ranker:
        return Board(state) if dice is None else Dice(state, Board(state), dice)

    return Simulation(NODES, policy(name), ranker, sink=sink)


@pytest.mark.parametrize("name", POLICY_NUMBERS)
@pytest.mark.parametrize("with_dice", [False, True])
def test_what_is_allocated_is_what_the_cards_holders_hold(name: str, with_dice: bool) -> None:
    simulated = simulation(name, dice=Random(3) if with_dice else None)
    totals = experiment(simulated, 42)
    state = simulated.state
    held = sum(
        holding.memory_mib
        for node in state.nodes.values()
        for books in node.ledgers.values()
        for card in books.cards
        for holding in card.holders.values()
    )
    assert totals.allocated_milli == held > 0
    assert totals.placed + totals.refused == totals.arrived
    assert totals.placed == len(state.pods)
    assert sum(totals.refusals.values()) == totals.refused > 0
    assert check(state) == []
    assert oversold(state) == []


def test_a_seed_is_one_run_and_another_is_another() -> None:
    first, again, other = (experiment(simulation(), seed) for seed in (1, 1, 2))
    assert first == again
    assert first.trace_sha256 != other.trace_sha256
    dice = [experiment(simulation(dice=Random(seed)), 1) for seed in (1, 1, 2)]
    assert dice[0] == dice[1]
    assert dice[0].trace_sha256 != dice[2].trace_sha256


@pytest.mark.parametrize("name", POLICY_NUMBERS)
@pytest.mark.parametrize("churn", [False, True])
def test_replay_makes_every_decision_again(name: str, churn: bool) -> None:
    kept = Kept()
    simulated = simulation(name, sink=kept.sink)
    totals = come_and_go(simulated, made_up(120, 4)) if churn else experiment(simulated, 9)
    report = verify(kept.log.records)
    assert report.identical == report.decisions > 0
    assert report.decisions <= totals.decisions
    assert report.state_sha256 == sha256(snapshot.encode(simulated.state)).hexdigest()


def test_pods_wait_in_order_and_take_the_room_that_others_leave() -> None:
    """One node of two cards. `first` has both for 100 s; two wait; the older one is next."""
    rows = [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time",
        "first,1,1,2,1000,0,100",
        "older,1,1,2,1000,10,150",
        "newer,1,1,2,1000,20,400",
        "gives-up,1,1,2,1000,30,40",
        "at-once,1,1,1,500,200,200",
    ]
    arrivals, _ = parse_pods("\n".join(rows), "pods")
    simulated = Simulation(NODES[:1], policy("binpack"), Board)
    totals = come_and_go(simulated, arrivals)
    assert totals.waits_s == [0, 90, 130]
    assert (totals.placed, totals.refused) == (3, 2)
    assert totals.peak_milli == 2000
    assert totals.refusals == {"InsufficientGPUMemory": 2}
    assert simulated.allocated_milli == 0
    assert simulated.state.pods == {}


def test_a_pod_that_runs_so_long_starts_when_it_is_placed() -> None:
    whole = made_up(1, 1)[0].fact
    asks = parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,1000\n", "p")[0][0]
    facts = [
        msgspec.structs.replace(whole, uid=uid, name=uid, request=asks.fact.request)
        for uid in ("a", "b", "c")
    ]
    arrivals = [Arrival(fact, at, runs_s=50) for at, fact in enumerate(facts)]
    totals = come_and_go(Simulation(NODES[:1], policy("binpack"), Board), arrivals)
    assert totals.waits_s == [0, 49, 98]


def test_pods_that_others_placed_only_take_room() -> None:
    (pod,) = parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,64000,1,0,0\n", "p")[0]
    theirs = msgspec.structs.replace(pod.fact, uid="theirs", node="g0", scheduler="other")
    simulated = Simulation(NODES[:1], policy("binpack"), Board)
    one_by_one(simulated, [pod], [Arrival(theirs)], silent)
    totals = simulated.totals(())
    assert (totals.arrived, totals.placed) == (1, 0)
    assert totals.refusals == {"InsufficientCPU": 1}


def test_tuning_reaches_the_load_from_below_and_from_above() -> None:
    simulated = simulation()
    for percent in (10, 130, 400):
        arrivals = loaded(simulated, 3, percent)
        total = sum(simulated.wanted.milli(a.fact.request) for a in arrivals)
        target = simulated.capacity_milli * percent // 100
        assert abs(total - target) <= 4000, "the last pod has at most four cards"
        assert len({a.fact.uid for a in arrivals}) == len(arrivals)
    cpu_only = [a for a in made_up(60, 7) if not a.fact.request.devices]
    with pytest.raises(ValueError, match="none of the pods asks for a card"):
        tuning.tuned(cpu_only, 1000, lambda a: 0, Random(1))


@pytest.mark.parametrize("seed", range(4))
def test_fragments_are_those_that_asking_every_card_finds(seed: int) -> None:
    simulated = simulation("spread")
    for arrival in loaded(simulated, seed, 20 * seed):
        simulated.decide(simulated.observe(arrival))
    mix = measures.typical((a.fact.request for a in made_up(60, 7)), NODES)
    state = simulated.state
    asked = cluster_fragmentation(state.nodes.values(), mix, state.policy)
    found = measures.fragmented_milli(state, mix)
    assert 0 <= found - asked.stranded_nano // PPM <= 1
    assert found > 0


def test_a_cluster_without_cards_has_no_fragments() -> None:
    simulated = Simulation(NODES[-1:], policy("none"), Board)
    mix = measures.typical((a.fact.request for a in made_up(60, 7)), NODES)
    assert measures.fragmented_milli(simulated.state, mix) == 0


def test_an_amount_of_memory_is_held_against_the_cards_that_it_may_get() -> None:
    (small, large) = (
        msgspec.structs.replace(
            NODES[at],
            name=str(at),
            inventories=tuple(
                msgspec.structs.replace(
                    books,
                    cards=tuple(
                        msgspec.structs.replace(card, memory_mib=size) for card in books.cards
                    ),
                )
                for books in NODES[at].inventories
            ),
        )
        for at, size in ((0, 1000), (1, 4000))
    )
    wanted = measures.Wanted([small, large])
    by_model = {
        spec: parse_pods(
            f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,1,1,500,{spec}\n", "p"
        )[0][0].fact.request
        for spec in ("A", "B", "")
    }
    assert wanted.milli(by_model["A"]) == 500
    assert wanted.milli(by_model["B"]) == 125
    assert wanted.milli(by_model[""]) == 1000 * 500 // 3000
