"""Queues: the ones that every cluster has, their states, and Commands for queues and Jobs."""

from allotment.adapters.kube.result import Ok, Refused
from allotment.core.jobs import keys, queue_states
from allotment.core.jobs.groups import WAITING
from allotment.core.jobs.model import PENDING, Command, Notice, Queue
from allotment.core.jobs.policies import ACTIONS
from allotment.core.jobs.queue_states import Change, Denied
from allotment_controller.jobs import Jobs
from allotment_controller.state import ControllerContext
from allotment_controller.work import Again
from allotment_controller.writes import EXISTS, create, delete, patch_object, patch_status

COMMAND = "command"
LOOKED_FOR = 10
LOOK_AGAIN_S = 0.5
"""A Command may be seen before its target, because watches do not wait for each other: so many
times its target is looked for before it counts as missing."""
FIRST_QUEUES = "first queues"


class Queues:
    """The part of the controller that keeps Queues and takes Commands."""

    def __init__(self, context: ControllerContext, jobs: Jobs) -> None:
        self._context = context
        self._jobs = jobs
        self._commands: dict[tuple[str, str], Command] = {}
        self._early: dict[str, int] = {}
        """How many times the target of a Command was not there yet, by its uid."""

    def on_command(self, command: Command) -> None:
        place = (command.metadata.namespace, command.metadata.name)
        self._commands[place] = command
        self._context.work.add((COMMAND, *place))

    def on_command_gone(self, namespace: str, name: str) -> None:
        self._commands.pop((namespace, name), None)

    def make_first_queues(self) -> None:
        """See to it that root and default exist."""
        self._context.work.add((FIRST_QUEUES, "", ""))

    async def work_first_queues(self) -> None:
        for body in queue_states.first_queues():
            if self._context.known.queues.get("", body["metadata"]["name"]) is not None:
                continue
            answer = await create(self._context.client, body)
            if not isinstance(answer, Ok) and not (
                isinstance(answer, Refused) and answer.reason == EXISTS
            ):
                raise Again(f"queue {body['metadata']['name']}: {answer.message}")

    async def work_queue(self, name: str) -> None:
        """Bring the state of one queue in line with its PodGroups. Raises Again."""
        queue = self._context.known.queues.get("", name)
        if queue is None or queue.metadata.deletion_timestamp is not None:
            return
        state = queue_states.settle(queue.status.state, self._groups().get(name, 0))
        if state != queue.status.state:
            await self._set(queue, state)

    async def work_command(self, namespace: str, name: str) -> None:
        """Do what a Command for a queue says; one for a Job goes to the Job's own work."""
        command = self._commands.get((namespace, name))
        if command is None:
            return
        uid = command.metadata.uid
        looks = self._early.pop(uid, 0)
        if looks < LOOKED_FOR and not self._is_target_there(command):
            self._early[uid] = looks + 1
            self._context.work.add((COMMAND, namespace, name), LOOK_AGAIN_S)
            return
        if command.target.kind == "Queue":
            await self._operate(command)
        elif command.target.kind == "Job" and self._hand_on(command):
            return
        await delete(self._context.client, keys.BUS, "Command", command.metadata)
        self._commands.pop((namespace, name), None)

    def _is_target_there(self, command: Command) -> bool:
        known, target = self._context.known, command.target
        if target.kind == "Job":
            return known.jobs.get(command.metadata.namespace, target.name) is not None
        return target.kind != "Queue" or known.queues.get("", target.name) is not None

    def _hand_on(self, command: Command) -> bool:
        """Give a Command to its Job, whose work deletes it when it is done; whether it was."""
        namespace, target = command.metadata.namespace, command.target
        job = self._context.known.jobs.get(namespace, target.name)
        if job is None:
            return False
        if target.uid in ("", job.metadata.uid) and command.action in ACTIONS:
            self._commands.pop((namespace, command.metadata.name), None)
            self._jobs.command(job, command)
            return True
        text = (
            f"Command {command.action} is not done: it is unknown, or for another Job of this name"
        )
        self._context.reporter.job(job.metadata, Notice("Warning", "CommandDenied", text))
        return False

    async def _operate(self, command: Command) -> None:
        known = self._context.known
        queues = known.queues_by_name
        decided = queue_states.operate(command.target.name, command.action, queues, self._groups())
        queue = queues.get(command.target.name)
        if isinstance(decided, Denied):
            if queue is not None:
                text = f"{command.action} is not done: {decided.reason}"
                self._context.reporter.queue(
                    queue.metadata, Notice("Warning", "CommandDenied", text)
                )
            return
        for change in decided:
            await self._change(queues[change.queue], change)

    async def _change(self, queue: Queue, change: Change) -> None:
        if change.by_parent is not None:
            mark = "true" if change.by_parent else None
            body = {"metadata": {"annotations": {keys.CLOSED_BY_PARENT: mark}}}
            marked = await patch_object(
                self._context.client, keys.SCHEDULING, "Queue", queue.metadata, body, Queue
            )
            if marked is None:
                return
            self._context.known.queues.observe(marked)
            queue = marked
        await self._set(queue, change.state)

    async def _set(self, queue: Queue, state: str) -> None:
        if queue.status.state == state:
            return
        written = await patch_status(
            *(self._context.client, keys.SCHEDULING, "Queue", queue.metadata, {"state": state}),
            Queue,
        )
        if written is not None:
            self._context.known.queues.observe(written)
            text = f"queue is {state} now, it was {queue.status.state or 'new'}"
            self._context.reporter.queue(queue.metadata, Notice("Normal", state, text))

    def _groups(self) -> dict[str, int]:
        """PodGroups by queue."""
        found: dict[str, int] = {}
        for group in self._context.known.groups:
            name = group.spec.queue or keys.DEFAULT_QUEUE
            found[name] = found.get(name, 0) + 1
        return found


def enqueue_waiting(context: ControllerContext) -> None:
    """Which pods may enter queues changed: all that wait are considered again."""
    for group in context.known.groups:
        if group.status.phase in WAITING:
            context.enqueue_group(group.metadata.namespace, group.metadata.name)
    for job in context.known.jobs:
        if job.phase in ("", PENDING):
            context.enqueue_job(job.metadata.namespace, job.metadata.name)
