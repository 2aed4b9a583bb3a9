"""The lab on the board and on the plain loops places every pod alike, whatever happens."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_lab import measures
from allotment_lab.engine import Simulation, Totals
from allotment_proto.events import NodeGone, NodeObserved
from allotment_proto.facts import Inventory
from tests.unit.lab_parts import NODES, come_and_go, experiment, made_up, policy


def knowing(name: str, ranker: Callable[[ClusterState], Ranker]) -> Simulation:
    """A simulation whose policy has learned of the pods what it wants."""
    requests = [arrival.fact.request for arrival in made_up(60, 7)]
    prelude = measures.learned(name, requests, NODES)
    return Simulation(NODES, policy(name), ranker, prelude=prelude)


def with_changing_nodes(simulated: Simulation, seed: int) -> Totals:
    """Pods come and go while nodes join, go, come back smaller, and lose and regain cards."""
    random = Random(seed)
    alive: list[str] = []
    for number, arrival in enumerate(made_up(70, seed)):
        simulated.now_s += 1
        if number % 3 == 2:
            state = simulated.state
            apply(state, changed(random, number), state.seq + 1)
        if len(alive) > 15:
            simulated.leave(alive.pop(random.randrange(len(alive))))
        uid = simulated.observe(arrival)
        simulated.decide(uid)
        alive.append(uid)
        for waits in alive[-4:-1]:
            if simulated.state.pods[waits].allocation is None:
                simulated.decide(waits)
    return simulated.totals(())


def changed(random: Random, number: int) -> NodeObserved | NodeGone:
    """A node that goes, or is seen: for the first time, or with other amounts and other cards."""
    node, rv = random.choice(NODES[:-1]), number + 2
    kind = random.choice(("goes", "joins", "shrinks", "is ill", "as it was", "as it was"))
    if kind == "goes":
        return NodeGone(name=node.name, uid=node.uid, rv=rv)
    if kind == "joins":
        return msgspec.structs.replace(
            node,
            name=f"late-{number}",
            uid=f"late-{number}",
            inventories=with_cards(node, str(number)),
        )
    if kind == "as it was":
        return msgspec.structs.replace(node, rv=rv)
    cards = with_cards(node, "", is_less=kind == "shrinks", is_ill=kind == "is ill")
    cpu_milli = node.cpu_milli // 4 if kind == "shrinks" else node.cpu_milli
    return msgspec.structs.replace(node, rv=rv, cpu_milli=cpu_milli, inventories=cards)


def with_cards(
    node: NodeObserved, suffix: str, *, is_less: bool = False, is_ill: bool = False
) -> tuple[Inventory, ...]:
    """The node's cards under other names, with half of their memory, or the first of them ill."""
    return tuple(
        msgspec.structs.replace(
            books,
            cards=tuple(
                msgspec.structs.replace(
                    card,
                    id=card.id + suffix,
                    memory_mib=card.memory_mib // (2 if is_less else 1),
                    healthy=not (is_ill and card.index == 0),
                )
                for card in books.cards
            ),
        )
        for books in node.inventories
    )


@pytest.mark.parametrize("name", POLICY_NUMBERS)
@pytest.mark.parametrize("kind", ["arrivals", "churn", "changing nodes"])
def test_the_board_and_the_plain_loops_place_alike(name: str, kind: str) -> None:
    def run(simulated: Simulation) -> Totals:
        if kind == "changing nodes":
            return with_changing_nodes(simulated, 5)
        if kind == "churn":
            return come_and_go(simulated, made_up(70, 4))
        return experiment(simulated, 5)

    fast, slow = knowing(name, Board), knowing(name, Evaluator)
    totals = run(fast)
    again = run(slow)
    assert totals.trace_sha256 == again.trace_sha256
    assert totals == again
    assert snapshot.encode(fast.state) == snapshot.encode(slow.state)
    assert totals.placed > 12
    assert totals.refused > 0
    assert check(fast.state) == []
