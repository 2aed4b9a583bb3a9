"""Jobs: look, plan, carry out. What to do is decided in `allotment.core.jobs.sync`."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import msgspec

from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core.jobs import groups, keys, sync
from allotment.core.jobs.admission import (
    defaulted,
    problems_of,
    queue_problem,
    self_waiting,
    update_problems,
    without_effect,
)
from allotment.core.jobs.model import Command, Job, JobSpec, Meta, Notice, PodGroup, PodView
from allotment.core.jobs.pods import build
from allotment.core.jobs.policies import POD_EVICTED, Happened
from allotment.core.jobs.seats import Seat
from allotment.core.jobs.status import Moment
from allotment.core.queues.plugins import task_topology
from allotment_controller.job_metrics import JobMetrics
from allotment_controller.objects import Pod, PodObject, kept, seconds, shown
from allotment_controller.plugin_objects import PluginObjects
from allotment_controller.state import JOB, ControllerContext, place_of
from allotment_controller.work import Again, Denied
from allotment_controller.writes import (
    EXISTS,
    create,
    delete,
    delete_with_dependents,
    end_pod,
    patch_object,
    patch_status,
)

T = TypeVar("T")
AT_ONCE = 8
"""Requests of one Job at the same time: a part of all that the client sends at once, so that other
Jobs' come between. With some plugins a pod names all the others, too, so that all bodies at once
would grow with the square of the Job.
"""
CREATES_A_LOOK = 100
"""Pods of one Job that are made in a row. Then others that wait have their turn."""


class Jobs:
    """The part of the controller that makes and ends pods."""

    def __init__(self, context: ControllerContext, metrics: JobMetrics) -> None:
        self.created = 0
        self.ended = 0
        self._metrics = metrics
        self._context = context
        self._objects = PluginObjects(context)
        self._happened: dict[str, list[Happened]] = {}
        self._commands: dict[str, list[Command]] = {}
        self._specs: dict[str, JobSpec] = {}
        """By uid: the spec that was seen last, to tell what may not be changed."""
        self._taken: set[tuple[str, Seat]] = set()
        """Seats whose names were found taken once, by the Job's uid."""

    # What is reported

    def on_job(self, job: Job) -> None:
        """A Job is there, or was changed."""
        uid = job.metadata.uid
        before = self._specs.get(uid)
        self._specs[uid] = job.spec
        if before is not None and before != job.spec:
            found = update_problems(before, job.spec)
            if found:
                text = "; ".join(map(str, found)) + ": pods that exist stay as they are"
                self._context.reporter.job(job.metadata, Notice("Warning", "InvalidUpdate", text))
        elif before is None:
            spec = defaulted(job.spec, self._context.settings.default_scheduler)
            if text := self_waiting(spec):
                self._context.reporter.job(
                    job.metadata, Notice("Warning", "GangWaitsForItself", text)
                )
            names = [task.name for task in spec.roles]
            topology = task_topology.without_effect(job.metadata.annotations or {}, names)
            for text in filter(None, (without_effect(spec), topology)):
                self._context.reporter.job(job.metadata, Notice("Warning", "NoEffect", text))
        self._context.enqueue_job(*place_of(job.metadata))

    def on_job_gone(self, uid: str) -> None:
        for known in (self._happened, self._commands, self._specs):
            known.pop(uid, None)
        self._taken = {place for place in self._taken if place[0] != uid}
        self._objects.forget(uid)
        self._metrics.forget(uid)

    def on_pod_gone(self, pod: Pod) -> None:
        """A pod of a Job is gone: an event for its policies, unless we ended it, or it was done."""
        job = self._context.known.jobs.get(pod.metadata.namespace, pod.job_name)
        if job is None or job.metadata.uid != pod.job_uid or pod.view.is_marked:
            return
        if pod.view.phase == "Succeeded":
            return
        view = pod.view
        lost = Happened(
            *(POD_EVICTED, view.role, view.name, view.exit_code, view.version, int(time.time()))
        )
        self._happened.setdefault(pod.job_uid, []).append(lost)

    def command(self, job: Job, command: Command) -> None:
        """A Command for a Job."""
        waiting = self._commands.setdefault(job.metadata.uid, [])
        if all(other.metadata.uid != command.metadata.uid for other in waiting):
            waiting.append(command)
        self._context.enqueue_job(*place_of(job.metadata))

    # One look at a Job

    async def work(self, namespace: str, name: str) -> None:
        """Bring one Job a step further. Raises Again."""
        job = self._context.known.jobs.get(namespace, name)
        if job is None or job.metadata.deletion_timestamp is not None:
            return
        uid = job.metadata.uid
        happened = tuple(self._happened.pop(uid, ()))
        commands = self._commands.get(uid, [])
        # A Job without a phase has not begun: there is nothing yet that a Command could act on.
        command = commands[0] if commands and job.phase else None
        known = msgspec.structs.replace(
            job, spec=defaulted(job.spec, self._context.settings.default_scheduler)
        )
        plan = sync.plan(
            self._look(known, happened, command.action if command else ""),
            self._context.known.priorities,
        )
        remember = happened
        try:
            await self._carry_out(known, plan)
            remember = plan.remember
            if command is not None:
                await delete(self._context.client, keys.BUS, "Command", command.metadata)
                commands.remove(command)
        finally:
            self._happened.setdefault(uid, [])[:0] = remember
        if commands:
            self._context.enqueue_job(namespace, name)
        if plan.look_again_s is not None:
            wait_s = max(0.0, plan.look_again_s - time.time())
            self._context.work.add((JOB, namespace, name), wait_s)

    def _look(self, job: Job, happened: tuple[Happened, ...], command: str) -> sync.Look:
        known = self._context.known
        namespace, name = place_of(job.metadata)
        problems = problems_of(name, job.spec)
        in_queue = queue_problem(job.spec.queue, known.queues_by_name)
        now_s = time.time()
        started = [
            seconds(condition.get("lastTransitionTime"))
            for condition in job.status.conditions or ()
            if condition.get("status") == "Running"
        ]
        return sync.Look(
            job=job,
            pods=tuple(pod.view for pod in known.pods_of_job(job.metadata.uid)),
            group=known.groups.get(namespace, groups.name_of(job)),
            now=Moment(int(now_s), shown(now_s)),
            entered_s=seconds(job.status.state.last_transition_time),
            started_s=min(started, default=0),
            happened=happened,
            command=command,
            invalid="; ".join(map(str, problems)),
            obstacle=str(in_queue) if in_queue else "",
        )

    # Carrying out a plan, in its order

    async def _carry_out(self, job: Job, plan: sync.Plan) -> None:
        """Raises Again at the first step that does not go through; the next look makes a new plan.

        The status goes first: what it says of the Job's life is what the rest is planned from.
        """
        context, metadata = self._context, job.metadata
        if plan.status:
            written = await self._write_status(metadata, plan)
            if written is None:
                return
            context.known.jobs.observe(written)
            self._metrics.phase(job, written)
            context.enqueue_job(*place_of(metadata))
            job = msgspec.structs.replace(written, spec=job.spec)
        context.reporter.job(metadata, *plan.notices)
        group = context.known.groups.get(metadata.namespace, groups.name_of(job))
        if plan.delete_group and group is not None:
            await delete(context.client, keys.SCHEDULING, "PodGroup", group.metadata)
        await self._end(job, plan.end)
        if plan.needs_objects:
            await self._objects.ensure(job)
        if plan.create_group:
            await self._create_group(job)
        if plan.group_changes and group is not None:
            await self._change_group(group, plan)
        await self._create(job, plan.create)
        if plan.delete_job:
            await delete_with_dependents(context.client, keys.BATCH, "Job", metadata)

    async def _write_status(self, metadata: Meta, plan: sync.Plan) -> Job | None:
        try:
            return await patch_status(
                self._context.client, keys.BATCH, "Job", metadata, plan.status, Job
            )
        except Denied as error:
            self._context.reporter.job(metadata, Notice("Warning", "JobStatusError", str(error)))
            raise

    async def _end(self, job: Job, pods: tuple[PodView, ...]) -> None:
        problems: list[str] = []

        async def end(pod: PodView) -> None:
            answer = await end_pod(self._context.client, job.metadata.namespace, pod)
            if isinstance(answer, Ok):
                self.ended += 1
            else:
                problems.append(f"pod {pod.name}: {answer.message}")

        await _some_at_once(end, pods)
        self._report(job, "FailedDelete", problems)

    async def _create(self, job: Job, seats: tuple[Seat, ...]) -> None:
        problems: list[str] = []
        taken: list[str] = []

        async def fill(seat: Seat) -> None:
            role = job.spec.role(seat.role)
            assert role is not None, "seats are of the spec's roles"
            body = build(job, role, seat.index, groups.name_of(job))
            answer = await create(self._context.client, body)
            if isinstance(answer, Ok):
                self.created += 1
                made = msgspec.json.decode(answer.body, type=PodObject)
                self._metrics.pod(job.metadata, made.metadata)
                self._context.known.observe_pod(kept(made))
            elif _is_taken(answer) and (job.metadata.uid, seat) not in self._taken:
                # Our own pod, of a request whose answer was lost; reported if it stays so.
                self._taken.add((job.metadata.uid, seat))
                taken.append(f"pod {body['metadata']['name']} is there already")
            else:
                problems.append(f"pod {body['metadata']['name']}: {answer.message}")

        seats = seats[:CREATES_A_LOOK]
        await _some_at_once(fill, seats)
        self._report(job, "FailedCreate", problems)
        if taken:
            raise Again(taken[0])
        if seats:  # all went well: the next look need not wait
            self._context.enqueue_job(*place_of(job.metadata))
        self._taken -= {(job.metadata.uid, seat) for seat in seats}

    def _report(self, job: Job, reason: str, problems: list[str]) -> None:
        """Say the first problem, count the others, and try again later."""
        if not problems:
            return
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        text = f"{sorted(problems)[0]}{more}"
        self._context.reporter.job(job.metadata, Notice("Warning", reason, text))
        raise Again(text)

    async def _create_group(self, job: Job) -> None:
        known = self._context.known
        of_namespace = known.queue_of_namespace(job.metadata.namespace)
        body = groups.of_job(job, known.priorities, of_namespace)
        answer = await create(self._context.client, body)
        if isinstance(answer, Ok):
            known.groups.observe(msgspec.json.decode(answer.body, type=PodGroup))
            self._context.enqueue_group(job.metadata.namespace, groups.name_of(job))
            return
        if _is_taken(answer):
            raise Again("the Job's previous PodGroup is not deleted yet")
        self._report(job, "PodGroupError", [f"PodGroup {groups.name_of(job)}: {answer.message}"])

    async def _change_group(self, group: PodGroup, plan: sync.Plan) -> None:
        body = {"spec": plan.group_changes}
        changed = await patch_object(
            self._context.client, keys.SCHEDULING, "PodGroup", group.metadata, body, PodGroup
        )
        if changed is not None:
            self._context.known.groups.observe(changed)


async def _some_at_once(do: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    waiting = iter(items)

    async def do_some() -> None:
        for item in waiting:  # shared: each item is taken by one of the tasks
            await do(item)

    async with anyio.create_task_group() as group:
        for _ in range(min(len(items), AT_ONCE)):
            group.start_soon(do_some)


def _is_taken(answer: KubeResult) -> bool:
    return isinstance(answer, Refused) and answer.reason == EXISTS
