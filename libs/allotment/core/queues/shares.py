"""What a job counts for in the books of its queue, as a session opens."""

from collections.abc import Callable

from allotment.core.queues.model import CHARGED_SET, Phase, Status, Task
from allotment.core.queues.reckoning import QueueBook, Share
from allotment.core.queues.resources import NOTHING, Amount, Resources, add_to
from allotment.core.queues.work import Job, World

TaskMeasure = Callable[[Job, Task], Resources]
JobMeasure = Callable[[Job], Resources]


def _asked(_: Job, task: Task) -> Resources:
    return task.request


def _minimum(job: Job) -> Resources:
    return job.view.min_resources or NOTHING


def open_books(
    world: World,
    by: str,
    of_task: TaskMeasure = _asked,
    of_minimum: JobMeasure = _minimum,
    *,
    by_kind: bool = True,
) -> dict[str, QueueBook]:
    """The books of every queue as the session opens; what a task counts for is the caller's.

    `by` is the plugin that counts: what a job counts for is remembered under its name. Where it
    goes by more than amounts and phases, lone pods are not counted `by_kind`.
    """
    return world.reckon(by, lambda job: share_of(job, of_task, of_minimum), by_kind=by_kind)


def share_of(job: Job, of_task: TaskMeasure = _asked, of_minimum: JobMeasure = _minimum) -> Share:
    """What one job adds to the books of its queue."""
    held: dict[str, Amount] = {}
    pending: dict[str, Amount] = {}
    for task in job.view.tasks:
        if task.status in CHARGED_SET:
            add_to(held, of_task(job, task))
        elif task.status is Status.PENDING:
            add_to(pending, of_task(job, task))
    comes = _is_still_to_come(job)
    has, least = Resources(held), of_minimum(job) if held or comes else NOTHING
    return Share(
        _or_nothing(has),
        _or_nothing(Resources(pending)),
        _or_nothing(has.beyond(least)) if held else NOTHING,
        _or_nothing(least.beyond(has)) if comes else NOTHING,
    )


def _or_nothing(amounts: Resources) -> Resources:
    """The one object for all that is nothing, so that it need not be added up."""
    return amounts if any(amounts.values()) else NOTHING


def _is_still_to_come(job: Job) -> bool:
    """Whether a group counts for what it was let in for and does not have yet."""
    return job.phase is Phase.INQUEUE and job.view.is_promised and not job.view.is_hollow
