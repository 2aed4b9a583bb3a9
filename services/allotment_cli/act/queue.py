"""`allot queue`: Volcano's Queues, with the flags and columns of vcctl."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import click
import msgspec

from allotment.answers.cluster import GROUPS, QUEUES, Access, Cluster, path_of
from allotment.answers.folding import AsOf, as_of
from allotment.answers.recorded import QueueRow, ShownQueue, queue_rows, recorded_queues
from allotment.core.errors import AllotError
from allotment.core.jobs import keys
from allotment.core.jobs.model import PodGroup, Queue
from allotment.core.jobs.queue_states import (
    CLOSE_QUEUE,
    CLOSED,
    OPEN,
    OPEN_QUEUE,
    Denied,
    operate,
)
from allotment_cli.act.job import name_options, only_name
from allotment_cli.act.past import Past, fold_past, past_options
from allotment_cli.options import completion
from allotment_cli.options.params import output_option
from allotment_cli.options.source import cluster_options, open_cluster
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, heading, note, suggest, table

HEADERS = (
    *("Name", "Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown"),
    "Completed",
)
WEIGHT = click.IntRange(1, 65_535)
UPDATE = "update"
ACTIONS = {"open": OPEN_QUEUE, "close": CLOSE_QUEUE}


class QueueList(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The list as JSON; `as_of` where the log answered."""

    schema: str
    items: Sequence[QueueRow]
    as_of: AsOf | None = None


@click.group()
def queue() -> None:
    """Volcano's Queues: list, get, create, operate, delete."""


def _one_queue(command: Any) -> Any:
    """A queue by its name, and the cluster it is in."""
    return name_options("-n", completion.queues)(cluster_options(command))


@queue.command("list")
@cluster_options
@past_options
@output_option("name", *DOCUMENTS)
def list_(output: str, access: Access, past: Past) -> None:
    """List all queues, and count their PodGroups by phase; with --at as the log had them."""
    _show(*_rows(access, past), output)


@queue.command()
@_one_queue
@past_options
@output_option("name", *DOCUMENTS)
def get(name: str | None, flag: str | None, output: str, access: Access, past: Past) -> None:
    """Show one queue, as `list` does."""
    named = only_name(name, flag, "queue")
    rows, moment = _rows(access, past)
    rows = [row for row in rows if row.name == named]
    if not rows:
        then = "" if moment is None else f" in the log at seq {moment.seq}"
        raise AllotError(f"queue {named} does not exist{then}", "see: allot queue list")
    _show(rows, moment, output)
    if output == "text":
        suggest(f"allot explain queue {named}")


def _rows(access: Access, past: Past) -> tuple[list[QueueRow], AsOf | None]:
    """The lines of all queues; and the moment, if the log is to answer."""
    if not past:
        return anyio.run(read_queues, access), None
    folded = fold_past(access, past)
    return recorded_queues(folded.state), as_of(folded)


def _show(rows: Sequence[QueueRow], moment: AsOf | None, output: str) -> None:
    if output == "name":
        emit(f"queue/{row.name}" for row in rows)
    elif output in DOCUMENTS:
        emit_document(QueueList("allotment.dev/queues/v1", rows, moment), output)
    elif rows:
        emit(queue_list_lines(rows))
    else:
        note("No resources found")


def queue_list_lines(rows: Sequence[QueueRow]) -> list[str]:
    """vcctl's columns."""
    cells = [[str(cell) for cell in msgspec.structs.astuple(row)] for row in rows]
    first, *rest = table(HEADERS, cells, right=("Weight", *HEADERS[4:]))
    return [heading(first), *rest]


async def read_queues(access: Access) -> list[QueueRow]:
    """The lines of all queues. Raises `AllotError`."""
    async with open_cluster(access) as cluster:
        queues = await cluster.list(path_of(QUEUES, ""), "queues", ShownQueue)
        groups = await cluster.list(path_of(GROUPS, ""), "podgroups", PodGroup)
    return queue_rows(queues, groups)


