"""Why a pod is where it is, at one sequence: recomputed from the state and the pod's story.

The filter is a pure function of state and pod, so nothing here is a guess: the funnel of a waiting
pod asks the very predicate that the scheduler asks; the table of a placed one is made on the state
its decision was made on.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from allotment.core.explain.causes.advice import advice
from allotment.core.explain.causes.competition import competition, decided_by, node_at_decision
from allotment.core.explain.causes.nodes import (
    closest,
    fragmentation,
    funnel,
    group_short_even_empty,
    node_steps,
)
from allotment.core.explain.causes.obstacles import FITS, Emptied, present
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import Finding, of_pod
from allotment.core.explain.history.pod_story import Attempt, PodLife, PodStory
from allotment.core.explain.history.timeline import life_of, neighbours
from allotment.core.explain.made_groups import place_in_queue, queue_name
from allotment.core.explain.rows.acknowledgement import (
    ahead_of,
    in_the_way,
    plugin_question,
    standing_text,
    wait_text,
)
from allotment.core.explain.rows.life import REFUSED_BY_NODE, Life, PodExplanation
from allotment.core.explain.rows.pod_views import (
    asked_by,
    group_cause,
    pod_status,
    preemptor_name,
    request_of,
)
from allotment.core.explain.rows.preferences import ignored_of, why_ignored
from allotment.core.explain.rows.schema import (
    SCHEMA,
    AsOf,
    Candidate,
    Counterfactual,
    DecisionRef,
    Held,
    NodeSteps,
    OpenProblem,
    Placed,
    Status,
    Subject,
    TraceRef,
    WaitingFor,
    quota_of,
    reason_of,
)
from allotment.core.explain.rows.views import (
    MIB,
    PERHAPS,
    compute_whole,
    device_name,
    piece_name,
    plain,
)
from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.ledger.model import BOUND, ClusterState, Node, Pod
from allotment.core.ledger.partitions.mig import profile_name
from allotment.core.placement.cycle import notes_of
from allotment.core.placement.rules.interpod import look_around
from allotment.core.placement.rules.models import parts_note
from allotment.core.placement.rules.predicates import fits
from allotment.core.placement.unserved import misread, nearest, unserved
from allotment.core.queues.answers import No
from allotment.core.queues.round.verdict import PodVerdict, missing_queue
from allotment.core.reasons import (
    CURED_BY_ROOM,
    KEPT_BACK,
    NOT_ACKNOWLEDGED,
    OF_CLUSTER,
    QUEUED,
    REASONS,
    Cure,
    answers_to,
    problem_text,
)
from allotment.core.trace_ids import trace_id
from allotment.core.units import rfc3339
from allotment_proto.events import PodObserved
from allotment_proto.facts import Holding, PodRequest, Policy


def explain(
    state: ClusterState,
    story: PodStory,
    as_of_ms: int,
    *,
    before: ClusterState | None = None,
    node: str | None = None,
    kin: PodLife | None = None,
    told: PodLife | None = None,
    advised: bool = True,
) -> PodExplanation:
    """Explain a pod of a story that was followed to the sequence of `state`: `told`, or the latest.

    `before` is the state at the basis of the decision that placed it; without it a placed pod is
    explained without its competitors. `node` adds every step on that node. `kin` is the life of the
    pod of its owner whose place it took. Without `advised` no change is tried that would make it
    fit, which may take long on many nodes: `advise` does that alone. Raises KeyError for a node
    that the state does not know, ValueError for a story without a pod.
    """
    told = story.latest if told is None else told
    if told is None:
        raise ValueError(f"pod {story.namespace}/{story.name} does not occur in the story")
    fact = told.fact
    pod = state.pods.get(told.uid)
    waits = pod is not None and pod.allocation is None and fact.uid in state.pending
    placed = told.placed
    whys = Whys(state)
    ruled, asked = whys.ruled(fact), whys.asked(fact)
    said = whys.nodes(asked)
    answers = said.answers
    steps = tuple(funnel(answers))
    candidates: tuple[Candidate, ...] = ()
    total = 0
    if placed is not None and before is not None:
        on = "" if placed.placement is None else placed.placement.node
        steps, candidates, total = competition(before, placed.decided, fact, on)
    elif not waits or fact.problem is not None:
        steps = ()
    status = _status(state, told, pod, as_of_ms, whys)
    predecessor, successor = neighbours(state, story, told, kin)
    life = life_of(state, told, as_of_ms, predecessor=predecessor, successor=successor)
    short_of_room = waits and fact.problem is None and steps[0].left > 0 == steps[-1].left
    one_day = short_of_room and status.fits_empty_cluster is True
    return PodExplanation(
        schema=SCHEMA,
        subject=Subject(kind="Pod", namespace=fact.namespace, name=fact.name, uid=fact.uid),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        status=status,
        request=request_of(asked_by(fact), fact.card_resources),
        funnel=steps,
        closest=tuple(closest(state, asked, status.cause, never=not one_day))
        if short_of_room
        else (),
        fragmentation=fragmentation(state, asked) if one_day else None,
        waiting_for=waiting_for(state, asked) if short_of_room else None,
        lacks=said.lacks if short_of_room and (ruled.no is None or not one_day) else (),
        counterfactuals=_advice(state, fact, ruled, asked, answers).changes
        if waits and advised
        else (),
        in_queue=place_in_queue(state, ruled.waiting, queue_name(fact), whys) if waits else None,
        queue=ruled.queue if waits else "",
        advice=_general(status) or _after(life, fact),
        placement=_placed(state, told, pod),
        problems=_problems(state, pod, as_of_ms),
        candidates=candidates,
        candidates_total=total,
        decided_by=decided_by(candidates),
        decision=_decision(state, placed, before),
        node_steps=None if node is None else _node_steps(state, told, asked, node, before),
        timeline=life.timeline,
        trace=TraceRef(trace_id=trace_id(fact.uid)),
        life=msgspec.structs.replace(life, timeline=()),
    )


class Advice(NamedTuple):
    """What would make a waiting pod fit; `never`: not even these nodes take it as it is if they are
    empty, so each change would fit those.
    """

    changes: tuple[Counterfactual, ...]
    never: bool


def advise(state: ClusterState, fact: PodObserved) -> Advice:
    """What would make a waiting pod fit, each change tried on this state."""
    whys = Whys(state)
    asked = whys.asked(fact)
    return _advice(state, fact, whys.ruled(fact), asked, whys.nodes(asked).answers)


def _advice(
    state: ClusterState,
    fact: PodObserved,
    ruled: PodVerdict,
    asked: PodRequest,
    answers: Sequence[str],
) -> Advice:
    fits_nowhere = FITS not in answers
    is_alone = ruled.no is None and not state.is_gang(fact.group)
    if fact.problem is not None or (is_alone and not fits_nowhere):
        return Advice((), never=False)
    is_ours = fact.scheduler in state.policy.scheduler_names
    never = fits_nowhere and (not is_ours or fits_empty_cluster(state, asked) is False)
    return Advice(advice(state, fact, ruled, asked, never=never), never)


def _general(status: Status) -> str:
    """General advice about the cause of a waiting pod, the same for all pods."""
    if status.phase != "Pending" or status.fits_empty_cluster is False:
        return ""  # no advice to wait for a pod that never fits
    reason = REASONS.get(status.cause)
    return "" if reason is None else reason.advice


def _after(life: Life, fact: PodObserved) -> str:
    """What to do about a pod that its node turned away: kubelet never starts it again."""
    end = life.end
    if end is None or end.kind != REFUSED_BY_NODE or life.successor is not None:
        return ""
    again = "its owner creates another pod" if fact.owner else "delete the pod and create it again"
    return f"{again}; check the device plugin of node {fact.node} if it rejects others too"


def fits_empty_cluster(state: ClusterState, request: PodRequest) -> bool | None:
    """Whether a node would take it if no pod ran in the cluster; cordons and outages do not count.
    None if the cluster has no node.
    """
    return Emptied(state).takes(request)


def is_barred(no: No | None) -> bool:
    """Whether a queue's refusal is about something else than amounts: without nodes what queues may
    have is a share of nothing, and says nothing.
    """
    reason = None if no is None else REASONS.get(no.code)
    return reason is not None and reason.cured_by not in (Cure.QUOTA, Cure.PODS)


def waiting_for(state: ClusterState, request: PodRequest) -> WaitingFor | None:
    """What has to happen for the request to fit; None if nothing that happens to nodes can help."""
    room, kept, change = 0, 0, 0
    empty = Emptied(state)
    around = look_around(list(state.nodes.values()), request)
    for node in present(state):
        if empty.refuses(node, request) is None:
            answer = fits(node, request, state.policy, around=around)
            if answer in KEPT_BACK:
                kept += 1
            elif answer in CURED_BY_ROOM:
                room += 1
            else:
                change += 1
    if kept:
        return WaitingFor(kind="HoldEnd", nodes=kept)
    if room:
        return WaitingFor(kind="Release", nodes=room)
    return WaitingFor(kind="NodeChange", nodes=change) if change else None


def _status(
    state: ClusterState,
    told: PodLife,
    pod: Pod | None,
    as_of_ms: int,
    whys: Whys,
) -> Status:
    fact = told.fact
    ruled, asked = whys.ruled(fact), whys.asked(fact)
    answers = whys.nodes(asked).answers
    phase = "Gone" if pod is None else pod_status(state, pod)[0]
    cause, why = ("", "") if pod is None else whys.of(pod)
    first_ms = told.first.time_ms
    waits = phase == "Pending" and pod is not None
    is_ours = fact.scheduler in state.policy.scheduler_names
    is_asked = waits and fact.problem is None and is_ours
    counted = list(answers) if is_asked else []
    refused, eviction = told.refused, state.evicting.get(fact.uid)
    ever = whys.nodes(asked).ever if is_asked else None
    no = ruled.no
    if no is not None and no.code in OF_CLUSTER and ever is False:
        no = None
    if is_asked and not answers and not is_barred(no):
        no = None
    nominated = state.nominated.values() if waits else ()
    starts_together = state.is_gang(fact.group)
    group = group_cause(state, pod)[1] if waits and pod is not None else ""
    refusal = None if pod is None else pod.refusal
    if not starts_together and refusal is not None and refusal.problem is None:
        group = ""  # of a pod that is by itself what its nodes lack says it all
    return Status(
        phase=phase,
        cause=cause,
        why=why,
        problem="" if fact.problem is None else problem_text(fact.problem),
        group=group,
        group_name=fact.group if group and starts_together else "",
        waits=_waits(state, pod),
        nominated=next((n.nodes[fact.uid] for n in nominated if fact.uid in n.nodes), ""),
        evicted_for="" if eviction is None else preemptor_name(state, eviction.preemptor),
        never_preempts=waits and ruled.never_preempts,
        node=_where(told, pod),
        since_seconds=max(as_of_ms - first_ms, 0) // 1000,
        attempts=told.attempts_total,
        unchanged_seconds=(
            max(as_of_ms - refused.time_ms, 0) // 1000 if waits and refused is not None else None
        ),
        latency_ms=None if told.placed is None else max(told.placed.time_ms - first_ms, 0),
        bound_ms=None if told.bound is None else max(told.bound.time_ms - first_ms, 0),
        nodes=len(counted),
        fits_now=sum(code == FITS for code in counted),
        fits_empty_cluster=ever,
        scheduler="" if is_ours or not waits else fact.scheduler,
        answers_to=() if is_ours or not waits else state.policy.scheduler_names,
        refused=None if no is None or not is_asked else reason_of(no),
        quota=quota_of(ruled.short) if is_asked and no is not None else (),
        notes=beside(state, fact, waits=waits)
        + (_group_note(state, fact) if is_asked else ())
        + notes_of(state, asked, Counter(counted).items())
        + (unserved(state, asked) if is_asked else ())
        + parts_note(fact.request, state)
        + misread(fact)
        + (() if waits or not is_ours else _preference_note(state, fact)),
    )


def _preference_note(state: ClusterState, fact: PodObserved) -> tuple[str, ...]:
    """That the pod's place has nothing to do with what it prefers."""
    kinds, why = ignored_of(state.policy, fact), why_ignored(state.policy)
    return (f"{', '.join(kinds)}: no effect, {why}",) if kinds else ()


