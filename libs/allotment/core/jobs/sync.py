"""One sync of a Job, one plan: what to write, end and create.

A plan is made from what is, not from what changed, so that it can be made again after a crash at
any point: a version tells pods and PodGroups of an earlier life, a mark tells pods that we are
ending. The host carries a plan out in the order of its fields and stops where the server refuses;
the next look makes a new one.
"""

from collections.abc import Iterable

import msgspec

from allotment.core.jobs import done, groups
from allotment.core.jobs.machine import (
    Reaction,
    Scope,
    count,
    is_final,
    is_working,
    react,
    settle,
)
from allotment.core.jobs.model import (
    FAILED,
    GROUP_INQUEUE,
    PENDING,
    RESTARTING,
    RUNNING,
    Job,
    JsonObject,
    Notice,
    PodGroup,
    PodView,
    Priorities,
)
from allotment.core.jobs.policies import Due, Happened, choose, due_actions, happenings
from allotment.core.jobs.seats import Seat, free_seats, index_of, surplus
from allotment.core.jobs.status import Moment, Standing, patch

_HELD_BACK = ("", PENDING, RUNNING)


class Look(msgspec.Struct, frozen=True):
    """A Job at present. Its spec has its defaults; times are seconds since 1970."""

    job: Job
    pods: tuple[PodView, ...]
    group: PodGroup | None
    now: Moment
    entered_s: int = 0
    """When its phase was entered."""
    started_s: int = 0
    """When it first ran; 0: never."""
    happened: tuple[Happened, ...] = ()
    """Events that leave no trace in the present state: pods that were lost."""
    command: str = ""
    """The action of a Command; it takes precedence over all policies."""
    invalid: str = ""
    """What is wrong with the spec: the controller then creates nothing for the Job and ends
    nothing.
    """
    obstacle: str = ""
    """Why its PodGroup may not be created, if it does not exist yet."""


class Plan(msgspec.Struct, frozen=True):
    """What to do, in this order."""

    status: JsonObject = {}
    """The merge patch for the status; empty when it is up to date."""
    notices: tuple[Notice, ...] = ()
    delete_group: bool = False
    end: tuple[PodView, ...] = ()
    """Pods to mark and delete."""
    needs_objects: bool = False
    """Volumes and the plugins' objects must exist."""
    create_group: bool = False
    group_changes: JsonObject = {}
    create: tuple[Seat, ...] = ()
    delete_job: bool = False
    look_again_s: int | None = None
    """When to sync again even if nothing happens."""
    remember: tuple[Happened, ...] = ()
    """Events that a policy answers later; the others are dealt with."""


class _Step(msgspec.Struct, frozen=True):
    """The Job's next phase, and which pods end on the way."""

    standing: Standing
    end: tuple[PodView, ...] = ()
    keeps_group: bool = True
    notices: tuple[Notice, ...] = ()


def plan(look: Look, priorities: Priorities) -> Plan:
    """What to do for a Job now."""
    look = msgspec.structs.replace(look, pods=(*look.pods, *done.remembered(look.job, look.pods)))
    job, now_s = look.job, look.now.s
    if not look.command and job.phase in _HELD_BACK:
        if look.invalid:
            return _held_back(look, "InvalidJob", look.invalid)
        if look.obstacle and look.group is None:
            return _held_back(look, "NotAdmitted", look.obstacle)
    due = _due(look)
    step = _act(look, choose(due, now_s)) or _go_on(look)
    later = [action for action in due if action.at_s > now_s]
    if step.standing.phase != job.phase:
        later = []  # it is another Job now; writing the status triggers the next sync
    times = [action.at_s for action in later]
    delete_job = False
    ttl_s = job.spec.ttl_seconds_after_finished
    if is_final(job.phase) and ttl_s is not None:
        delete_job = look.entered_s + ttl_s <= now_s
        times.append(look.entered_s + ttl_s)
    made = _making(look, step, priorities)
    return msgspec.structs.replace(
        made,
        status=_patch(look, step.standing, step.end),
        notices=step.notices,
        end=tuple(filter(done.is_there, step.end)),
        delete_job=delete_job,
        look_again_s=min(times, default=None),
        remember=tuple(action.why for action in later if action.why in look.happened),
    )


def _held_back(look: Look, reason: str, message: str) -> Plan:
    """Report why nothing is created for the Job, and leave its objects as they are."""
    job = look.job
    standing = Standing(job.phase or PENDING, job.retry_count, job.version, reason, message)
    notice = Notice("Warning", reason, message)
    return Plan(status=_patch(look, standing, ()), notices=(notice,))


def _due(look: Look) -> list[Due]:
    """The actions that policies ask for, about the present state and about pods that were lost and
    did not come back.
    """
    job = look.job
    if not is_working(job.phase):
        return []
    group_phase = look.group.status.phase if look.group else ""
    back = {pod.name for pod in look.pods if pod.phase == RUNNING and not pod.is_deleting}
    delayed = [what for what in look.happened if what.pod not in back]
    seen = happenings(job.spec, look.pods, group_phase, job.version)
    return due_actions(job.spec, [*seen, *delayed], job.version)


