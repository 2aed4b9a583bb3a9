"""What a job counts for in the book of its queue when a session opens."""

from collections.abc import Callable, Iterator

from allotment.core.queues.model import CHARGED_SET, JobView, Phase, Status, Task
from allotment.core.queues.reckoning import Books, QueueBook, Share
from allotment.core.queues.resources import NOTHING, Resources, total_of
from allotment.core.queues.work import World

_AMOUNTS = "amounts"
"""The name of the books that count requests."""
TaskMeasure = Callable[[JobView, Task], Resources]
JobMeasure = Callable[[JobView], Resources]


def _asked(_: JobView, task: Task) -> Resources:
    return task.request


def _minimum(job: JobView) -> Resources:
    return job.min_resources or NOTHING


def open_books(
    world: World,
    by: str = _AMOUNTS,
    of_task: TaskMeasure = _asked,
    of_minimum: JobMeasure = _minimum,
) -> Books:
    """The books of all queues when the session opens; `of_task` and `of_minimum` measure tasks and
    groups.

    A job's share is remembered under the name `by`, so a plugin with its own measures passes a name
    of its own.
    """
    return world.reckon(by, lambda job: share_of(job, of_task, of_minimum))


def promised_to(world: World) -> Iterator[QueueBook]:
    """The books of the queues that have promised something to groups."""
    books = open_books(world)
    return (books[name] for name in world.promising(_AMOUNTS))


def share_of(
    job: JobView, of_task: TaskMeasure = _asked, of_minimum: JobMeasure = _minimum
) -> Share:
    """One job's part in the book of its queue."""
    held = [of_task(job, task) for task in job.tasks if task.status in CHARGED_SET]
    pending = [of_task(job, task) for task in job.tasks if task.status is Status.PENDING]
    comes = _is_still_to_come(job)
    has, least = total_of(held), of_minimum(job) if held or comes else NOTHING
    return Share(
        has.or_nothing(),
        total_of(pending).or_nothing(),
        has.beyond(least).or_nothing() if held else NOTHING,
        least.beyond(has).or_nothing() if comes else NOTHING,
    )


def _is_still_to_come(job: JobView) -> bool:
    """Whether a group counts for what it was admitted for and does not hold yet."""
    return job.phase is Phase.INQUEUE and job.is_promised and not job.is_hollow
