"""The bound on victims: no fewer than it says ever make room."""

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.queues.round.candidates import fewest
from allotment_proto.events import Event
from tests import build
from tests import strategies as own

CORES = (0, 20, 50, 100)


@settings(max_examples=max(200, settings().max_examples))
@given(own.lives(own.every_policy), st.data())
def test_no_fewer_victims_than_the_bound_make_room(
    events: list[Event], data: st.DataObject
) -> None:
    state = ClusterState()
    for seq, event in enumerate(events, start=1):
        apply(state, event, seq)
    nodes = [n for n in state.nodes.values() if n.fact is not None and n.allocations]
    requests = [pod.fact.request for pod in state.pods.values() if pod.fact.problem is None]
    for node in nodes if requests else ():
        request = data.draw(st.sampled_from(requests))
        held = [*node.allocations.values()]
        might = data.draw(st.lists(st.sampled_from(held), unique_by=id))
        fork = node.fork()
        for allocation in might:
            fork.release(allocation)
        if isinstance(fits(fork, request, state.policy), Fit):
            for others in (held, might):
                least = fewest(node, request, state.policy, others)
                assert least is not None
                assert least <= len(might)


@settings(max_examples=max(300, settings().max_examples))
@given(st.data())
def test_the_bound_on_shared_and_exclusive_cards(data: st.DataObject) -> None:
    """Cards of 16,000 MiB, with holders of some of them or all; one wants whole or shared ones."""
    cards = data.draw(st.integers(1, 4))
    state = build.state_of(build.node("n1", cards))
    ids = [card.fact.id for card in state.nodes["n1"].ledgers["vgpu"].cards]
    amounts = st.tuples(st.sampled_from((2_000, 5_000, 9_000, 16_000)), st.sampled_from(CORES))
    for number in range(data.draw(st.integers(1, 8))):
        memory_mib, cores_pct = data.draw(amounts)
        on = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        parts = tuple(build.holding(card, memory_mib, cores_pct) for card in on)
        apply(state, build.pod(f"p{number}", node="n1", holdings=parts), state.seq + 1)
    node = state.nodes["n1"]
    memory_mib, cores_pct = data.draw(amounts)
    wanted = build.wants(memory_mib, cores_pct, data.draw(st.integers(1, cards)))
    held = [*node.allocations.values()]
    might = data.draw(st.permutations(held))[: data.draw(st.integers(0, len(held)))]
    fork = node.fork()
    for allocation in might:
        fork.release(allocation)
    if isinstance(fits(fork, build.request(wanted), state.policy), Fit):
        least = fewest(node, build.request(wanted), state.policy, might)
        assert least is not None
        assert least <= len(might)