def _act(look: Look, due: Due | None) -> _Step | None:
    """The step of a Command or a policy; None if there is none, or it changes nothing."""
    action = look.command or (due.action if due else "")
    job = look.job
    reaction = react(job.phase, action)
    if reaction is None:
        return None
    if look.command or due is None:
        text = f"Start to execute action {action} of a Command"
        notice, reason, why = Notice("Normal", "CommandIssued", text), "CommandIssued", Happened("")
    else:
        why, reason = due.why, due.why.event
        about = f" of {why.pod or why.role}" if why.role else ""
        text = f"Start to execute action {action} because of {why.event}{about}"
        notice = Notice("Normal", "ExecuteAction", text)
    is_whole = _is_whole(reaction, why)
    retry_count = job.retry_count + reaction.retries
    return _Step(
        Standing(reaction.phase, retry_count, job.version + is_whole, reason, text),
        end=_ended_by(look, reaction, why, retry_count),
        keeps_group=not is_whole,
        notices=(notice,),
    )


def _is_whole(reaction: Reaction, why: Happened) -> bool:
    """Whether the whole Job ends; also when the action names no role or pod."""
    if reaction.scope is Scope.JOB:
        return True
    return not (why.pod if reaction.scope is Scope.POD else why.role)


def _ended_by(
    look: Look, reaction: Reaction, why: Happened, retry_count: int
) -> tuple[PodView, ...]:
    if _is_whole(reaction, why):
        if reaction.phase != RESTARTING or _is_last_retry(look.job, retry_count):
            return _alive(look.pods)
        return _not_going(look.pods)
    if reaction.scope is Scope.POD:
        return _not_going(pod for pod in look.pods if pod.name == why.pod)
    of_role = [pod for pod in look.pods if pod.role == why.role]
    task = look.job.spec.role(why.role)
    if reaction.scope is Scope.PARTITION and task is not None and why.pod:
        partition = task.partition(index_of(why.pod))
        of_role = [pod for pod in of_role if task.partition(pod.index) == partition]
    return _not_going(of_role)


def _is_last_retry(job: Job, retry_count: int) -> bool:
    return retry_count >= (job.spec.max_retry or 0)


def _go_on(look: Look) -> _Step:
    """No action: end pods that are out of place, then let the counts determine the phase."""
    job = look.job
    end = _out_of_place(look)
    doomed = frozenset(pod.uid for pod in end)
    following = settle(job.phase, job.spec, count(look.pods, doomed), job.retry_count)
    reason = message = ""
    notices: tuple[Notice, ...] = ()
    if is_working(following) and (message := _unschedulable(look.group)):
        reason = "Unschedulable"
        name = f"{job.metadata.namespace}:{groups.name_of(job)}"
        text = f"PodGroup {name} unschedulable, reason: {message}"
        notices = (Notice("Warning", "PodGroupPending", text),)
    if look.invalid and not is_final(following):
        reason, message = "InvalidJob", look.invalid
    if following == FAILED and job.phase != FAILED:
        reason, message = _why_failed(look)
    return _Step(
        Standing(following, job.retry_count, job.version, reason, message),
        end=end,
        keeps_group=is_working(following) or following == RESTARTING,
        notices=notices,
    )


def _unschedulable(group: PodGroup | None) -> str:
    """Why a gang that has not started waits; empty if its PodGroup gives no reason."""
    if group is None or group.status.phase not in (*groups.WAITING, GROUP_INQUEUE):
        return ""
    return groups.unschedulable_message(group)


def _why_failed(look: Look) -> tuple[str, str]:
    job = look.job
    if job.phase == RESTARTING:
        return "MaxRetry", f"restarted {job.retry_count} times, maxRetry is {job.spec.max_retry}"
    counts = count(look.pods)
    needed = max(job.spec.minimum, job.spec.min_success or 0)
    text = f"{counts.succeeded} pods succeeded, {counts.failed} failed; needed are {needed}"
    short = [
        f"{counts.succeeded_of.get(task.name, 0)} of {task.minimum} of task {task.name}"
        for task in job.spec.roles
        if counts.succeeded_of.get(task.name, 0) < task.minimum
    ]
    return "NotEnoughSucceeded", "; ".join([text, *short])


def _out_of_place(look: Look) -> tuple[PodView, ...]:
    """Pods that the phase does not need."""
    job, pods = look.job, look.pods
    marked = [pod for pod in pods if pod.is_marked]
    old = [pod for pod in pods if pod.version < job.version]
    if is_working(job.phase):
        wrong = [*marked, *old, *surplus(job.spec, pods)]
    elif job.phase == RESTARTING:
        keeps_finished = _is_last_retry(job, job.retry_count)
        wrong = [*marked, *(_alive(old) if keeps_finished else old)]
    elif job.phase == "":
        wrong = []
    else:
        wrong = list(_alive(pods))
    return _not_going({pod.uid: pod for pod in wrong}.values())


def _alive(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods if pod.is_alive and not pod.is_deleting)


def _not_going(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods if not pod.is_deleting)


def _making(look: Look, step: _Step, priorities: Priorities) -> Plan:
    """PodGroup and pods, as far as the Job's next phase wants them."""
    job, group = look.job, look.group
    if group is not None and (groups.is_stale(group, job) or not step.keeps_group):
        return Plan(delete_group=group.metadata.deletion_timestamp is None)
    if look.invalid or not is_working(step.standing.phase):
        return Plan()
    if group is None:
        return Plan(needs_objects=True, create_group=True)
    may_run = group.status.phase not in groups.WAITING
    return Plan(
        needs_objects=True,
        group_changes=groups.spec_changes(group, job, priorities, done.gone(look.pods)),
        create=tuple(free_seats(job.spec, look.pods)) if may_run else (),
    )


def _patch(look: Look, standing: Standing, end: Iterable[PodView]) -> JsonObject:
    doomed = frozenset(pod.uid for pod in end)
    return patch(look.job, standing, look.pods, doomed, look.now, look.started_s)
