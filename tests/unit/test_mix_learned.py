"""A mix that was learned: what it changes in the state, when it is told, and for whom."""

import anyio
import msgspec

from allotment.core.ledger.check import check
from allotment.core.ledger.state import _HANDLERS, apply
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.policies.typical import Mix, cluster_fragmentation
from allotment_board.board import Board
from allotment_proto.events import Event, MixLearned
from allotment_proto.facts import Typical
from allotment_watcher.learner import PODS_LEAST, look, usual_card_mib
from tests.build import card, node, pod, policy, request, state_of, wants

SHARE = request(wants(4_000, 0, 1))
WHOLE = request(wants(16_000, 0, 2))


def test_every_event_of_the_log_takes_effect_somewhere() -> None:
    assert set(_HANDLERS) == set(Event.__args__)


def test_a_mix_is_of_the_policy_in_force() -> None:
    state = state_of(policy(device_policy="fill-ahead"))
    mix: Mix = (Typical(SHARE, 1_000_000, 250),)
    apply(state, MixLearned(policy="later", mix=mix, pods=20), 2)
    assert state.policy.mix == ()
    apply(state, MixLearned(policy="fill-ahead", mix=mix, pods=20), 3)
    assert state.policy.mix == mix
    apply(state, policy(device_policy="fill-ahead", device_weight=5), 4)
    assert (state.policy.mix, state.policy_seq) == (mix, 4)
    apply(state, policy(device_policy="binpack"), 5)
    assert state.policy.mix == ()
    assert check(state) == []


def test_it_is_learned_from_enough_pods_and_told_once() -> None:
    pods = [pod(f"p{n}", SHARE if n % 4 else WHOLE) for n in range(PODS_LEAST)]
    state = state_of(policy(device_policy="fill-ahead"), node("n1", 4), *pods[:-1])
    assert anyio.run(look, state) is None
    apply(state, pods[-1], 99)
    event = anyio.run(look, state)
    assert event is not None
    assert (event.policy, event.pods) == ("fill-ahead", PODS_LEAST)
    assert [(shape.ask.count, shape.weight_ppm) for shape in event.mix if shape.ask] == [
        (1, 640_667),
        (2, 359_332),
    ]
    apply(state, event, 100)
    assert anyio.run(look, state) is None, "it has not moved"


def test_a_policy_that_does_not_look_ahead_learns_nothing() -> None:
    state = state_of(node("n1", 4), *[pod(f"p{n}", SHARE) for n in range(PODS_LEAST)])
    assert anyio.run(look, state) is None


def test_the_usual_card_is_the_most_frequent_one() -> None:
    assert usual_card_mib([node("n1", 2), node("n2", [card(0, memory_mib=8_000)])]) == 16_000
    assert usual_card_mib([]) == 0


def test_nothing_is_learned_before_a_card_is_seen() -> None:
    state = state_of(policy(device_policy="fill-ahead"), *[pod(f"p{n}", SHARE) for n in range(30)])
    assert anyio.run(look, state) is None
    apply(state, node("n1", 4), 99)
    event = anyio.run(look, state)
    assert event is not None
    assert [shape.worth_milli for shape in event.mix] == [250]


def test_one_pod_more_is_not_told() -> None:
    pods = [pod(f"p{n}", SHARE if n % 3 else WHOLE) for n in range(60)]
    state = state_of(policy(device_policy="fill-ahead"), node("n1", 4), *pods)
    event = anyio.run(look, state)
    assert event is not None
    apply(state, event, 100)
    odd = msgspec.structs.replace(SHARE, cpu_milli=SHARE.cpu_milli + 7, memory_bytes=1)
    apply(state, pod("odd", odd), 101)
    assert anyio.run(look, state) is None
    for number in range(40):
        heavy = msgspec.structs.replace(SHARE, cpu_milli=50 * SHARE.cpu_milli + 1_000)
        apply(state, pod(f"heavy{number}", heavy), 102 + number)
    assert anyio.run(look, state) is not None, "what a share needs beside its card has moved"


def test_an_absurd_request_that_was_learned_breaks_nothing() -> None:
    absurd = request(wants(0, 100, 1 << 60, memory_pct=100))
    state = state_of(policy(device_policy="fill-ahead"), node("n1", 2), pod("a", SHARE))
    mix = (Typical(absurd, 500_000, 1 << 62), Typical(SHARE, 500_000, 250))
    apply(state, MixLearned(policy="fill-ahead", mix=mix, pods=20), 9)
    board, evaluator = Board(state), Evaluator(state)
    board.begin()
    evaluator.begin()
    assert board.rank(SHARE) == evaluator.rank(SHARE)


def test_fragmentation_on_columns_is_that_of_the_plain_loops() -> None:
    state = state_of(policy(device_policy="fill-ahead"), node("n1", 2), node("n2", 3, cpu_milli=50))
    board = Board(state)
    assert board.fragmentation() is None
    mix = (Typical(SHARE, 600_000, 250), Typical(WHOLE, 400_000, 2_000))
    apply(state, MixLearned(policy="fill-ahead", mix=mix, pods=20), 9)
    found = board.fragmentation()
    assert found == cluster_fragmentation(state.nodes.values(), mix, state.policy)
    assert found is not None
    assert 0 < found.stranded_nano < found.idle_nano
