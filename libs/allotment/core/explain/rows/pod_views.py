"""Pods and groups of a state as plain rows: what each holds, and why it waits."""

from collections.abc import Callable

import msgspec

from allotment.core import reasons
from allotment.core.explain.rows.acknowledgement import ahead_of, is_awaited
from allotment.core.explain.rows.amounts import short_text
from allotment.core.explain.rows.schema import DeviceAsk, Request
from allotment.core.explain.rows.views import (
    MIB,
    asked_whole,
    card_word,
    compute_whole,
    device_name,
    plain,
    trouble_under,
)
from allotment.core.jobs.keys import MADE_GROUP
from allotment.core.ledger.groups import NOT_ADMITTED, group_priority
from allotment.core.ledger.model import ACTIVE, ENDED, RESERVED, SINGLE, ClusterState, Group, Pod
from allotment.core.placement.devices import cards_asked
from allotment.core.reasons import NOT_ACKNOWLEDGED, WAITING_FOR_PLUGIN
from allotment_proto.events import Eviction, PodObserved
from allotment_proto.facts import Amounts, DeviceRequest, PodRequest

_GENERATED_CHARS = 5
_GENERATED_ALPHABET = frozenset("bcdfghjklmnpqrstvwxz2456789")
"""The ending that Kubernetes adds to a `generateName`."""

WhyOf = Callable[[Pod], tuple[str, str]]
"""Why a pod waits, as reason code and sentence."""


