"""The cycle decides as plain loops over the specification's text do, on any small cluster."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_proto.events import Event, NodeObserved, Placement, PodObserved, PolicyLoaded
from tests import oracle
from tests import strategies as own
from tests.build import decided
from tests.model import Model


@st.composite
def clusters(draw: st.DrawFn) -> list[Event]:
    """A policy, some nodes, some pods that already run somewhere, and some that wait."""
    events: list[Event] = [
        PolicyLoaded(policy=draw(own.policies), source="", text_sha256=""),
    ]
    events += [shared(draw(own.nodes(name))) for name in own.NODES[: draw(st.integers(1, 3))]]
    events += [alone(draw(own.pods(uid))) for uid in own.PODS]
    return events


def shared(node: NodeObserved) -> NodeObserved:
    """The node with cards that are shared by amounts: the oracle knows no others. None of them is
    whole for another plugin as well.
    """
    replace = msgspec.structs.replace
    inventories = (
        replace(
            inventory,
            mode="hami-core" if inventory.family == "vgpu" else inventory.mode,
            tables=(),
            cards=tuple(replace(card, table=-1) for card in inventory.cards),
        )
        for inventory in node.inventories
    )
    return replace(node, inventories=tuple(inventories), listed_twice=())


def alone(pod: PodObserved) -> PodObserved:
    """The pod without what it keeps apart from and without a limit to the instances it may get,
    neither of which is in the oracle's text.
    """
    selection = msgspec.structs.replace(pod.request.selection, pieces_below_mib=0)
    request = msgspec.structs.replace(pod.request, apart=(), selection=selection)
    return msgspec.structs.replace(pod, request=request)


@given(clusters(), st.permutations(own.PODS), st.integers(0, 6))
def test_same_decisions(events: list[Event], order: list[str], first: int) -> None:
    """Two cycles, so that the second meets what the first placed."""
    state, model = ClusterState(), Model()
    evaluator = Evaluator(state)
    seq = 0
    for event in events:
        seq += 1
        apply(state, event, seq)
        model.observe(event, seq)
    for batch in (order[:first], order[first:]):
        wanted = oracle.run(model, state.policy, batch)
        outcome = run_cycle(state, batch, evaluator)
        got = {p.uid: (p.node, p.holdings, p.score_micro) for p in outcome.placements}
        assert got == {
            uid: (a.node, a.holdings, a.score_micro) for uid, a in wanted.items() if a.node
        }
        refused = {r.uid: dict(r.reasons) for r in outcome.refusals}
        assert refused == {uid: a.reasons for uid, a in wanted.items() if not a.node}
        event = decided(*outcome.placements)
        seq += 1
        apply(state, event, seq)
        model.observe(event, seq)
        assert not state.voided
        assert check(state) == []


@given(clusters(), st.permutations(own.PODS))
def test_one_batch_decides_like_one_pod_at_a_time(events: list[Event], order: list[str]) -> None:
    """What a trial assumes is what applying the decision would have made true."""
    together, single = ClusterState(), ClusterState()
    for seq, event in enumerate(events, start=1):
        apply(together, event, seq)
        apply(single, event, seq)
    outcome = run_cycle(together, order, Evaluator(together))
    alone: list[Placement] = []
    for seq, uid in enumerate(order, start=len(events) + 1):
        found = run_cycle(single, [uid], Evaluator(single))
        alone.extend(found.placements)
        apply(single, decided(*found.placements), seq)
    assert list(outcome.placements) == alone
