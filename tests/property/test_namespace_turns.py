"""Whoever comes, changes and goes: priority first, each namespace by arrival, and all in turn.

Pods of some namespaces come with few priorities, become placed or go, and batches of all sizes are
taken. Held against the rules themselves, for the filter's lines with queues and without any.
"""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.queues.turns import in_turns
from allotment_filter.groups import Groups
from allotment_filter.waiting import Waiting
from allotment_proto.events import (
    Envelope,
    Event,
    PodGone,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build

POLICY = Policy(tiers=((PluginUse("priority"), PluginUse("gang")),), namespace_turns=True)
NAMESPACES = ("a", "b", "c", "d")


class Waits(NamedTuple):
    """A pod in an order."""

    level: int
    namespace: str
    number: int


STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 1), st.integers(1, 7)),
    min_size=4,
    max_size=40,
)


class Lines:
    """The filter's two ways to keep an order, on one log each."""

    def __init__(self, *, by_queues: bool) -> None:
        self.state = ClusterState()
        self.waiting = Waiting(self.state)
        self.groups = Groups(self.state)
        self.pods: dict[str, Waits] = {}
        self.by_queues = by_queues
        self.last_pick: dict[str, int] = {}
        self.since: dict[str, int] = {}
        self.tell(PolicyLoaded(policy=POLICY, source="test", text_sha256=""))
        for value in (0, 1):
            name = f"class-{value}"
            self.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))
        if by_queues:
            self.tell(QueueObserved(uid="q", name="default", rv=1))

    def tell(self, event: Event) -> None:
        apply(self.state, event, self.state.seq + 1)
        self.waiting.take(Envelope(v=1, at_ms=1, by="test", events=(event,)))

    def come(self, namespace: str, priority: int) -> None:
        number = self.state.seq
        uid = f"{namespace}-{number}"
        self.pods[uid] = Waits(-priority, namespace, number)
        self.observe(uid, rv=1)

    def observe(self, uid: str, rv: int) -> None:
        pod = self.pods[uid]
        fact = build.pod(
            uid,
            namespace=pod.namespace,
            name=uid,
            created_ms=pod.number,
            priority=-pod.level,
            priority_class=f"class-{-pod.level}",
            rv=rv,
            labels=(("rv", str(rv)),),
        )
        self.tell(fact)

    def go(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self.tell(PodGone(uid=uid, namespace=pod.namespace, name=uid, rv=self.state.seq))

    def order(self) -> list[str]:
        if not self.by_queues:
            return [pod.fact.uid for pod in self.waiting]
        found = self.groups.next_batch((), 10_000)
        return [] if found is None else list(found.batch.uids)

    def take(self, most: int) -> list[str]:
        """A batch whose pods all found a place, and are gone."""
        if self.by_queues:
            found = self.groups.next_batch((), most)
            uids = [] if found is None else list(found.batch.uids)
            if found is not None:
                self.groups.tried(found)
        else:
            uids = self.order()[:most]
            self.waiting.offered(uids)
        return uids


def check(lines: Lines, uids: list[str]) -> None:
    """The rules of one order: who comes, and that nobody else takes a turn meanwhile."""
    order = [lines.pods[uid] for uid in uids]
    levels = [pod.level for pod in order]
    assert levels == sorted(levels), "a lower priority passes a higher one"
    for level in set(levels):
        tied = [pod for pod in order if pod.level == level]
        for namespace in NAMESPACES:
            own = [pod.number for pod in tied if pod.namespace == namespace]
            assert own == sorted(own), "a younger pod passes an older one of its namespace"
            picks = [at for at, pod in enumerate(tied) if pod.namespace == namespace]
            for one, other in pairwise(picks):
                between = {pod.namespace for pod in tied[one + 1 : other]}
                later = {pod.namespace for pod in tied[other:]} - {namespace}
                assert later <= between, "a namespace had two turns before another had one"


def play(lines: Lines, steps: list[tuple[int, int, int, int]]) -> None:
    picks: list[tuple[Waits, set[str]]] = []
    for op, namespace, priority, count in steps:
        if op < 6:
            for _ in range(count):
                lines.come(NAMESPACES[namespace], priority)
        elif op == 6 and lines.pods:
            lines.go(sorted(lines.pods)[count % len(lines.pods)])
        elif op == 7 and lines.pods:
            lines.observe(sorted(lines.pods)[count % len(lines.pods)], rv=lines.state.seq)
        else:
            check(lines, lines.order())
            taken = lines.take(count)
            for uid in taken:
                pod = lines.pods[uid]
                rivals = {p.namespace for p in lines.pods.values() if p.level == pod.level}
                picks.append((pod, rivals))
                lines.pods.pop(uid)
                lines.tell(PodGone(uid=uid, namespace=pod.namespace, name=uid, rv=9))
    for level in {pod.level for pod, _ in picks}:
        check_across_batches([pick for pick in picks if pick[0].level == level])


def check_across_batches(picks: list[tuple[Waits, set[str]]]) -> None:
    """Who waited at all times between two picks of a namespace had one in between."""
    for at, (pod, _) in enumerate(picks):
        later = (n for n in range(at + 1, len(picks)) if picks[n][0].namespace == pod.namespace)
        again = next(later, None)
        if again is None:
            continue
        stayed = set.intersection(*(rivals for _, rivals in picks[at : again + 1]))
        served = {picks[n][0].namespace for n in range(at, again)}
        assert stayed - served == set()


@settings(max_examples=150)
@given(STEPS)
def test_namespaces_take_turns_by_queues(steps: list[tuple[int, int, int, int]]) -> None:
    play(Lines(by_queues=True), steps)


@settings(max_examples=150)
@given(STEPS)
def test_namespaces_take_turns_without_queues(steps: list[tuple[int, int, int, int]]) -> None:
    play(Lines(by_queues=False), steps)


PODS = st.lists(st.builds(Waits, st.integers(0, 2), st.sampled_from(NAMESPACES), st.integers(0, 9)))


@given(PODS, st.permutations(NAMESPACES))
def test_a_rounds_order_begins_with_who_had_nothing_longest(
    pods: list[Waits], last: list[str]
) -> None:
    served = {namespace: number for number, namespace in enumerate(last[:3], start=1)}
    found = list(in_turns(sorted(pods), lambda pod: pod.level, lambda pod: pod.namespace, served))
    assert sorted(found) == sorted(pods)
    for level in {pod.level for pod in pods}:
        tied = [pod for pod in found if pod.level == level]
        first = list(dict.fromkeys(pod.namespace for pod in tied))
        assert first == sorted(first, key=lambda namespace: served.get(namespace, 0))
        assert [pod.namespace for pod in tied[: len(first)]] == first
