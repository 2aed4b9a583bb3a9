"""`allot up`, `down`: local mode. `status`: what runs there, in a cluster or with a server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import click

from allotment.adapters.log.nats_users import SERVICES
from allotment.adapters.service.moments import silence_text
from allotment.answers import in_cluster
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment_cli.options.params import output_option
from allotment_cli.options.source import chosen_cluster, home_option, open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, heading, note, suggest, table
from allotment_local.nodes.shape_reader import ALLOCATE_MS_MAX
from allotment_local.orchestrator import LocalModeError
from allotment_local.orchestrator import down as stop_local
from allotment_local.orchestrator import up as start_local
from allotment_local.status import status as ask_local

NOT_READY = 1


@click.command()
@home_option
@click.option(
    "-d", "--detach", is_flag=True, help="Run in the background; return when everything is ready."
)
@click.option(
    "--nodes",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file of node shapes (default: one node of each kind).",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Scheduler configuration, like volcano-scheduler.conf.",
)
@click.option(
    "--allocate-ms",
    type=click.IntRange(0, ALLOCATE_MS_MAX),
    default=0,
    show_default=True,
    help="How long a node's device plugin takes to serve a container, where --nodes does not say.",
)
@click.option("--no-inspector", is_flag=True, help="Leave out the web pages.")
@click.option(
    "--one-process",
    is_flag=True,
    help="Run watcher, filter, scorer and binder as one process: less CPU and memory.",
)
@output_option(*DOCUMENTS)
def up(
    home: Path,
    detach: bool,
    nodes: Path | None,
    policy: Path | None,
    allocate_ms: int,
    no_inspector: bool,
    one_process: bool,
    output: str,
) -> None:
    """Start local mode: NATS, an API server, fake GPU nodes and all services."""
    found = local_mode(
        lambda: anyio.run(
            lambda: start_local(
                home,
                nodes_file=nodes,
                policy_file=policy,
                allocate_ms=allocate_ms,
                inspector=not no_inspector,
                one_process=one_process,
                detach=detach,
                say=note,
            )
        )
    )
    if detach:
        show_status(found, output)


@click.command()
@home_option
def down(home: Path) -> None:
    """Stop local mode and all its processes."""
    local_mode(lambda: anyio.run(lambda: stop_local(home, say=note)))


@click.command()
@source_options
@output_option(*DOCUMENTS)
@click.pass_context
def status(context: click.Context, origin: Origin, output: str) -> None:
    """Show what runs in local mode, with every address, and which replicas are active.

    With --context or --kubeconfig: the services of that cluster. With --nats: the active replica of
    each service, as its lease says.

    Exit code 1 if anything does not run or is not ready.
    """
    if origin.file is not None:
        raise AllotError("an exported log does not say what runs", "leave out --file")
    if origin.nats:
        found = anyio.run(_of_leases, origin)
    elif (chosen := chosen_cluster()) is not None:
        found = _found(anyio.run(in_cluster.services, chosen))
    else:
        found = local_mode(lambda: anyio.run(ask_local, origin.home))
    show_status(found, output)
    if not found["ready"]:
        context.exit(NOT_READY)


async def _of_leases(origin: Origin) -> dict[str, Any]:
    """The active replica of each service. Raises `AllotError`."""
    async with open_source(origin) as source:
        holders = await source.active(tuple(SERVICES))
    if holders is None:
        raise AllotError(
            "which replicas are active is not known: this key may not read the leases",
            "use the reader's key; deploy/README, Rights",
        )
    rows = [
        {
            "name": name,
            "ready": bool(holder),
            "active": bool(holder),
            "replica": holder,
            "detail": "" if holder else "no replica is active",
            "lag": None,
        }
        for name, holder in holders.items()
        if holder or name != "controller"  # which is not everywhere
    ]
    return _found(rows)


def _found(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """These services, with what is wrong with them."""
    problems = [
        f"{row['name']}: {row['detail'] or 'not ready'}" for row in rows if not row["ready"]
    ]
    problems += [] if rows else ["no service of Allotment runs there"]
    return {"ready": not problems, "services": rows, "problems": problems}


def active_text(row: dict[str, Any]) -> str:
    """Which replica is active, where a row is about all of a service; else whether this one is."""
    if "replica" in row:
        return row["replica"] or "none"
    active = row.get("active")
    return "-" if active is None else "yes" if active else "standby"


def local_mode(act: Callable[[], Any]) -> Any:
    """Do something with local mode; what it cannot do becomes a `AllotError`."""
    try:
        return act()
    except LocalModeError as error:
        first, *rest = error.problems or ["local mode failed"]
        raise AllotError(first, more=rest) from error


def lag_text(lag: dict[str, Any] | None) -> str:
    """How far a service is behind the end of the log: `0`, or `12 for 3.4s`."""
    if lag is None:
        return "-"
    return f"{lag['records']} for {lag['seconds']:.1f}s" if lag["records"] else "0"


def ready_text(found: dict[str, Any]) -> str:
    """Whether all is ready; if services have no news from NATS, since when what they say holds."""
    since = [row["silentSinceMs"] for row in found["services"] if row.get("silentSinceMs")]
    if found["ready"] or not since:
        return "yes" if found["ready"] else "no"
    return f"no: {silence_text(min(since))}"


def show_status(found: dict[str, Any], output: str) -> None:
    """Print what `status` found."""
    if output in DOCUMENTS:
        emit_document(found, output)
        return
    where = (
        ("Home", "home"),
        ("Kubeconfig", "kubeconfig"),
        ("API server", "apiserver"),
        ("NATS", "nats"),
        ("Inspector", "inspector"),
    )
    emit([f"{'Ready':<12}{ready_text(found)}"])
    emit(f"{label:<12}{found[key] or '-'}" for label, key in where if key in found)
    if found["services"]:
        rows = [
            [
                row["name"],
                "ready" if row["ready"] else "not ready",
                active_text(row),
                lag_text(row["lag"]),
                str(row.get("pid") or ""),
                str(row.get("restarts", "")),
                row.get("http") or "",
                row.get("log", ""),
            ]
            for row in found["services"]
        ]
        headers = ("SERVICE", "STATE", "ACTIVE", "BEHIND LOG", "PID", "RESTARTS", "HTTP", "LOG")
        told = [n for n, _ in enumerate(headers) if any(row[n] not in ("", "-") for row in rows)]
        first, *rest = table(
            [headers[n] for n in told],
            [[row[n] for n in told] for row in rows],
            right=("PID", "RESTARTS"),
        )
        emit(["", heading(first), *rest])
    if found["problems"]:
        emit(["", heading("Problems"), *(f"  {problem}" for problem in found["problems"])])
    if found["ready"] and "kubeconfig" in found:
        suggest(f"kubectl --kubeconfig {found['kubeconfig']} apply -f deploy/examples/")