class PodView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod: where it is in its life, what it asks for, and what it holds."""

    namespace: str
    name: str
    uid: str
    status: str
    cause: str
    scheduler: str
    node: str
    cards: tuple[str, ...]
    memory_bytes: int
    compute_percent: int
    compute_whole: int
    """What one of its cards has: 100 if compute is percent, else AI cores."""
    extended: dict[str, int]
    asks: str
    seq: int
    created_ms: int


WAITING, GATED, ELSEWHERE = "waiting", "gated", "of other schedulers"
RUNNING, FINISHED = "running", "finished"
STAGES = (WAITING, GATED, ELSEWHERE, RUNNING, FINISHED)
"""Where pods are counted, in the order in which counts name them."""


def stage_of(state: ClusterState, pod: Pod) -> str:
    """Where a pod is counted, one of `STAGES`. Waiting pods are those that this scheduler is to
    place now; pods behind a scheduling gate and pods of other schedulers are counted apart.
    """
    fact = pod.fact
    if fact.uid in state.pending:
        return WAITING
    if fact.phase in ENDED:
        return FINISHED
    if pod.allocation is not None or fact.node:
        return RUNNING
    if fact.deleting:
        return FINISHED
    return ELSEWHERE if fact.scheduler not in state.policy.scheduler_names else GATED


def pod_views(state: ClusterState, why: WhyOf) -> list[PodView]:
    """All pods by namespace and name."""
    ordered = sorted(
        state.pods.values(), key=lambda p: (p.fact.namespace, p.fact.name, p.fact.created_ms)
    )
    return [pod_view(state, pod, why) for pod in ordered]


def pod_view(state: ClusterState, pod: Pod, why: WhyOf) -> PodView:
    """One pod; `why` tells what it waits for (`Whys.of`)."""
    fact, held = pod.fact, pod.allocation
    status, (cause, _) = pod_status(state, pod)[0], why(pod)
    holdings = held.holdings if held is not None else ()
    node = state.nodes.get(held.node) if held is not None else None
    if node is not None and held is not None:
        cause = cause or trouble_under(node, held)
    return PodView(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        status=status,
        cause=cause,
        scheduler=fact.scheduler,
        node=held.node if held is not None else fact.node,
        cards=tuple(device_name(node, holding) for holding in holdings),
        memory_bytes=sum(h.memory_mib for h in holdings) * MIB,
        compute_percent=sum(h.cores_pct for h in holdings),
        compute_whole=compute_whole(node, holdings[0]) if holdings else 100,
        extended=plain(held.extended if held is not None else fact.request.extended),
        asks=asks_text(asked_by(fact).devices, asked_by(fact).extended),
        seq=held.seq if held is not None else 0,
        created_ms=fact.created_ms,
    )


def pod_status(state: ClusterState, pod: Pod) -> tuple[str, str]:
    """A word for where the pod is in its life, and the reason code that keeps it there."""
    fact, held = pod.fact, pod.allocation
    if fact.phase in ENDED:
        return fact.phase, fact.reason
    if fact.deleting:
        return "Terminating", ""
    if held is not None:
        if held.phase == RESERVED:
            return "Reserved", WAITING_FOR_PLUGIN if ahead_of(state, pod) is not None else ""
        if fact.phase == ACTIVE:
            awaited = fact.node == held.node and is_awaited(pod, state.nodes[held.node])
            return "Bound", NOT_ACKNOWLEDGED if awaited else ""
        return fact.phase, ""
    if fact.problem is not None:
        return "Pending", fact.problem.code
    if fact.gated:
        return "Pending", reasons.GATED
    if fact.scheduler not in state.policy.scheduler_names:
        return "Pending", reasons.NOT_OURS
    refusal = pod.refusal
    if refusal is None:
        return "Pending", group_cause(state, pod)[0] or reasons.QUEUED
    if refusal.problem is not None:
        return "Pending", refusal.problem.code
    return "Pending", reasons.shown_cause(refusal.reasons)


class GangView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One group: its phase, the code of what it waits for, and how many pods it needs and has.

    The phase is `Unseen` of a group that pods name and that does not exist.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    cause: str
    queue: str
    min_member: int
    pods: int
    running: int
    created_ms: int


def gang_views(state: ClusterState) -> list[GangView]:
    """All groups by namespace and name."""
    return [_gang_view(state, key, group) for key, group in sorted(state.groups.items())]


def _gang_view(state: ClusterState, key: str, group: Group) -> GangView:
    fact, (namespace, _, name) = group.fact, key.partition("/")
    pods = [state.pods[uid].fact for uid in group.members if uid in state.pods]
    phase = "Unseen" if fact is None else fact.phase or "Pending"
    return GangView(
        namespace=namespace,
        name=name,
        uid="" if fact is None else fact.uid,
        phase=phase,
        cause="" if phase in ("Running", "Completed") else _cause_of(state, key)[0],
        queue="" if fact is None else fact.queue,
        min_member=0 if fact is None else fact.min_member,
        pods=len(pods),
        running=sum(pod.phase == "Running" for pod in pods),
        created_ms=0 if fact is None else fact.created_ms,
    )


def group_cause(state: ClusterState, pod: Pod) -> tuple[str, str]:
    """Why a pod's group waits, as code and text: it is not admitted, or lacks its minimum."""
    return _cause_of(state, pod.fact.group)


def _cause_of(state: ClusterState, key: str) -> tuple[str, str]:
    group = state.groups.get(key)
    if group is None:
        return "", ""
    if group.fact is None:
        if not state.is_batched:
            return "", ""
        return reasons.GROUP_MISSING, f"PodGroup {key} does not exist"
    is_at_gate = group.fact.phase in NOT_ADMITTED and not group.admitted_seq
    if is_at_gate and group.gate is not None and group.gate.code:
        return group.gate.code, reasons.gate_text(group.gate)
    return (group.short.code, group.short.message) if group.short is not None else ("", "")


def generated_base(name: str) -> str:
    """The name without the five characters that `generateName` adds; empty for other names."""
    base, dash, suffix = name.rpartition("-")
    is_generated = len(suffix) == _GENERATED_CHARS and _GENERATED_ALPHABET.issuperset(suffix)
    return base if dash and is_generated else ""


def owner_of(state: ClusterState, namespace: str, name: str) -> str:
    """The owner of a group that is named by a uid: the pod with this uid, else the common prefix of
    its pods' generated names; empty for other groups, and where prefixes differ.
    """
    group = state.groups.get(f"{namespace}/{name}")
    if group is None or not name.startswith(MADE_GROUP):
        return ""
    uid = name.removeprefix(MADE_GROUP)
    if uid in group.members and uid in state.pods:
        return state.pods[uid].fact.name
    pods = (state.pods[each].fact.name for each in group.members if each in state.pods)
    names = {generated_base(pod) or pod for pod in pods}
    return names.pop() if len(names) == 1 else ""


