"""The state as the order and quota plugins look at it (`queues.model.View`).

A group's view is made again only when something about the group or its pods changed, or something
else that it is made from: priority classes, whose pods are ours, names of devices, and what cards
its nodes have. A pod without a group is a job of its own in the default queue. What pods hold
counts as well when their PodGroup is gone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from allotment.core.devices.base import CORES_WHOLE_PCT
from allotment.core.fold_groups import DEFAULT_QUEUE
from allotment.core.model import Allocation, ClusterState, Group, Node, Pod
from allotment.core.queues import card_names
from allotment.core.queues.model import (
    Card,
    Cluster,
    JobView,
    NodeGroups,
    Phase,
    QueueView,
    Share,
    Status,
    Task,
    View,
)
from allotment.core.queues.resources import (
    CPU,
    MEMORY,
    MILLI,
    NOTHING,
    PODS,
    Resources,
    total_of,
)
from allotment.core.state import RESERVED
from allotment_proto.events import (
    GroupObserved,
    NodeObserved,
    PodObserved,
    QueueObserved,
)
from allotment_proto.facts import Amounts, PodRequest

VGPU = "vgpu"
SINGLE = "pod:"
"""What the job of a pod without a group is called, before the pod's uid."""
PHASES = {phase.value: phase for phase in Phase}


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
            now_ms=max((job.created_ms for job in jobs), default=0),
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
                    made = _job(state, key, group, group.fact)
                elif group.queue:
                    made = _left_over(state, key, group)
                else:
                    continue  # pods name a PodGroup that nobody has seen
                known = self._jobs[key] = group.changed_seq, made
            yield known[1]

    def _waiting_singles(self) -> Iterator[JobView]:
        for uid in self.state.pending:
            pod = self.state.pods[uid]
            if not pod.fact.group:
                yield _single(self.state, pod)

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
                found = known[uid] = seen, _single(state, pod)
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
            known = self._queues[fact.name] = fact, _queue(fact)
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


def amounts_of(request: PodRequest) -> Resources:
    """What a pod counts for, in the units of `queues.resources`."""
    found: dict[str, int] = {PODS: 1}
    if request.cpu_milli:
        found[CPU] = request.cpu_milli
    if request.memory_bytes:
        found[MEMORY] = request.memory_bytes
    for name, amount in request.extended:
        found[name] = amount * MILLI
    return Resources(found)


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


def _job(state: ClusterState, key: str, group: Group, fact: GroupObserved) -> JobView:
    phase = PHASES.get(fact.phase, Phase.NEW)
    if phase in (Phase.NEW, Phase.PENDING) and group.admitted_seq:
        phase = Phase.INQUEUE
    return JobView(
        uid=key,
        namespace=fact.namespace,
        name=fact.name,
        queue=fact.queue or DEFAULT_QUEUE,
        priority=_priority(state, fact.priority_class),
        created_ms=fact.created_ms,
        phase=phase,
        min_member=fact.min_member,
        min_task_member=fact.min_task_member,
        min_resources=None if fact.min_resources is None else _resources(fact.min_resources),
        tasks=tuple(_task(state, state.pods[uid]) for uid in group.members if uid in state.pods),
        preemptable=fact.preemptable,
        card_request=_resources(fact.card_request),
        waiting_most_ms=fact.waiting_most_ms if fact.waiting_most_ms >= 0 else None,
    )


def _left_over(state: ClusterState, key: str, group: Group) -> JobView:
    """What the pods of a PodGroup that is gone still hold; it waits for nothing, and has nothing
    beyond what it needs.
    """
    pods = (state.pods[uid] for uid in group.members if uid in state.pods)
    tasks = tuple(_task(state, pod) for pod in pods if pod.allocation is not None)
    namespace, _, name = key.partition("/")
    return JobView(
        uid=key,
        namespace=namespace,
        name=name,
        queue=group.queue,
        phase=Phase.UNKNOWN,
        min_member=len(tasks),
        min_resources=total_of([task.request for task in tasks]),
        tasks=tasks,
    )


def _single(state: ClusterState, pod: Pod) -> JobView:
    """A pod without a group. What it holds is what it needs, and nothing beyond."""
    task = _task(state, pod)
    is_placed = pod.allocation is not None
    return JobView(
        uid=SINGLE + pod.fact.uid,
        namespace=pod.fact.namespace,
        name=pod.fact.name,
        queue=DEFAULT_QUEUE,
        priority=pod.fact.priority,
        created_ms=pod.fact.created_ms,
        phase=Phase.RUNNING if is_placed else Phase.INQUEUE,
        min_resources=task.request if is_placed else None,
        tasks=(task,),
    )


