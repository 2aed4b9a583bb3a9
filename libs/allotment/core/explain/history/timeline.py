"""A pod's collected life in words: its end with cause, its phases and attempts, and the same in
lines.

Stages of a cycle carry the clocks of their services, records the clock of the log.
"""

from collections.abc import Iterator

from allotment.core import reasons
from allotment.core.explain.causes.counterfactual import term_text
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.history import attempts
from allotment.core.explain.history.pod_story import Attempt, Kin, Moment, PodLife, PodStory, Span
from allotment.core.explain.rows import life
from allotment.core.explain.rows.life import End, EvictedFor, Life, Phase, Relative, Stage, Try
from allotment.core.explain.rows.pod_views import asked_by, pod_status, request_of
from allotment.core.explain.rows.schema import AsOf, Line, Subject
from allotment.core.ledger.model import ClusterState
from allotment.core.reasons import refusal_text
from allotment.core.trace_ids import trace_id
from allotment.core.units import duration_text, points_text, rfc3339
from allotment_proto.events import Ending, StageTime
from allotment_proto.facts import ALONE, Toleration

_QUEUED_SHOWN_MS = 10_000
"""The shortest wait for a pod's turn that gets a line."""
_GAINS_SHOWN = 4
_USUALLY_TOLERATED = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))
_NOT_OF_ADMISSION = frozenset(
    ("DeadlineExceeded", "Evicted", "NodeLost", "NodeShutdown", "Preempting", "Terminated")
)
"""Reasons of a failed pod that was admitted by its node's kubelet, though it may never have run."""
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "evicted through the Eviction API, as kubectl drain does",
    "DeletionByTaintManager": "deleted because of a NoExecute taint of its node",
    "PreemptionByScheduler": "evicted by a scheduler, to make room",
    "TerminationByKubelet": "ended by the kubelet of its node",
    "DeletionByPodGC": "deleted by Kubernetes' pod garbage collector",
}
"""Reasons of the condition ``DisruptionTarget``, in words."""
_ACTIONS = {"preempt": "preempted for", "reclaim": "evicted, to reclaim its room, for"}


def life_of(
    state: ClusterState,
    told: PodLife,
    as_of_ms: int,
    *,
    predecessor: Relative | None = None,
    successor: Relative | None = None,
    is_timed: bool = True,
) -> Life:
    """The whole story of one pod, followed to the sequence of `state`; the timeline, which costs as
    much as all else, only if `is_timed`.
    """
    fact = told.fact
    status, cause = _standing(state, told)
    nominated = next(
        (n.nodes[told.uid] for n in state.nominated.values() if told.uid in n.nodes), ""
    )
    return Life(
        schema=life.STORY_SCHEMA,
        subject=Subject(kind="Pod", namespace=fact.namespace, name=fact.name, uid=fact.uid),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        trace_id=trace_id(fact.uid),
        owner=fact.owner,
        created_ms=fact.created_ms,
        seen_ms=told.first.time_ms,
        seen_seq=told.first.seq,
        status=status,
        cause=cause,
        ask=_ask_of(told),
        phases=tuple(map(_phase, told.spans)),
        phases_left_out=told.spans_left_out,
        nominated=nominated,
        displaced=tuple(told.displaced.values()),
        end=_end_of(told),
        predecessor=predecessor,
        successor=successor,
        attempts=tuple(_tries(told)),
        attempts_total=told.attempts_total,
        timeline=tuple(_timeline(told)) if is_timed else (),
    )


def _standing(state: ClusterState, told: PodLife) -> tuple[str, str]:
    pod = state.pods.get(told.uid)
    if pod is None:
        return "Gone", ""
    return pod_status(state, pod)[0], Whys(state).of(pod).code


def _relative_of(state: ClusterState, told: PodLife, *, is_of_owner: bool = False) -> Relative:
    """A pod as the story of the one before or after it names it."""
    fact = told.fact
    return Relative(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        seen_seq=told.first.seq,
        seen_ms=told.first.time_ms,
        is_of_owner=is_of_owner,
        status=_standing(state, told)[0],
        node=told.node,
        end=_end_of(told),
    )


def neighbours(
    state: ClusterState, story: PodStory, told: PodLife, kin: PodLife | None = None
) -> tuple[Relative | None, Relative | None]:
    """The pods before and after a pod: of its name, else of its owner. `kin` is the life of the one
    before it of its owner; without it only that pod's name is known.
    """
    uids = list(story.lives)
    at = uids.index(told.uid)
    before = after = None
    if at > 0:
        before = _relative_of(state, story.lives[uids[at - 1]])
    elif told.uid in story.before:
        known = story.before[told.uid]
        if kin is not None and kin.uid == known.uid:
            before = _relative_of(state, kin, is_of_owner=True)
        else:
            before = _glimpse(state, known)
    if at + 1 < len(uids):
        after = _relative_of(state, story.lives[uids[at + 1]])
    elif told.uid in story.after:
        after = _glimpse(state, story.after[told.uid])
    return before, after