def _group_note(state: ClusterState, fact: PodObserved) -> tuple[str, ...]:
    """That the pod's group can never start, if not even empty nodes hold its minimum."""
    group = state.groups.get(fact.group)
    if group is None or group.fact is None:
        return ()
    most = group_short_even_empty(state, group)
    if most is None:
        return ()
    least = group.fact.min_member
    return (f"its group can never start: at most {most} of {least} pods, even on empty nodes",)


def beside(state: ClusterState, fact: PodObserved, *, waits: bool) -> tuple[str, ...]:
    """Causes that have nothing to do with nodes: the scheduler that the pod names, or a queue that
    does not exist; each with the names that exist.
    """
    ours = state.policy.scheduler_names
    if not waits:
        return ()
    if fact.scheduler not in ours:
        said = f"its schedulerName is {fact.scheduler}; {answers_to(ours)}"
        near = nearest(fact.scheduler, set(ours))
        return (said + (f"; did you mean {near}?" if near else ""),)
    group = state.groups.get(fact.group)
    queue = fact.queue if group is None or group.fact is None else group.fact.queue
    no = missing_queue(state, queue or DEFAULT_QUEUE) if state.is_batched else None
    return () if no is None else (no.message,)


def _waits(state: ClusterState, pod: Pod | None) -> str:
    """What a pod that has its place still waits for: another pod in its way, or its plugin."""
    if pod is None or pod.allocation is None:
        return ""
    left = in_the_way(state, pod.allocation)
    if left is not None:
        node = pod.allocation.node
        return f"to be bound to node {node}: {standing_text(left)}; it is being erased"
    if pod_status(state, pod)[1] == NOT_ACKNOWLEDGED:
        return (
            "for its device plugin, which has not allocated its devices yet; if it does not start, "
            f"check that the plugin runs on node {pod.allocation.node}"
        )
    ahead, question = ahead_of(state, pod), plugin_question(pod.allocation.holdings)
    if ahead is None or question is None:
        return ""
    return wait_text(pod.allocation.node, question, ahead)


