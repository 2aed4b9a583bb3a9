"""A round's decisions as the log records them: placements, wholes, and who waits and why."""

from collections.abc import Collection, Iterable

from allotment.core.jobs.keys import GROUP_NAME
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import Outcome, same_refusal
from allotment.core.queues.actions.allocate import (
    COMMITTED,
    DISCARDED,
    INVALID,
    OVERUSED,
    Turn,
    cause_of,
)
from allotment.core.queues.actions.enqueue import Enqueued
from allotment.core.queues.answers import No, recordable
from allotment.core.queues.model import JobView, Status
from allotment.core.queues.round.places import Places
from allotment.core.queues.session import Session, why_unplaced
from allotment.core.queues.texts import attempt_of, gang_unschedulable
from allotment.core.queues.work import Job
from allotment.core.reasons import (
    GANG_INCOMPLETE,
    GROUP_MISSING,
    OF_CLUSTER,
    OF_GROUP,
    QUOTA_CODES,
    REASONS,
)
from allotment_proto.events import Admission, Held, PodObserved, Refusal, Short
from allotment_proto.facts import Problem


def waiting_in(view: JobView) -> list[str]:
    """The pods of a job that wait for a place."""
    return [task.uid for task in view.tasks if task.status is Status.PENDING and not task.gated]


def _group_missing(pod: PodObserved) -> Problem:
    """Why a pod waits whose PodGroup does not exist."""
    if pod.queue:
        why = "is not made yet; the controller makes it for the pod (does it run with group-pods?)"
    else:
        why = f"does not exist; the pod waits for it, as its annotation {GROUP_NAME} says"
    return Problem(GROUP_MISSING, f"PodGroup {pod.group}", why)


def _is_in_sub_group(job: Job, uid: str) -> bool:
    """Whether the pod is placed with others or not at all."""
    name = job.tasks[uid].sub_group[0]
    return any(rule.name == name and rule.size > 1 for rule in job.view.sub_groups)


class OutcomeBuilder:
    """Collects a round's outcome for the log, turn by turn."""

    def __init__(self, state: ClusterState, session: Session, places: Places) -> None:
        self._state = state
        self._session = session
        self._places = places
        self._gangs: dict[str, tuple[str, ...]] = {}
        """By group: the pods of its minimum, including those that request nothing."""
        self._waiting_gangs: dict[str, Short] = {}
        self._refusals: dict[str, Refusal] = {}
        self._started: set[str] = set()

    def take(self, turn: Turn) -> None:
        """Record how a job's turn ended."""
        job = self._session.jobs.get(turn.job)
        if job is None:
            return
        if turn.ending == COMMITTED and turn.placed:
            uids = tuple(uid for uid, _ in turn.placed)
            is_of_minimum = not turn.was_ready and job.view.min_member > 1
            if is_of_minimum or any(_is_in_sub_group(job, uid) for uid in uids):
                self._gangs[turn.job] = self._gangs.get(turn.job, ()) + uids
            self._started.add(turn.job)
        elif turn.ending in (DISCARDED, INVALID, OVERUSED) and turn.job not in self._started:
            self._short(turn, job)
        self._refuse(turn.refused)
        if turn.ending == DISCARDED and turn.no is None and turn.job not in self._started:
            self._tell_others(turn, job)
        if turn.no is not None:
            no = turn.no
            if turn.ending == INVALID:  # its message counts pods, so it changes often
                no = No(no.code, REASONS[no.code].text)
            self._refuse((task.uid, no) for task in self._session.due_tasks(job))

    def take_refused(self, found: Enqueued, heard: Collection[str]) -> None:
        """Record which groups were not admitted; the waiting pods of the jobs in `heard` get the
        reason.
        """
        for uid, no in found.refused:
            job = self._session.jobs.get(uid)
            view = self._session.unplaced.get(uid) if job is None else job.view
            if view is not None and uid in heard:
                self._refuse((waiting, no) for waiting in waiting_in(view))

    def take_unplaced(self, view: JobView) -> None:
        """Record a job that has waiting pods and no existing queue."""
        no = why_unplaced(view)
        waiting = waiting_in(view)
        self._refuse((uid, no) for uid in waiting)
        if view.uid not in self._state.groups:
            return  # a pod without a group has its rejection
        self._waiting_gangs[view.uid] = Short(
            group=view.uid,
            code=no.code,
            message=no.message,
            waiting=len(waiting),
            wanted=min(len(waiting), view.min_member) or 1,
            together=0,
            tried=False,
        )

    def take_without_group(self, uid: str) -> None:
        """Record a waiting pod whose PodGroup does not exist."""
        pod = self._state.pods[uid].fact
        self._refusals[uid] = Refusal(uid, pod.namespace, pod.name, 0, (), _group_missing(pod))

    def _short(self, turn: Turn, job: Job) -> None:
        if turn.job not in self._state.groups:
            return  # a pod without a group has its rejection
        no = cause_of(turn)
        self._waiting_gangs[turn.job] = Short(
            group=turn.job,
            code=no.code if no is not None else "",
            message=gang_unschedulable(job, attempt_of([turn])),
            waiting=len(self._session.due_tasks(job)),
            wanted=max(job.view.min_member - job.ready_count, 1),
            together=turn.together,
            tried=bool(turn.placed) or (turn.no is None and not turn.untried),
            queue=no.queue if no is not None and no.code in QUOTA_CODES else "",
        )

    def _tell_others(self, turn: Turn, job: Job) -> None:
        """Reject the members that found a place, or were not tried, because others found none. The
        reason has no counts, so that it does not change from round to round.
        """
        cause = cause_of(turn)
        if cause is None:
            return
        found_none = {uid for uid, _ in turn.refused}
        no = (
            No(cause.code, REASONS[cause.code].text, cause.queue)
            if cause.code in OF_GROUP
            else No(GANG_INCOMPLETE, f"{REASONS[GANG_INCOMPLETE].text}: {cause.code}")
        )
        others = (t.uid for t in self._session.due_tasks(job) if t.uid not in found_none)
        self._refuse((uid, no) for uid in others)

    def _refuse(self, said: Iterable[tuple[str, No]]) -> None:
        for uid, no in said:
            pod = self._state.pods[uid].fact
            known = self._places.refusals.get(uid)
            if known is None:
                queue = no.queue or ("" if pod.group else pod.queue)
                place = f"queue {queue}" if queue else "its group"
                if no.code in OF_CLUSTER:
                    place = "the cluster"
                problem = Problem(no.code, place, no.message.removeprefix(f"{place} "))
                quota = recordable(no.short, self._state.devices)
                known = Refusal(uid, pod.namespace, pod.name, 0, (), problem, quota=quota)
            self._refusals[uid] = known

    def outcome(self, admissions: tuple[Admission, ...], holds: tuple[Held, ...] | None) -> Outcome:
        """The outcome, without what the log already has. Placements are in the order in which they
        were made: each builds on those before it.
        """
        pods = self._state.pods
        told_before = [u for u, r in self._refusals.items() if same_refusal(pods[u].refusal, r)]
        placed = self._places.placements
        return Outcome(
            tuple(self._places.made),
            tuple(
                refusal
                for uid, refusal in self._refusals.items()
                if uid not in placed and not same_refusal(pods[uid].refusal, refusal)
            ),
            tuple(told_before),
            tuple(self._gangs.values()),
            tuple(
                short
                for key, short in self._waiting_gangs.items()
                if self._state.groups[key].short != short
            ),
            admissions,
            holds,
        )
