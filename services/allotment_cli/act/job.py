"""`allot job`: Volcano's Jobs, with the flags and columns of vcctl."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from allotment.answers.cluster import JOBS, Access, path_of
from allotment.answers.folding import AsOf
from allotment.answers.recorded import JobRow, recorded_jobs
from allotment.core.errors import AllotError
from allotment.core.jobs.model import Job
from allotment.core.jobs.policies import ABORT_JOB, RESUME_JOB
from allotment_cli.act.job_run import WantedJob, job_of_file, job_of_flags
from allotment_cli.act.job_view import JobView, read_job, view_lines
from allotment_cli.act.past import Past, fold_past, moment_of, past_options
from allotment_cli.options import completion
from allotment_cli.options.names import usual_namespace
from allotment_cli.options.params import namespace_option, output_option
from allotment_cli.options.source import choose_cluster, cluster_options, open_cluster
from allotment_cli.read.explain_gang import gang
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, heading, note, suggest, table

JOB_TYPE = "volcano.sh/job-type"
TYPE_USUAL = "Batch"
HEADERS = (
    *("Name", "Creation", "Phase", "JobType", "Replicas", "Min", "Pending", "Running"),
    *("Succeeded", "Failed", "Unknown", "RetryCount"),
)
FLAGS_OF_A_NEW_JOB = ("name", "image", "min", "replicas", "requests", "limits", "scheduler")


class JobList(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The list as JSON; `as_of` where the log answered."""

    schema: str
    items: Sequence[JobRow]
    as_of: AsOf | None = None


@click.group()
def job() -> None:
    """Volcano's Jobs: run, list, view, suspend, resume, delete."""


def _one_job(command: Any) -> Any:
    """A job by its name, and the cluster it is in."""
    return name_options("-N", completion.jobs)(namespace_option(cluster_options(command)))


def name_options(letter: str, names: completion.Completer) -> Callable[[Any], Any]:
    """The name of an object, as an argument or, as with vcctl, as a flag: see `only_name`."""
    argument = click.argument("name", required=False, shell_complete=names)
    flag = click.option(
        letter,
        "--name",
        "flag",
        metavar="NAME",
        shell_complete=names,
        help="The same as NAME.",
    )
    return lambda command: argument(flag(command))


def only_name(name: str | None, flag: str | None, kind: str) -> str:
    """The name, given as an argument or as a flag. Raises `AllotError` unless it is one."""
    if name and flag and name != flag:
        raise AllotError(f"two {kind}s are named: {name} and {flag}", "give one of them")
    found = name or flag
    if not found:
        raise AllotError(f"no {kind} is named", f"see: allot {kind} list")
    return found


@job.command()
@click.option(
    "-f",
    "--filename",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with one Job.",
)
@click.option("-N", "--name", metavar="NEW", help="Name of a new Job of one container.")
@namespace_option
@click.option(
    "-i", "--image", metavar="IMAGE", default="busybox", show_default=True, help="Its image."
)
@click.option("-m", "--min", default=1, show_default=True, help="How many pods start together.")
@click.option("-r", "--replicas", default=1, show_default=True, help="How many pods.")
@click.option(
    "-R", "--requests", metavar="AMOUNTS", default="cpu=1000m,memory=100Mi", show_default=True
)
@click.option(
    "-L", "--limits", metavar="AMOUNTS", default="cpu=1000m,memory=100Mi", show_default=True
)
@click.option(
    "-S",
    "--scheduler",
    metavar="SCHEDULER",
    default="volcano",
    show_default=True,
    help="Scheduler that places them.",
)
@cluster_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    filename: Path | None,
    name: str | None,
    namespace: str | None,
    access: Access,
    **wanted: Any,
) -> None:
    """Run a Job: from a manifest, or one container many times."""
    given = [
        flag
        for flag in FLAGS_OF_A_NEW_JOB
        if ctx.get_parameter_source(flag) is click.core.ParameterSource.COMMANDLINE
    ]
    space = namespace or usual_namespace()
    if filename is not None:
        if given:
            raise AllotError(f"--{given[0]} and --filename exclude each other", "change the file")
        body = job_of_file(filename, space)
    elif name:
        body = job_of_flags(WantedJob(name, space, **wanted))
    else:
        raise AllotError("no job is named", "give --name, or a manifest with --filename")
    anyio.run(_run, access, body)
    where, created = body["metadata"]["namespace"], body["metadata"]["name"]
    emit([f"run job {created} successfully"])
    suggest(f"allot job view {created} -n {where}")


async def _run(access: Access, body: dict[str, Any]) -> None:
    async with open_cluster(access) as cluster:
        await cluster.create(JOBS, body["metadata"]["namespace"], body)