def _node_steps(
    state: ClusterState,
    told: PodLife,
    asked: PodRequest,
    name: str,
    before: ClusterState | None,
) -> NodeSteps:
    """Every step on one node: of a placed pod at its decision, because now it would have to take a
    second copy of the pod. A node that was added later is checked as it is now.
    """
    fact, placed = told.fact, told.placed
    if placed is not None and before is not None:
        node, request = node_at_decision(before, placed.decided, fact, name)
        if node is not None:
            steps = node_steps(before, node, request, fact)
            given = placed.placement
            ids = {h.card for h in given.holdings} if given and given.node == name else ()
            cards = (msgspec.structs.replace(card, chosen=card.id in ids) for card in steps.cards)
            return msgspec.structs.replace(steps, cards=tuple(cards), decision=placed.seq)
    return node_steps(state, state.nodes[name], asked, fact)


def with_services(found: PodExplanation, idle: Sequence[Finding]) -> PodExplanation:
    """An explanation with the problems of the services (`of_leases`), if they are why the pod was
    not tried yet.
    """
    if found.status.cause != QUEUED or not idle:
        return found
    problems = (*found.problems, *_open_problems(idle))
    return msgspec.structs.replace(found, problems=problems, advice="")


def _problems(state: ClusterState, pod: Pod | None, as_of_ms: int) -> tuple[OpenProblem, ...]:
    return _open_problems(() if pod is None else of_pod(state, pod, as_of_ms))


