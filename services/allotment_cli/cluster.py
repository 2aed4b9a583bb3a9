"""`allot up`, `down`, `status`: local mode."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import click

from allotment_cli.errors import CliError
from allotment_cli.output import emit, emit_json, heading, note, suggest, table
from allotment_cli.source import home_option
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
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
def up(
    home: Path,
    detach: bool,
    nodes: Path | None,
    policy: Path | None,
    allocate_ms: int,
    no_inspector: bool,
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
@home_option
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text")
@click.pass_context
def status(context: click.Context, home: Path, output: str) -> None:
    """Show what runs in local mode, with every address.

    Exit code 1 if it does not run, or if anything of it is not ready.
    """
    found = local_mode(lambda: anyio.run(ask_local, home))
    show_status(found, output)
    if not found["ready"]:
        context.exit(NOT_READY)


def local_mode(act: Callable[[], Any]) -> Any:
    """Do something with local mode; what it cannot do becomes a `CliError`."""
    try:
        return act()
    except LocalModeError as error:
        first, *rest = error.problems or ["local mode failed"]
        raise CliError(first, "\nallot: ".join(rest)) from error


def lag_text(lag: dict[str, Any] | None) -> str:
    """How far a service is behind the end of the log: `0`, or `12 for 3.4s`."""
    if lag is None:
        return "-"
    return f"{lag['records']} for {lag['seconds']:.1f}s" if lag["records"] else "0"


def show_status(found: dict[str, Any], output: str) -> None:
    """Print what `status` found."""
    if output == "json":
        emit_json(found)
        return
    emit(
        f"{label:<12}{value}"
        for label, value in (
            ("Ready", "yes" if found["ready"] else "no"),
            ("Home", found["home"]),
            ("Kubeconfig", found["kubeconfig"] or "-"),
            ("API server", found["apiserver"] or "-"),
            ("NATS", found["nats"] or "-"),
            ("Inspector", found["inspector"] or "-"),
        )
    )
    if found["services"]:
        rows = [
            [
                row["name"],
                "ready" if row["ready"] else "not ready",
                lag_text(row["lag"]),
                str(row["pid"] or ""),
                str(row["restarts"]),
                row["http"] or "",
                row["log"],
            ]
            for row in found["services"]
        ]
        headers = ("SERVICE", "STATE", "BEHIND LOG", "PID", "RESTARTS", "HTTP", "LOG")
        first, *rest = table(headers, rows, right=("PID", "RESTARTS"))
        emit(["", heading(first), *rest])
    if found["problems"]:
        emit(["", heading("Problems"), *(f"  {problem}" for problem in found["problems"])])
    if found["ready"]:
        suggest(f"kubectl --kubeconfig {found['kubeconfig']} apply -f deploy/examples/")