def _glimpse(state: ClusterState, kin: Kin) -> Relative:
    pod = state.pods.get(kin.uid)
    held = None if pod is None else pod.allocation
    return Relative(
        namespace=kin.namespace,
        name=kin.name,
        uid=kin.uid,
        seen_seq=kin.seen.seq,
        seen_ms=kin.seen.time_ms,
        is_of_owner=True,
        status="Gone" if pod is None else pod_status(state, pod)[0],
        node="" if held is None else held.node,
    )


def _ask_of(told: PodLife) -> life.Ask:
    """What the pod asked for while it waited."""
    fact = told.asked
    request = asked_by(fact)
    constraints = request.constraints
    return life.Ask(
        request=request_of(request, fact.card_resources),
        node_selector=dict(constraints.node_selector),
        affinity=tuple(map(term_text, constraints.affinity)),
        tolerations=tuple(
            _toleration_text(each) for each in constraints.tolerations if not _is_usual(each)
        ),
        others=request.company != ALONE,
        queue=told.queue or fact.queue,
        group=fact.group,
        role=fact.role,
        scheduler=fact.scheduler,
        priority=fact.priority,
        priority_class=fact.priority_class,
        never_preempts=not fact.preempts,
    )


def _is_usual(toleration: Toleration) -> bool:
    """Whether Kubernetes gives it to every pod (admission plugin DefaultTolerationSeconds)."""
    return toleration.effect == "NoExecute" and toleration.key in _USUALLY_TOLERATED


def _toleration_text(toleration: Toleration) -> str:
    key = toleration.key or "every taint"
    value = f"={toleration.value}" if toleration.operator != "Exists" and toleration.key else ""
    return f"{key}{value}" + (f":{toleration.effect}" if toleration.effect else "")


def _end_of(told: PodLife) -> End | None:
    """How the pod ended, or ends; None while nothing ends it.

    Of several causes the first one counts: a pod that is evicted is deleted after that, and its
    containers are stopped and fail after that.
    """
    at = told.deleting or told.ended or told.gone
    if at is None:
        return None
    if told.ended is not None and told.eviction is None and told.deleting is None:
        at = told.ended
    ending = told.fact.ending or Ending()
    seen_last = told.node_gone or told.ended or told.gone or told.deleting or at
    run_ms = None if told.ran is None else max(seen_last.time_ms - told.ran.time_ms, 0)
    kind, code, text = _cause(told, ending, run_ms)
    return End(
        kind=kind,
        text=text + _gains_text(told) if kind == life.EVICTED else text,
        seq=at.seq,
        time=rfc3339(at.time_ms),
        time_ms=at.time_ms,
        code=code,
        message=ending.message or ending.disruption_message,
        node=told.node,
        run_ms=run_ms,
        container=ending.container,
        exit_code=ending.exit_code,
        evicted=_evicted_for(told) if kind == life.EVICTED else None,
        node_gone_seq=told.node_gone.seq if kind == life.NODE_GONE and told.node_gone else None,
        waited_for=told.waited_for if kind == life.DELETED_WAITING else "",
        gone_seq=None if told.gone is None else told.gone.seq,
        gone_ms=None if told.gone is None else told.gone.time_ms,
    )


def _cause(told: PodLife, ending: Ending, run_ms: int | None) -> tuple[str, str, str]:
    """The kind, the code and the sentence of an end."""
    fact = told.fact
    after = "" if run_ms is None else f" after it ran {duration_text(run_ms)}"
    ended_by_itself = told.ended is not None and told.deleting is None
    if told.eviction is not None and not ended_by_itself:
        action = _ACTIONS.get(told.eviction.eviction.action, "evicted for")
        said = f"{action} {told.eviction.preemptor} by decision {told.eviction.moment.seq}"
        return life.EVICTED, told.eviction.eviction.action, said + after
    if fact.phase == "Failed" and _is_refused_by_node(told, ending):
        said = ending.message or "kubelet gives no reason in words"
        return (
            life.REFUSED_BY_NODE,
            fact.reason,
            f"refused by node {told.node}: {fact.reason}: {said}",
        )
    if ending.disruption and told.node_gone is None:
        said = _DISRUPTIONS.get(ending.disruption, f"ended: {ending.disruption}")
        words = f": {ending.disruption_message}" if ending.disruption_message else ""
        return life.DISRUPTED, ending.disruption, f"{said}{words}{after}"
    if told.node_gone is not None and (told.ended is None or fact.phase == "Failed"):
        said = f"ended with its node {told.node}, which is gone (seq {told.node_gone.seq})"
        return life.NODE_GONE, fact.reason, said + after
    if fact.phase == "Succeeded":
        return life.SUCCEEDED, "", f"succeeded{after}"
    if fact.phase == "Failed":
        return (
            life.FAILED,
            fact.reason or ending.exit_reason,
            f"failed{after}{_failure(told, ending)}",
        )
    if not told.node:
        waited_ms = (told.deleting or told.gone or told.first).time_ms - told.first.time_ms
        said = f"deleted after it waited {duration_text(max(waited_ms, 0))}"
        why = f" for {told.waited_for}" if told.waited_for else ""
        return life.DELETED_WAITING, "", said + why
    where = "" if told.ran is not None else " before it ran"
    return life.DELETED, "", f"deleted{where}{after}; the log does not say by whom"


