"""The order that is kept agrees with the order that is sorted, and costs what a batch takes."""

from random import Random

import pytest

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.order import order_key
from allotment_filter.batches import next_round
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.waiting import Waiting
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    Event,
    NodeGone,
    PodGone,
    PolicyLoaded,
)
from allotment_proto.facts import Policy
from tests.build import decided, node, placement, pod, policy

PODS = 5_000
BATCH = 50


class Scene:
    """A state and the order of its pending pods, both told of the same records."""

    def __init__(self, *events: Event) -> None:
        self.state = ClusterState()
        self.waiting = Waiting(self.state)
        self.add(policy(), *events)

    def add(self, *events: Event) -> None:
        """One record."""
        apply_all(self.state, events, self.state.seq + 1)
        self.waiting.take(Envelope(v=1, at_ms=1, by="test", events=events))

    def order(self) -> list[str]:
        return [found.fact.uid for found in self.waiting]

    def sorted(self) -> list[str]:
        pods = [self.state.pods[uid] for uid in self.state.pending]
        return [found.fact.uid for found in sorted(pods, key=order_key)]

    def random_event(self, random: Random, number: int) -> Event:
        uid = f"p{random.randrange(30)}"
        found = self.state.pods.get(uid)
        decision = found.allocation.seq if found and found.allocation else 0
        name = f"pod-{uid}"
        bound = Bound(uid=uid, namespace="default", name=name, node="n1", decision=decision)
        events: list[Event] = [
            PodGone(uid=uid, namespace="default", name=name, rv=number),
            decided(placement(uid, "n1"), basis=self.state.seq),
            decided(placement(uid, "n1"), basis=self.state.seq),
            failed(uid, decision),
            bound,
            PolicyLoaded(
                policy=Policy(scheduler_names=random.choice((("allotment",), ("other",)))),
                source="test",
                text_sha256="",
            ),
            node("n1", rv=number),
            NodeGone(name="n2", uid="n2", rv=number),
        ]
        if random.random() < 0.6:
            return pod(
                uid,
                rv=number,
                created_ms=random.randrange(5),
                priority=random.randrange(3),
                gated=random.random() < 0.1,
                scheduler=random.choice(("allotment", "allotment", "other")),
            )
        return random.choice(events)


def failed(uid: str, decision: int) -> BindFailed:
    return BindFailed(
        uid=uid,
        namespace="default",
        name=f"pod-{uid}",
        node="n1",
        decision=decision,
        code="x",
        message="",
    )


@pytest.mark.parametrize("seed", range(20))
def test_after_any_record_the_order_is_that_of_sorting(seed: int) -> None:
    random = Random(seed)
    scene = Scene(node("n1"))
    for number in range(1, 300):
        scene.add(*(scene.random_event(random, number) for _ in range(random.randint(1, 4))))
        if random.random() < 0.3:
            assert scene.order() == scene.sorted()
    assert scene.order() == scene.sorted()


def test_a_pod_that_comes_back_with_the_same_key_is_there_once() -> None:
    scene = Scene(node("n1"), pod("a"), pod("b"))
    scene.add(decided(placement("a", "n1"), basis=1))
    assert scene.order() == ["b"]
    scene.add(failed("a", scene.state.seq))
    assert scene.order() == ["a", "b"]


def test_what_it_was_not_told_is_found_all_the_same() -> None:
    scene = Scene(node("n1"), pod("b"))
    apply_all(scene.state, [pod("a")], scene.state.seq + 1)
    assert scene.order() == ["a", "b"]


def test_a_batch_looks_at_few_pods_however_many_wait() -> None:
    nodes = [node(f"n{number}", pods=1000) for number in range(10)]
    pods = [pod(f"p{number:05d}", created_ms=number) for number in range(PODS)]
    scene = Scene(*nodes, *pods)
    feasibility = FeasibilityCache(scene.state, Evaluator(scene.state))
    done = 0
    while done < PODS // 2:
        turn = next_round(feasibility, {}, {}, BATCH, scene.waiting)
        assert turn.batch.uids == tuple(f"p{number:05d}" for number in range(done, done + BATCH))
        gone = [PodGone(uid=uid, namespace="default", name=uid, rv=9) for uid in turn.batch.uids]
        scene.add(*gone, pod(f"q{done:05d}", created_ms=PODS + done))
        done += BATCH
    assert scene.waiting.visited <= PODS
    assert scene.order() == scene.sorted()


def test_a_decision_alone_takes_its_pods_out() -> None:
    scene = Scene(node("n1"), pod("a"), pod("b"))
    event = decided(placement("b", "n1"), basis=1)
    assert isinstance(event, Decided)
    scene.add(event)
    assert scene.order() == ["a"]
