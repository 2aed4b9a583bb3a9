"""Groups, pods and queues of the state as plain values for the order and quota plugins."""

from functools import lru_cache

from allotment.core.jobs.keys import DEFAULT_QUEUE, MADE_GROUP
from allotment.core.ledger.evictions import is_leaving
from allotment.core.ledger.groups import group_priority
from allotment.core.ledger.model import RESERVED, SINGLE, ClusterState, Group, Pod
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import CORES_WHOLE_PCT, Family
from allotment.core.placement.rules import card_names
from allotment.core.placement.rules.selectors import holds
from allotment.core.queues.eligible import class_of
from allotment.core.queues.model import (
    WAITING,
    JobView,
    NodeGroups,
    Phase,
    QueueView,
    Share,
    Status,
    SubGroupRule,
    Task,
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
from allotment_proto.events import GroupObserved, PodObserved, QueueObserved
from allotment_proto.facts import Amounts, PodRequest, SubGroups

_NO_SUB_GROUP = "", ""
CARD_QUOTA = tuple(family.name for family in FAMILIES.values() if family.has_card_quota)
"""Families whose shares count as parts of cards."""
_COUNTED_REALLY = tuple(
    family for family in FAMILIES.values() if type(family).quota_names is not Family.quota_names
)
"""Families some of whose resources count by what a pod really takes."""
_PHASES = {phase.value: phase for phase in Phase}


_REQUESTS_MAX = 4096
"""The most requests that are remembered with their amounts."""


@lru_cache(_REQUESTS_MAX)
def _amounts_of(request: PodRequest) -> Resources:
    """What a request counts for, in the units of `queues.resources`."""
    found: dict[str, int] = {PODS: 1}
    if request.cpu_milli:
        found[CPU] = request.cpu_milli
    if request.memory_bytes:
        found[MEMORY] = request.memory_bytes
    for name, amount in request.extended:
        found[name] = amount * MILLI
    return Resources(found)


def phase_of(fact: GroupObserved) -> Phase:
    """The PodGroup's phase; an unknown one counts as that of a new group."""
    return _PHASES.get(fact.phase, Phase.NEW)


def job_of(state: ClusterState, key: str, group: Group, fact: GroupObserved) -> JobView:
    phase = phase_of(fact)
    if phase in WAITING and group.admitted_seq:
        phase = Phase.INQUEUE
    found = class_of(state, fact.priority_class)
    return JobView(
        uid=key,
        namespace=fact.namespace,
        name=fact.name,
        queue=fact.queue or DEFAULT_QUEUE,
        priority=group_priority(state, group),
        created_ms=fact.created_ms,
        phase=phase,
        min_member=fact.min_member,
        min_task_member=fact.min_task_member,
        min_resources=None if fact.min_resources is None else _resources(fact.min_resources),
        tasks=tuple(
            _task(state, state.pods[uid], fact.sub_groups)
            for uid in group.members
            if uid in state.pods
        ),
        preemptable=fact.preemptable,
        preempts=found is None or found.preempts,
        card_request=_resources(fact.card_request),
        waiting_most_ms=fact.waiting_most_ms if fact.waiting_most_ms >= 0 else None,
        is_hollow=not fact.owner and not group.members,
        is_promised=bool(group.promised_for),
        sub_groups=tuple(SubGroupRule(one.name, one.size, one.least) for one in fact.sub_groups),
        topology=fact.task_topology,
    )


def left_over(state: ClusterState, key: str, group: Group) -> JobView:
    """What the pods of a deleted PodGroup still hold. It waits for nothing, and needs all that it
    holds.
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


def left_out(state: ClusterState, key: str, error: str) -> JobView:
    """A job that is left out because of an error, with its waiting pods."""
    uid, group = key.removeprefix(SINGLE), state.groups.get(key)
    facts = [state.pods[m].fact for m in ([uid] if group is None else group.members)]
    namespace, _, name = key.partition("/")
    queue = facts[0].queue if group is None else group.queue
    return JobView(
        uid=key,
        namespace=facts[0].namespace if group is None else namespace,
        name=facts[0].name if group is None else name,
        queue=queue or DEFAULT_QUEUE,
        phase=Phase.INQUEUE,
        tasks=tuple(
            Task(uid=fact.uid, namespace=fact.namespace, name=fact.name)
            for fact in facts
            if fact.uid in state.pending
        ),
        is_single=group is None,
        defect=error,
    )


def is_made_for_pods(fact: GroupObserved) -> bool:
    """Whether the controller created the PodGroup for pods that existed before it."""
    return bool(fact.owner) and fact.name == f"{MADE_GROUP}{fact.owner}"


def single_of(state: ClusterState, pod: Pod) -> JobView:
    """A pod without a group as the PodGroup that would be created for it: in its queue, awaiting
    admission, with the priority of its class. A pod that has a place, or for which others are
    evicted, counts as admitted. It needs all that it holds.
    """
    fact, task = pod.fact, _task(state, pod)
    found = class_of(state, fact.priority_class)
    return JobView(
        uid=SINGLE + fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        queue=fact.queue or DEFAULT_QUEUE,
        priority=0 if found is None else found.value,
        created_ms=fact.created_ms,
        phase=_phase(state, pod),
        min_resources=_amounts_of(fact.request),
        tasks=(task,),
        preempts=found is None or found.preempts,
        is_single=True,
    )


def _phase(state: ClusterState, pod: Pod) -> Phase:
    """The phase of a pod without a group."""
    if pod.allocation is not None:
        return Phase.RUNNING
    if "enqueue" in state.policy.actions and SINGLE + pod.fact.uid not in state.nominated:
        return Phase.PENDING
    return Phase.INQUEUE


def _sub_group_of(pod: PodObserved, policies: tuple[SubGroups, ...]) -> tuple[str, str]:
    """The sub group by the first policy that the pod matches and whose label keys it has."""
    labels = dict(pod.labels)
    for policy in policies:
        values = [labels.get(key, "") for key in policy.keys]
        if all(values) and all(holds(e, labels.get(e.key)) for e in policy.selector):
            return policy.name, "-".join(values)
    return _NO_SUB_GROUP


def _task(state: ClusterState, pod: Pod, sub_groups: tuple[SubGroups, ...] = ()) -> Task:
    fact = pod.fact
    held = pod.allocation
    return Task(
        uid=fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        role=fact.role,
        status=_status(state, pod),
        priority=fact.priority,
        class_priority=fact.class_priority,
        request=_counted(state, pod),
        created_ms=fact.created_ms,
        node=held.node if held is not None else fact.node,
        gated=fact.gated,
        preemptable=fact.preemptable,
        preempts=fact.preempts,
        priority_class=fact.priority_class,
        card_names=fact.card_names,
        shares=_shares_of(fact.request),
        held_cards=_held_cards(state, pod),
        sub_group=_sub_group_of(fact, sub_groups) if sub_groups else _NO_SUB_GROUP,
    )


@lru_cache(_REQUESTS_MAX)
def _shares_of(request: PodRequest) -> tuple[Share, ...]:
    """What a pod requests of sliced cards."""
    return tuple(
        Share(ask.count, ask.memory_mib, ask.memory_pct, ask.cores_pct)
        for ask in request.devices
        if ask.family in CARD_QUOTA
    )


def _counted(state: ClusterState, pod: Pod) -> Resources:
    """What a pod counts for. Memory and compute of cards count by what it really takes, where their
    family says so (`quota_names`): its holdings, or while it waits the amount per card times the
    number of cards.
    """
    amounts, allocation = _amounts_of(pod.fact.request), pod.allocation
    for family in _COUNTED_REALLY:
        names = family.quota_names(state.devices)
        if names is None or (names[0] not in amounts and names[1] not in amounts):
            continue
        memory_mib = cores_pct = 0
        if allocation is not None:
            for held in allocation.quota_holdings:
                if held.family == family.name:
                    memory_mib += held.memory_mib
                    cores_pct += held.cores_pct
        else:
            for ask in pod.fact.request.devices:
                if ask.family == family.name:
                    memory_mib += ask.memory_mib * ask.count
                    cores_pct += ask.cores_pct * ask.count
        amounts = _with_real(amounts, names, memory_mib, cores_pct)
    return amounts


@lru_cache(_REQUESTS_MAX)
def _with_real(
    amounts: Resources, names: tuple[str, str], memory_mib: int, cores_pct: int
) -> Resources:
    """The amounts, with those of card memory and compute replaced by what is really taken."""
    real = zip(names, (memory_mib, cores_pct), strict=True)
    return Resources({**amounts, **{name: n * MILLI for name, n in real if name in amounts}})


def _held_cards(state: ClusterState, pod: Pod) -> Resources:
    """The cards that a pod holds, in thousandths, by the name in its node's labels."""
    held = pod.allocation
    node = state.nodes.get(held.node) if held is not None else None
    if held is None or node is None or node.fact is None:
        return NOTHING
    listed = dict(node.fact.extended)
    cards = [c for c in card_names.discover(node.labels, listed) if "/" not in c.name]
    if len(cards) != 1:
        return NOTHING  # labels do not tell which card it is
    card, milli = cards[0], dict(held.extended).get(cards[0].resource, 0) * MILLI
    for holding in held.quota_holdings:
        ledger = node.ledgers.get(holding.family) if holding.family in CARD_QUOTA else None
        known = ledger.by_id.get(holding.card) if ledger is not None else None
        if known is None:
            continue
        size = known.fact.memory_mib
        whole = holding.cores_pct == CORES_WHOLE_PCT or not size
        milli += MILLI if whole else min(-(-MILLI * holding.memory_mib // size), MILLI)
    return Resources({card.name: milli}) if milli else NOTHING


def _status(state: ClusterState, pod: Pod) -> Status:
    fact, held = pod.fact, pod.allocation
    if fact.phase in ("Succeeded", "Failed"):
        return Status(fact.phase)
    if is_leaving(state, fact):
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


def _card_quota_problem(fact: QueueObserved) -> str:
    """Why the annotation with the queue's card quota is invalid; empty if it is not."""
    problem = fact.problem
    is_of_quota = problem is not None and problem.place.startswith("annotation ")
    return problem.message if problem is not None and is_of_quota else ""


def queue_of(fact: QueueObserved) -> QueueView:
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
        card_quota_problem=_card_quota_problem(fact),
        node_groups=None if groups is None else NodeGroups(*map(frozenset, groups)),
    )