def _is_refused_by_node(told: PodLife, ending: Ending) -> bool:
    """Whether kubelet, or a device plugin that it asked, rejected the pod."""
    fact = told.fact
    is_refusal = bool(fact.reason) and fact.reason not in _NOT_OF_ADMISSION
    return told.ran is None and bool(fact.node) and is_refusal and not ending.exit_code


def _failure(told: PodLife, ending: Ending) -> str:
    parts = []
    if ending.container:
        why = f" ({ending.exit_reason})" if ending.exit_reason else ""
        parts.append(f"container {ending.container} exited with {ending.exit_code}{why}")
    if told.fact.reason:
        parts.append(told.fact.reason)
    if ending.message:
        parts.append(ending.message)
    return "".join(f": {part}" for part in parts)


def _evicted_for(told: PodLife) -> EvictedFor | None:
    found = told.eviction
    if found is None:
        return None
    return EvictedFor(
        decision=found.moment.seq,
        time=rfc3339(found.moment.time_ms),
        time_ms=found.moment.time_ms,
        action=found.eviction.action,
        preemptor=found.preemptor,
        node=found.eviction.node,
        gained=tuple(found.gains.values()),
    )


def _gains_text(told: PodLife) -> str:
    """The pods that got room by an eviction: those that are placed; until one is, those that are
    nominated.
    """
    if told.eviction is None:
        return ""
    gains = told.eviction.gains.values()
    placed = [f"{g.name} got {g.node} (decision {g.decision})" for g in gains if g.decision]
    named = placed or [f"{g.name} is nominated for {g.node}" for g in gains]
    more = [f"{len(named) - _GAINS_SHOWN} more"] if len(named) > _GAINS_SHOWN else []
    return "".join(f"; {text}" for text in named[:_GAINS_SHOWN] + more)


def _phase(span: Span) -> Phase:
    last, end = span.last_attempt, span.end
    return Phase(
        name=span.name,
        service=span.service,
        start=rfc3339(span.start.time_ms),
        start_ms=span.start.time_ms,
        start_seq=span.start.seq,
        end="" if end is None else rfc3339(end.time_ms),
        end_ms=None if end is None else end.time_ms,
        end_seq=None if end is None else end.seq,
        code=span.code,
        text=span.text,
        attempts=span.attempts,
        last_attempt_ms=None if last is None else last.time_ms,
        last_attempt_seq=None if last is None else last.seq,
        node=span.node,
        decision=span.decision,
    )


def _tries(told: PodLife) -> Iterator[Try]:
    number = told.attempts_total - len(told.attempts)
    for attempt in told.attempts:
        number += 1
        placement, decided = attempt.placement, attempt.decided
        yield Try(
            number=number,
            seq=attempt.seq,
            time_ms=attempt.time_ms,
            outcome=attempt.outcome,
            basis=decided.basis,
            checked=decided.checked,
            cycle=decided.cycle,
            code=attempt.code,
            text=_outcome_text(attempt),
            node="" if placement is None else placement.node,
            feasible=None if placement is None else placement.feasible,
            nodes=None if placement is None else placement.nodes,
            score_micro=None if placement is None else placement.score_micro,
            stages=tuple(
                Stage(
                    service=stage.stage,
                    instance=stage.instance,
                    received_us=stage.received_us,
                    finished_us=stage.finished_us,
                )
                for stage in decided.stages
            ),
        )


def _timeline(told: PodLife) -> list[Line]:
    """All lines in the order of their times; equal times keep the order of the log. Lines about the
    scheduler's own steps are marked as details.
    """
    first_ms = told.first.time_ms
    lines = [_line(first_ms, moment, moment.text) for moment in told.moments]
    lines += [
        _line(first_ms, span.start, _wait_text(span))
        for span in told.spans
        if span.name == life.WAITING and _is_worth_a_line(span)
    ]
    lines += _displacements(told, first_ms)
    number = told.attempts_total - len(told.attempts)
    for attempt in told.attempts:
        number += 1
        lines += _attempt(first_ms, number, attempt)
    lines += _last_lines(told, first_ms)
    lines.sort(key=lambda line: (line.time_ms, line.seq or 0))
    return lines


