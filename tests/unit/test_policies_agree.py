"""Policies that the board serves say the same plain and on columns, whatever happens."""

from collections import Counter
from itertools import product

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.policies import POLICIES
from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.learning import LEARNERS, learn
from allotment.core.placement.policies.typical import HOST_MOST, PPM, Mix
from allotment.core.placement.rules.points import KIB_BITS
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.events import Event, MixLearned, PodObserved, PolicyLoaded
from allotment_proto.facts import PodRequest, Policy, Typical
from tests import build
from tests import strategies as own
from tests.build import decided

pytestmark = pytest.mark.usefixtures("scoring")

CARD_MIB = 16_000


def learned(events: list[Event], name: str) -> Mix:
    """The mix that a policy wants, from the pods among the events."""
    counts: Counter[PodRequest] = Counter(
        event.request for event in events if isinstance(event, PodObserved)
    )
    return learn(name, counts, CARD_MIB)


def with_policy(events: list[Event], name: str) -> list[Event]:
    """The same events under a device policy, from the start and however the policy changes."""
    start = PolicyLoaded(policy=Policy(), source="test", text_sha256="")
    out: list[Event] = []
    for event in (start, *events):
        if isinstance(event, PolicyLoaded):
            policy = msgspec.structs.replace(event.policy, device_policy=name)
            out.append(msgspec.structs.replace(event, policy=policy))
        else:
            out.append(event)
    return out


@pytest.mark.parametrize("name", sorted(POLICY_NUMBERS))
@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    own.lives(own.every_policy),
    st.lists(st.permutations(own.PODS), min_size=1, max_size=4),
    st.data(),
)
def test_same_outcome(
    name: str, events: list[Event], batches: list[list[str]], data: st.DataObject
) -> None:
    policy: DevicePolicy = POLICIES[name]
    if name in LEARNERS:
        policy = FillAhead(learned(events, name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, name, policy)
        compare(with_policy(events, name), batches, data)


def compare(events: list[Event], batches: list[list[str]], data: st.DataObject) -> None:
    state = ClusterState()
    board = Board(state)
    start = 2 + len(own.NODES) + len(own.PODS)
    cuts = sorted(data.draw(st.integers(start, len(events))) for _ in batches)
    seq, done = 0, 0
    for cut, batch in zip(cuts, batches, strict=True):
        for event in events[done:cut]:
            seq += 1
            apply(state, event, seq)
        done = cut
        wanted = run_cycle(state, batch, Evaluator(state))
        assert run_cycle(state, batch, board) == wanted
        if data.draw(st.booleans()):
            seq += 1
            apply(state, decided(*wanted.placements), seq)


@pytest.mark.parametrize("name", sorted(POLICY_NUMBERS))
@pytest.mark.parametrize("memory_mib", [0, 16_000])
def test_more_device_requests_than_any_node_has_cards(name: str, memory_mib: int) -> None:
    """The pod's containers have no room together, and there is no second card."""
    pod = build.pod("p", build.request(build.wants(1, 0), build.wants(0, 0, container=1)))
    state = ClusterState()
    events: list[Event] = [
        PolicyLoaded(policy=Policy(device_policy=name), source="test", text_sha256=""),
        MixLearned(policy=name, mix=(Typical(pod.request, PPM, 1_000),), pods=1),
        build.node("n1", [build.card(0, slots=1, memory_mib=memory_mib)]),
        pod,
    ]
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    wanted = run_cycle(state, ["p"], Evaluator(state))
    assert wanted.refusals
    assert run_cycle(state, ["p"], Board(state)) == wanted


@pytest.mark.parametrize("name", sorted(POLICY_NUMBERS))
def test_same_scores_near_the_bounds_of_host_amounts(name: str) -> None:
    """Beyond `HOST_MOST` amounts count as that, on either side of every comparison."""
    amounts = (HOST_MOST - 1, HOST_MOST, HOST_MOST + 1, 2 * HOST_MOST)
    policy = Policy(device_policy=name, host_policy="none", host_weight=0)
    for wanted, free in product(amounts, amounts):
        shape = build.request(
            build.wants(4_000, 25), cpu_milli=wanted, memory_bytes=wanted << KIB_BITS
        )
        state = ClusterState()
        room = {"cpu_milli": free + 1, "memory_bytes": (free + 1) << KIB_BITS}
        pods = {
            "one-left": build.wants(4_000, 25),
            "nothing-left": build.wants(2_000, 10),
        }
        taken = {"one-left": 1, "nothing-left": free + 1}
        events: list[Event] = [
            PolicyLoaded(policy=policy, source="test", text_sha256=""),
            MixLearned(policy=name, mix=(Typical(shape, PPM, 1_000),), pods=1),
            build.node("n1", 2, **room),
            *(
                build.pod(
                    uid,
                    build.request(ask, cpu_milli=taken[uid], memory_bytes=taken[uid] << KIB_BITS),
                )
                for uid, ask in pods.items()
            ),
        ]
        for seq, event in enumerate(events, start=1):
            apply(state, event, seq)
        for uid in pods:
            found = run_cycle(state, [uid], Board(state))
            assert found == run_cycle(state, [uid], Evaluator(state)), (wanted, free, uid)
            assert found.placements