def preemptor_name(state: ClusterState, preemptor: str) -> str:
    """A preemptor as people know it: its group, or ``pod <namespace>/<name>`` of a pod by itself,
    also where a group was made for it; ``group <namespace>/<owner>`` where it was for several. Each
    is hidden whole from readers of another namespace (`readers.py` of the binder).
    """
    alone = state.pods.get(preemptor.removeprefix(SINGLE))
    if alone is not None:
        return f"pod {alone.fact.namespace}/{alone.fact.name}"
    namespace, _, name = preemptor.partition("/")
    owner = owner_of(state, namespace, name)
    if not owner:
        return preemptor
    is_pod = name.removeprefix(MADE_GROUP) in state.groups[preemptor].members
    return f"{'pod' if is_pod else 'group'} {namespace}/{owner}"


def evicted_text(state: ClusterState, eviction: Eviction) -> str:
    """Why a pod is evicted, for its users: for whom, by which action, and at which priorities."""
    whom = preemptor_name(state, eviction.preemptor)
    if eviction.action != "preempt":
        return f"Evicted by {eviction.action} to make room for {whom}"
    pod, group = state.pods.get(eviction.uid), state.groups.get(eviction.preemptor)
    alone = state.pods.get(eviction.preemptor.removeprefix(SINGLE))
    priority = None if alone is None else alone.fact.priority
    if group is not None:
        priority = group_priority(state, group)
    if pod is None or priority is None:
        return f"Preempted by {whom}"
    own = state.groups.get(pod.fact.group)
    mine = pod.fact.priority if own is None else group_priority(state, own)
    return f"Preempted by {whom} (priority {priority}; this pod has {mine})"


def asks_text(devices: tuple[DeviceRequest, ...], extended: Amounts) -> str:
    """A request in one short line: ``2 GPUs: each 2.9 GiB, 50%``, ``nvidia.com/gpu: 2``."""
    parts = []
    for wanted in devices:
        is_percent = asked_whole(wanted.family) == 100
        part = short_text(wanted.memory_mib, wanted.cores_pct, is_percent=is_percent)
        if wanted.memory_pct:
            compute = f", {wanted.cores_pct}%" if wanted.cores_pct else ""
            part = f"{wanted.memory_pct}% of the memory{compute}"
        more = wanted.count > 1
        cards = f"{wanted.count} {card_word(wanted.family)}{'s' * more}"
        parts.append(f"{cards}: {'each ' * more}{part}")
    parts += [f"{name}: {amount}" for name, amount in plain(extended).items()]
    return ", ".join(parts)


def asked_by(fact: PodObserved) -> PodRequest:
    """What a pod requests, even if the request is invalid."""
    return fact.request if fact.asks is None else fact.asks


def request_of(request: PodRequest, unrecorded: tuple[str, ...] = ()) -> Request:
    """What a request asks for, as JSON. `unrecorded` as in `PodObserved.card_resources`."""
    chosen = request.selection
    first = request.devices[0] if request.devices else None
    return Request(
        gpus=cards_asked(request),
        memory_bytes=first.memory_mib * MIB if first else 0,
        memory_percent=first.memory_pct if first else 0,
        compute_percent=first.cores_pct if first else 0,
        models=chosen.use_types or (),
        not_models=chosen.nouse_types or (),
        ids=chosen.use_ids or (),
        not_ids=chosen.nouse_ids or (),
        indexes=chosen.indexes or (),
        mode=chosen.mode or "",
        extended=plain(request.extended),
        cpu_milli=request.cpu_milli,
        host_memory_bytes=request.memory_bytes,
        devices=tuple(
            DeviceAsk(
                family=d.family,
                container=d.container_name,
                count=d.count,
                memory_bytes=d.memory_mib * MIB,
                memory_percent=d.memory_pct,
                compute_percent=d.cores_pct,
            )
            for d in request.devices
        ),
        unrecorded=unrecorded,
    )