def _last_lines(told: PodLife, first_ms: int) -> Iterator[Line]:
    end = _end_of(told)
    if end is None:
        return
    if told.deleting is not None:
        yield _line(first_ms, told.deleting, "deletion asked for")
    over = told.ended or told.gone or told.deleting
    if over is not None:
        ending = told.fact.ending or Ending()
        yield _line(first_ms, over, _cause(told, ending, end.run_ms)[2])
    if told.gone is not None and told.gone is not over:
        yield _line(first_ms, told.gone, "removed from the cluster")


def _displacements(told: PodLife, first_ms: int) -> Iterator[Line]:
    """A line for each decision that evicts others for the pod."""
    by_decision: dict[int, list[life.Displaced]] = {}
    for displaced in told.displaced.values():
        by_decision.setdefault(displaced.decision, []).append(displaced)
    for seq, found in by_decision.items():
        moment = Moment(seq=seq, time_ms=found[0].time_ms, by="binder")
        names = ", ".join(f"{each.namespace}/{each.name} on {each.node}" for each in found)
        yield _line(first_ms, moment, f"decision {seq} evicts for it ({found[0].action}): {names}")


def _is_worth_a_line(span: Span) -> bool:
    if span.code != reasons.QUEUED:
        return True
    return span.end is None or span.end.time_ms - span.start.time_ms >= _QUEUED_SHOWN_MS


def _wait_text(span: Span) -> str:
    said = f"waits: {span.code}: {span.text}" if span.code else f"waits: {span.text}"
    if span.attempts > 1 and span.last_attempt is not None:
        took = duration_text(max(span.last_attempt.time_ms - span.start.time_ms, 0))
        same = "the last answer of" if span.varies else "the same at"
        said += f" ({same} {span.attempts} attempts in {took})"
    return said


def _attempt(first_ms: int, number: int, attempt: Attempt) -> Iterator[Line]:
    for stage in attempt.decided.stages:
        time_ms = stage.finished_us // 1000
        yield Line(
            time=rfc3339(time_ms),
            time_ms=time_ms,
            offset_ms=time_ms - first_ms,
            by=f"{stage.stage}/{stage.instance}",
            text=_stage_text(number, attempt, stage),
            detail=True,
        )
    moment = Moment(seq=attempt.seq, time_ms=attempt.time_ms, by=attempt.by)
    said = _outcome_text(attempt)
    is_detail = attempt.outcome not in (attempts.PLACED, attempts.VOID, attempts.DROPPED)
    text = f"attempt {number}: {said}" if is_detail or number > 1 else said
    yield _line(first_ms, moment, text, is_detail=is_detail)


def _stage_text(number: int, attempt: Attempt, stage: StageTime) -> str:
    placement, decided = attempt.placement, attempt.decided
    if stage.stage == "filter":
        said = f"attempt {number} on ledger {decided.basis}"
        if placement is not None:
            return f"{said}: {placement.feasible}/{placement.nodes} nodes fit"
        if attempt.refusal is not None and attempt.refusal.nodes:
            return f"{said}: 0/{attempt.refusal.nodes} nodes fit"
        return said
    if stage.stage == "scorer":
        if placement is None:
            return "no place found"
        return f"best {placement.node} ({points_text(placement.score_micro)})"
    return f"asked again on ledger {decided.checked}"


def _outcome_text(attempt: Attempt) -> str:
    placement = attempt.placement
    where = placement.node if placement is not None else ""
    match attempt.outcome:
        case attempts.PLACED if placement is not None:
            return (
                f"placed on {where}: best of {placement.feasible} that fit, of {placement.nodes} "
                f"nodes (decision {attempt.seq})"
            )
        case attempts.VOID:
            return f"placement on {where} is void: facts that landed first took the room"
        case attempts.DROPPED:
            return f"no longer fits on {where}: {attempt.code}"
        case attempts.REFUSED if attempt.refusal is not None:
            return f"waits: {refusal_text(attempt.refusal).removesuffix('.')}"
        case attempts.SHORT:
            return f"its group waits: {attempt.code}: {attempt.message}"
        case attempts.UNCHANGED:
            return "waits for the same reasons"
        case _:
            return "not placed: others came first in this round"


def _line(first_ms: int, moment: Moment, text: str, *, is_detail: bool = False) -> Line:
    return Line(
        time=rfc3339(moment.time_ms),
        time_ms=moment.time_ms,
        offset_ms=moment.time_ms - first_ms,
        by=moment.by,
        text=text,
        seq=moment.seq,
        detail=is_detail,
    )