@queue.command()
@click.argument("name", metavar="[NEW]", required=False)
@click.option("-n", "--name", "flag", metavar="NEW", help="The same as NEW.  [default: test]")
@click.option(
    "-w",
    "--weight",
    type=WEIGHT,
    default=1,
    show_default=True,
    help="Its share relative to other queues.",
)
@click.option("-S", "--state", type=click.Choice((OPEN, CLOSED)), default=OPEN, show_default=True)
@cluster_options
def create(name: str | None, flag: str | None, weight: int, state: str, access: Access) -> None:
    """Create a queue."""
    named = only_name(name, flag, "queue") if name or flag else "test"
    anyio.run(_create, access, named, weight, state)
    emit([f"create queue {named} successfully"])
    suggest(f"allot queue get {named}")


async def _create(access: Access, name: str, weight: int, state: str) -> None:
    body = {
        "apiVersion": keys.SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }
    async with open_cluster(access) as cluster:
        made = msgspec.convert(await cluster.create(QUEUES, "", body), Queue)
        if state == CLOSED:  # every queue is made open; closing it is the controller's
            await cluster.command(CLOSE_QUEUE, QUEUES, made.metadata)


@queue.command("operate")
@_one_queue
@click.option("-a", "--action", type=click.Choice((*ACTIONS, UPDATE)), required=True)
@click.option("-w", "--weight", type=WEIGHT, help="The new weight, for update.")
def operate_(
    name: str | None, flag: str | None, action: str, weight: int | None, access: Access
) -> None:
    """Open or close a queue, or change its weight."""
    named = only_name(name, flag, "queue")
    if (action == UPDATE) != (weight is not None):
        raise AllotError(
            "update needs --weight" if weight is None else f"{action} takes no --weight",
            "allot queue operate NAME -a update -w 2",
        )
    anyio.run(_operate, access, named, action, weight)
    emit([f"{action} queue {named} successfully"])
    suggest(f"allot queue get {named}")


async def _operate(access: Access, name: str, action: str, weight: int | None) -> None:
    async with open_cluster(access) as cluster:
        if weight is not None:
            await cluster.patch(QUEUES, name, {"spec": {"weight": weight}})
            return
        queues, counts = await _queues_and_groups(cluster, name)
        denied = operate(name, ACTIONS[action], queues, counts)
        if isinstance(denied, Denied):
            raise AllotError(f"{action} queue {name} is not done: {denied.reason}")
        await cluster.command(ACTIONS[action], QUEUES, queues[name].metadata)


async def _queues_and_groups(
    cluster: Cluster, name: str
) -> tuple[dict[str, Queue], dict[str, int]]:
    """All queues, of which the named one must be there, and the PodGroups by queue."""
    found = await cluster.list(path_of(QUEUES, ""), "queues", Queue)
    groups = await cluster.list(path_of(GROUPS, ""), "podgroups", PodGroup)
    queues = {each.metadata.name: each for each in found}
    if name not in queues:
        raise AllotError(f"queue {name} does not exist", "see: allot queue list")
    return queues, Counter(group.spec.queue or keys.DEFAULT_QUEUE for group in groups)


@queue.command()
@_one_queue
def delete(name: str | None, flag: str | None, access: Access) -> None:
    """Delete a queue that has no child queues."""
    named = only_name(name, flag, "queue")
    orphans = anyio.run(_delete, access, named)
    emit([f"delete queue {named} successfully"])
    if orphans:
        note(f"{orphans} PodGroups name it; they wait until there is such a queue again")


async def _delete(access: Access, name: str) -> int:
    if name in (keys.ROOT_QUEUE, keys.DEFAULT_QUEUE):
        raise AllotError(f"queue {name} cannot be deleted: every cluster has it")
    async with open_cluster(access) as cluster:
        queues, counts = await _queues_and_groups(cluster, name)
        below = sorted(each.metadata.name for each in queues.values() if each.spec.parent == name)
        if below:
            raise AllotError(
                f"queue {name} cannot be deleted: it has child queues: {', '.join(below)}",
                f"delete them first: allot queue delete {below[0]}",
            )
        await cluster.delete(QUEUES, "", name, queues[name].metadata.uid)
        return counts.get(name, 0)
