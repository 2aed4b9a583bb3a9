"""What is said about an empty cluster is true of one: the pod is placed on the same nodes without
other pods, ready and open, exactly if it is said to fit them.
"""

import msgspec
from hypothesis import given, settings

from allotment.core.explain.causes.obstacles import FITS, Emptied, gaps, present
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.pod import waiting_for
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_proto.events import Event, MixLearned, NodeObserved, PodObserved, PolicyLoaded
from tests.build import decided
from tests.strategies import every_policy
from tests.strategies.life import lives

_GONE_WHEN_OPEN = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)


def folded(events: list[Event]) -> ClusterState:
    state = ClusterState()
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    return state


def opened(fact: NodeObserved) -> NodeObserved:
    taints = tuple(taint for taint in fact.taints if taint.key not in _GONE_WHEN_OPEN)
    return msgspec.structs.replace(fact, ready=True, unschedulable=False, taints=taints)


def is_placed_alone(events: list[Event], state: ClusterState, fact: PodObserved) -> bool:
    """Whether a cycle places the pod if it is the only one."""
    settings_of = [e for e in events if isinstance(e, PolicyLoaded | MixLearned)]
    nodes = [opened(node.fact) for node in state.nodes.values() if node.fact is not None]
    alone = folded([*settings_of, *nodes, fact])
    return bool(run_cycle(alone, (fact.uid,), Evaluator(alone)).placements)


@settings(max_examples=80)
@given(lives(every_policy))
def test_who_fits_an_empty_cluster_is_placed_in_one(events: list[Event]) -> None:
    state = folded(events)
    whys, empty = Whys(state), Emptied(state)
    for uid in state.pending:
        fact = state.pods[uid].fact
        if fact.problem is not None or fact.gated or fact.request.company.near:
            continue
        asked = whys.asked(fact)
        said = whys.nodes(asked)
        assert said.ever == empty.takes(asked)
        if said.ever is not None:
            assert said.ever == is_placed_alone(events, state, fact)


@settings(max_examples=80)
@given(lives(every_policy))
def test_every_refusing_node_has_its_first_obstacle_in_a_gap(events: list[Event]) -> None:
    state = folded(events)
    whys = Whys(state)
    for uid in state.pending:
        asked = whys.asked(state.pods[uid].fact)
        answers = whys.nodes(asked).answers
        first = {node.name: code for node, code in zip(present(state), answers, strict=True)}
        refusing = {name for name, code in first.items() if code != FITS}
        found = gaps(state, asked, answers)
        assert {node.name for gap in found for node in gap.nodes} == refusing
        for gap in found:
            assert all(first[node.name] == gap.codes[0] for node in gap.nodes)
        why = whys.of(state.pods[uid])
        assert why.code
        assert why.text


def test_who_waits_for_pods_to_end_waits_for_pods_that_are_there() -> None:
    """On every node that counts some pod runs, and without its pods the node takes the request."""
    waiting = 0

    @settings(max_examples=80)
    @given(lives(every_policy))
    def in_every_life(events: list[Event]) -> None:
        nonlocal waiting
        state = folded(events)
        placed = run_cycle(state, tuple(state.pending), Evaluator(state)).placements
        apply(state, decided(*placed), state.seq + 1)
        whys = Whys(state)
        for uid in state.pending:
            fact = state.pods[uid].fact
            if fact.problem is not None or fact.gated:
                continue
            asked = whys.asked(fact)
            waits = waiting_for(state, asked)
            if waits is None or waits.kind != "Release":
                continue
            waiting += 1
            held = [node for node in present(state) if node.allocations]
            ends = [node for node in held if Emptied(state).refuses(node, asked) is None]
            assert 0 < waits.nodes <= len(ends)

    in_every_life()
    assert waiting, "no generated pod waits for others to end"