def _open_problems(found: Sequence[Finding]) -> tuple[OpenProblem, ...]:
    return tuple(
        OpenProblem(
            severity=one.severity,
            code=one.code,
            subject=one.subject,
            message=one.message,
            remedy=one.remedy,
            place=one.place,
            seq=one.seq,
        )
        for one in found
    )


def _where(told: PodLife, pod: Pod | None) -> str:
    if pod is not None and pod.allocation is not None:
        return pod.allocation.node
    return told.node


def _placed(state: ClusterState, told: PodLife, pod: Pod | None) -> Placed | None:
    held = pod.allocation if pod is not None else None
    placement = told.placed.placement if told.placed is not None else None
    source = held or placement
    if source is None:
        return None
    node = state.nodes.get(source.node)
    return Placed(
        node=source.node,
        phase="released" if held is None else PERHAPS if held.unplaced else held.phase,
        devices=tuple(_held(node, holding) for holding in source.holdings),
        extended=plain(source.extended),
        cpu_milli=source.cpu_milli,
        host_memory_bytes=source.memory_bytes,
        others=held is not None and held.phase == BOUND and held.seq == 0,
    )


def _held(node: Node | None, holding: Holding) -> Held:
    ledger = node.ledgers.get(holding.family) if node is not None else None
    card = ledger.by_id.get(holding.card) if ledger is not None else None
    return Held(
        device=device_name(node, holding),
        id=holding.card,
        model="" if card is None else card.fact.model,
        container=holding.container,
        memory_bytes=holding.memory_mib * MIB,
        compute_percent=holding.cores_pct,
        compute_whole=compute_whole(node, holding),
        instance=piece_name(holding),
        profile="" if card is None else profile_name(card.table, holding.instance),
    )


def _decision(
    state: ClusterState, placed: Attempt | None, before: ClusterState | None
) -> DecisionRef | None:
    if placed is None:
        return None
    decided = placed.decided
    policy = before.policy if before is not None else state.policy
    return DecisionRef(
        id=f"d-{placed.seq}",
        seq=placed.seq,
        cycle=decided.cycle,
        basis=decided.basis,
        checked=decided.checked,
        policy=_policy_name(policy),
        policy_version=decided.policy,
        ledger_seq=decided.basis,
    )


def _policy_name(policy: Policy) -> str:
    """``binpack``; with another policy for hosts ``spread (hosts binpack)``."""
    if policy.host_policy == policy.device_policy:
        return policy.device_policy
    return f"{policy.device_policy} (hosts {policy.host_policy})"