@job.command("list")
@click.option("-q", "--queue", shell_complete=completion.queues, help="Only jobs of this queue.")
@namespace_option
@click.option("-S", "--scheduler", metavar="SCHEDULER", help="Only jobs for this scheduler.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option("--selector", metavar="TEXT", help="Only jobs whose name contains this.")
@cluster_options
@past_options
@output_option("wide", "name", *DOCUMENTS)
def list_(
    queue: str | None,
    namespace: str | None,
    scheduler: str | None,
    all_namespaces: bool,
    selector: str | None,
    access: Access,
    past: Past,
    output: str,
) -> None:
    """List Jobs, and count their pods by phase; with --at by their PodGroups in the log."""
    space = "" if all_namespaces else namespace or usual_namespace()
    folded = fold_past(access, past) if past else None
    if folded is None:
        found = [
            (job_row(each), each.spec.queue, each.spec.scheduler_name)
            for each in anyio.run(read_jobs, access, space)
        ]
    else:
        found = [each for each in recorded_jobs(folded.state) if space in ("", each[0].namespace)]
    rows = [
        row
        for row, of_queue, of_scheduler in found
        if (queue is None or (of_queue or "default") == queue)
        and (scheduler is None or of_scheduler == scheduler)
        and (selector is None or selector in row.name)
    ]
    if output == "name":
        emit(
            f"job/{row.namespace}/{row.name}" if all_namespaces else f"job/{row.name}"
            for row in rows
        )
    elif output in DOCUMENTS:
        emit_document(JobList("allotment.dev/jobs/v1", rows, moment_of(folded)), output)
    elif rows:
        emit(job_lines(rows, with_namespace=all_namespaces), wide=output == "wide")
    else:
        note("No resources found")


async def read_jobs(access: Access, namespace: str) -> list[Job]:
    """The Jobs of a namespace, without one all. Raises `AllotError`."""
    async with open_cluster(access) as cluster:
        return await cluster.list(path_of(JOBS, namespace), "jobs", Job)


def job_row(found: Job) -> JobRow:
    """A Job's line."""
    meta, spec, status = found.metadata, found.spec, found.status
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        created=(meta.creation_timestamp or "")[:10],
        phase=found.phase,
        job_type=(meta.labels or {}).get(JOB_TYPE) or TYPE_USUAL,
        replicas=spec.replicas,
        min=spec.minimum,
        pending=status.pending or 0,
        running=status.running or 0,
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
        unknown=status.unknown or 0,
        retry_count=found.retry_count,
    )


def job_lines(rows: Sequence[JobRow], *, with_namespace: bool) -> list[str]:
    """vcctl's columns."""
    headers = ["Namespace"] * with_namespace + list(HEADERS)
    cells = [
        ["" if cell is None else str(cell) for cell in msgspec.structs.astuple(row)] for row in rows
    ]
    if not with_namespace:
        cells = [row[1:] for row in cells]
    first, *rest = table(headers, cells, right=HEADERS[4:], optional=("RetryCount", "Unknown"))
    return [heading(first), *rest]


@job.command()
@_one_job
@past_options
@output_option(*DOCUMENTS)
@click.pass_context
def view(
    ctx: click.Context,
    /,
    name: str | None,
    flag: str | None,
    namespace: str | None,
    access: Access,
    past: Past,
    output: str,
) -> None:
    """Show one Job: its request, its state and its Events; with --at what `allot explain gang` says
    of its PodGroup.
    """
    named = only_name(name, flag, "job")
    space = namespace or usual_namespace()
    if past:
        choose_cluster(access.kubeconfig, access.context)
        where = {"home": access.home, "output": output, **past._asdict()}
        ctx.invoke(gang, name=named, namespace=space, **where)
        return
    found: JobView = anyio.run(read_job, access, space, named)
    if output in DOCUMENTS:
        emit_document(found, output)
        return
    emit(view_lines(found))
    if found.group and found.phase in ("", "Pending"):
        suggest(f"allot explain gang {space}/{found.group}")


@job.command()
@_one_job
def suspend(name: str | None, flag: str | None, namespace: str | None, access: Access) -> None:
    """Suspend a Job: its pods end, and it can be resumed."""
    _ask(access, namespace, only_name(name, flag, "job"), ABORT_JOB)


@job.command()
@_one_job
def resume(name: str | None, flag: str | None, namespace: str | None, access: Access) -> None:
    """Resume a Job that was suspended."""
    _ask(access, namespace, only_name(name, flag, "job"), RESUME_JOB)


def _ask(access: Access, namespace: str | None, name: str, action: str) -> None:
    space = namespace or usual_namespace()
    command = anyio.run(_command, access, space, name, action)
    emit([f"asked for {action} of job {space}/{name} (command {command})"])
    suggest(f"allot job view {name} -n {space}")


async def _command(access: Access, namespace: str, name: str, action: str) -> str:
    async with open_cluster(access) as cluster:
        found = await cluster.get(JOBS, namespace, name, Job)
        return await cluster.command(action, JOBS, found.metadata)


@job.command()
@_one_job
def delete(name: str | None, flag: str | None, namespace: str | None, access: Access) -> None:
    """Delete a Job and its pods."""
    named = only_name(name, flag, "job")
    anyio.run(_delete, access, namespace or usual_namespace(), named)
    emit([f"delete job {named} successfully"])


async def _delete(access: Access, namespace: str, name: str) -> None:
    async with open_cluster(access) as cluster:
        found = await cluster.get(JOBS, namespace, name, Job)
        await cluster.delete(JOBS, namespace, name, found.metadata.uid)
