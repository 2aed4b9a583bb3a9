"""The state as the order and quota plugins look at it (`queues.model.View`).

A group's view is made again only when something about the group or its pods changed, or something
else that it is made from: priority classes, whose pods are ours, names of devices, and what cards
its nodes have. A pod without a group is a job of its own in the default queue. What pods hold
counts as well when their PodGroup is gone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from allotment.core.batch.members import (
    SINGLE,
    VGPU,
    job_of,
    left_over,
    queue_of,
    single,
)
from allotment.core.fold_groups import DEFAULT_QUEUE
from allotment.core.model import Allocation, ClusterState, Node
from allotment.core.queues import card_names
from allotment.core.queues.model import Card, Cluster, JobView, Phase, QueueView, View
from allotment.core.queues.resources import CPU, MEMORY, MILLI, PODS, Resources
from allotment_proto.events import NodeObserved, PodObserved, QueueObserved

__all__ = ["SINGLE", "Views"]


class Views:
    """Views of one state, with what did not change kept from the last one."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._jobs: dict[str, tuple[int, JobView]] = {}
        self._singles_known: dict[str, tuple[_Seen, JobView]] = {}
        self._made_from: tuple[object, ...] = ()
        self._cards_on: dict[str, _CardsOn] = {}
        self._queues: dict[str, tuple[QueueObserved, QueueView]] = {}
        self._cluster = Cluster()
        self._cluster_seq = -1

    def view(self) -> View:
        """The state now."""
        state = self.state
        self._look_at_nodes()
        made_from = (tuple(state.classes.values()), state.policy_seq, state.devices_seq)
        if made_from != self._made_from:
            self._made_from = made_from
            self._forget()
        jobs = (*self._groups(), *self._waiting_singles(), *self._placed_singles())
        queues = tuple(self._queue(fact) for fact in state.queues.values())
        if state.is_batched and DEFAULT_QUEUE not in state.queues:  # there always is one
            queues = (*queues, QueueView(name=DEFAULT_QUEUE))
        return View(
            cluster=self._totals(jobs),
            queues=queues,
            jobs=jobs,
            now_ms=max(state.time_ms, max((job.created_ms for job in jobs), default=0)),
        )

    def _forget(self) -> None:
        self._jobs.clear()
        self._singles_known.clear()

    def _groups(self) -> Iterator[JobView]:
        state = self.state
        gone = self._jobs.keys() - state.groups.keys()
        for key in gone:
            del self._jobs[key]
        for key, group in state.groups.items():
            known = self._jobs.get(key)
            if known is None or known[0] != group.changed_seq:
                if group.fact is not None:
                    made = job_of(state, key, group, group.fact)
                elif group.queue:
                    made = left_over(state, key, group)
                else:
                    continue  # pods name a PodGroup that nobody has seen
                known = self._jobs[key] = group.changed_seq, made
            yield known[1]

    def _waiting_singles(self) -> Iterator[JobView]:
        for uid in self.state.pending:
            pod = self.state.pods[uid]
            if not pod.fact.group:
                yield single(self.state, pod)

    def _placed_singles(self) -> Iterator[JobView]:
        state, known, ours = self.state, self._singles_known, self.state.policy.scheduler_names
        for uid in known.keys() - state.singles.keys():
            del known[uid]
        for uid in state.singles:
            pod = state.pods[uid]
            held = pod.allocation
            if held is None or pod.fact.scheduler not in ours:
                continue
            seen = _Seen(pod.fact, held, held.phase, uid in state.evicting)
            found = known.get(uid)
            if found is None or not found[0].is_same(seen):
                found = known[uid] = seen, single(state, pod)
            yield found[1]

    def _look_at_nodes(self) -> None:
        """Find what nodes offer. What pods hold of cards is counted by what their nodes say of
        these: where that changed, views are made again.
        """
        state = self.state
        if self._cluster_seq == state.nodes_seq:
            return
        self._cluster_seq = state.nodes_seq
        total: dict[str, int] = {}
        cards: dict[str, Card] = {}
        before, self._cards_on = self._cards_on, {}
        is_other = False
        for node in state.nodes.values():
            for name, amount in _capacity(node):
                total[name] = total.get(name, 0) + amount
            known = before.get(node.name)
            if known is None or known.fact is not node.fact:
                was, known = known, _cards_on(node)
                is_other |= bool(node.allocations) and (was is None or not was.is_same(known))
            self._cards_on[node.name] = known
            for card in known.cards:
                cards.setdefault(card.name, card)
        self._total, self._cards = Resources(total), tuple(cards[n] for n in sorted(cards))
        if is_other:
            self._forget()

    def _queue(self, fact: QueueObserved) -> QueueView:
        known = self._queues.get(fact.name)
        if known is None or known[0] is not fact:
            known = self._queues[fact.name] = fact, queue_of(fact)
        return known[1]

    def _totals(self, jobs: Iterable[JobView]) -> Cluster:
        """Totals over the nodes; what is in use only while some group waits to be let in."""
        state = self.state
        nvidia = state.devices.nvidia
        shares = (nvidia.count_name, nvidia.memory_name, nvidia.cores_name)
        waits = any(job.phase in (Phase.NEW, Phase.PENDING) for job in jobs)
        return Cluster(
            total=self._total,
            used=_used(state) if waits else Resources(),
            cards=self._cards,
            share_resources=frozenset(name for name in shares if name),
        )

    _total = Resources()
    _cards: tuple[Card, ...] = ()


class _Seen(NamedTuple):
    """What the view of a pod without a group was made from."""

    fact: PodObserved
    held: Allocation
    phase: str
    is_evicted: bool

    def is_same(self, other: "_Seen") -> bool:
        return self.fact is other.fact and self.held is other.held and self[2:] == other[2:]


class _CardsOn(NamedTuple):
    """The cards by name that a node offers, and the inventories by which holdings are weighed."""

    fact: NodeObserved | None
    cards: tuple[Card, ...]
    sizes: tuple[tuple[str, int], ...]

    def is_same(self, other: "_CardsOn") -> bool:
        return self[1:] == other[1:]


def _cards_on(node: Node) -> _CardsOn:
    if node.fact is None:
        return _CardsOn(None, (), ())
    listed = [name for name, _ in node.fact.extended]
    cards = tuple(card_names.discover(node.labels, listed))
    ledger = node.ledgers.get(VGPU)
    held = ledger.by_id.items() if ledger is not None and cards else ()
    return _CardsOn(node.fact, cards, tuple((id_, card.fact.memory_mib) for id_, card in held))


def _capacity(node: Node) -> Iterator[tuple[str, int]]:
    fact = node.fact
    if fact is not None:
        yield CPU, fact.cpu_milli
        yield MEMORY, fact.memory_bytes
        yield PODS, fact.pods
        for name, amount in fact.extended:
            yield name, amount * MILLI


def _used(state: ClusterState) -> Resources:
    found = {CPU: 0, MEMORY: 0, PODS: 0}
    for node in state.nodes.values():
        fact = node.fact
        if fact is None or not node.allocations:
            continue
        found[CPU] += fact.cpu_milli - node.cpu_milli_free
        found[MEMORY] += fact.memory_bytes - node.memory_bytes_free
        found[PODS] += fact.pods - node.pods_free
        for name, amount in fact.extended:
            used = amount - node.extended_free.get(name, amount)
            if used:
                found[name] = found.get(name, 0) + used * MILLI
    return Resources(found)