def _priority(state: ClusterState, name: str) -> int:
    """The value of a PriorityClass; of none the cluster's default, else 0."""
    known = state.classes.get(name)
    if known is not None:
        return known.value
    defaults = (c.value for c in state.classes.values() if c.is_default)
    return max(defaults, default=0)


def _task(state: ClusterState, pod: Pod) -> Task:
    fact = pod.fact
    held = pod.allocation
    shares = tuple(
        Share(ask.count, ask.memory_mib, ask.memory_pct, ask.cores_pct)
        for ask in fact.request.devices
        if ask.family == VGPU
    )
    return Task(
        uid=fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        role=fact.role,
        status=_status(state, pod),
        priority=fact.priority,
        request=_counted(state, pod),
        created_ms=fact.created_ms,
        node=held.node if held is not None else fact.node,
        gated=fact.gated,
        preemptable=fact.preemptable,
        priority_class=fact.priority_class,
        card_names=fact.card_names,
        shares=shares,
        held_cards=_held_cards(state, pod),
    )


def _counted(state: ClusterState, pod: Pod) -> Resources:
    """What a pod counts for. Memory and compute of vGPU cards are what it really takes of them:
    its holdings, or while it waits the amount a card times the number of cards.
    """
    amounts = amounts_of(pod.fact.request)
    nvidia, asks = state.devices.nvidia, pod.fact.request.devices
    names = nvidia.memory_name, nvidia.cores_name
    if not any(name in amounts for name in names):
        return amounts
    if pod.allocation is not None:
        held = [h for h in pod.allocation.holdings if h.family == VGPU]
        real = sum(h.memory_mib for h in held), sum(h.cores_pct for h in held)
    else:
        shares = [ask for ask in asks if ask.family == VGPU]
        real = (
            sum(ask.memory_mib * ask.count for ask in shares),
            sum(ask.cores_pct * ask.count for ask in shares),
        )
    found = dict(amounts)
    found.update((name, n * MILLI) for name, n in zip(names, real, strict=True) if name in amounts)
    return Resources(found)


def _held_cards(state: ClusterState, pod: Pod) -> Resources:
    """The cards that a pod holds, in thousandths by the name that its node's labels give them."""
    held = pod.allocation
    node = state.nodes.get(held.node) if held is not None else None
    if held is None or node is None or node.fact is None:
        return NOTHING
    listed = dict(node.fact.extended)
    cards = [c for c in card_names.discover(node.labels, listed) if "/" not in c.name]
    if len(cards) != 1:
        return NOTHING  # labels that do not tell which card it is
    card, milli = cards[0], dict(held.extended).get(cards[0].resource, 0) * MILLI
    ledger = node.ledgers.get(VGPU)
    for holding in held.holdings:
        known = ledger.by_id.get(holding.card) if ledger is not None else None
        if holding.family != VGPU or known is None:
            continue
        size = known.fact.memory_mib
        whole = holding.cores_pct == CORES_WHOLE_PCT or not size
        milli += MILLI if whole else min(-(-MILLI * holding.memory_mib // size), MILLI)
    return Resources({card.name: milli}) if milli else NOTHING


def _status(state: ClusterState, pod: Pod) -> Status:
    fact, held = pod.fact, pod.allocation
    if fact.phase in ("Succeeded", "Failed"):
        return Status(fact.phase)
    if fact.deleting or fact.uid in state.evicting:
        return Status.RELEASING
    if held is None:
        return Status.PENDING if _is_waiting(state, fact) else Status.UNKNOWN
    if held.phase == RESERVED:
        return Status.BINDING
    return Status.RUNNING if fact.phase == "Running" else Status.BOUND


def _is_waiting(state: ClusterState, fact: PodObserved) -> bool:
    return fact.uid in state.pending or fact.gated


def _resources(amounts: Amounts) -> Resources:
    return Resources(dict(amounts))


def _queue(fact: QueueObserved) -> QueueView:
    groups = fact.node_groups
    return QueueView(
        name=fact.name,
        uid=fact.uid,
        created_ms=fact.created_ms,
        weight=fact.weight,
        capability=_resources(fact.capability),
        deserved=_resources(fact.deserved),
        guarantee=_resources(fact.guarantee),
        priority=fact.priority,
        parent=fact.parent,
        reclaimable=fact.reclaimable,
        state=fact.state or "Open",
        card_quota=None if fact.card_quota is None else _resources(fact.card_quota),
        card_quota_problem="" if fact.problem is None else fact.problem.message,
        node_groups=None if groups is None else NodeGroups(*map(frozenset, groups)),
    )
