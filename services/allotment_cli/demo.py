"""`allot demo`: local mode in a directory of its own, the examples, and what the log tells of them.

Everything it starts it ends, however it is left. The last line is ``demo: ok``.
"""

import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import click

from allotment.core.explain.spans import spans_of
from allotment.core.ledger.model import ClusterState
from allotment_cli import (
    demo_batch,
    demo_env,
    demo_preemption,
    demo_watch,
    explain,
    replay,
    story,
    trace,
)
from allotment_cli.demo_apply import apply_examples, manifests_in
from allotment_cli.errors import CliError
from allotment_cli.explain_text import explanation_lines
from allotment_cli.ledger import ledger_lines, ledgers
from allotment_cli.output import emit, heading, note, table
from allotment_cli.source import Origin
from allotment_local.orchestrator import LocalModeError, down, up

WITHIN_S = 110.0
PLACES = (
    Path(__file__).resolve().parents[2] / "deploy" / "examples",
    Path(__file__).resolve().parent / "examples",
)
"""Where the examples are: in a checkout, and in an installed package."""
RULES = Path("config") / "demo.conf"
"""Beside the examples: the configuration that keeps two of them apart and lets one preempt."""


class DemoFailed(Exception):
    """Raised with the reason when something did not go as it must."""


@click.command()
@click.option(
    "--examples",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of manifests (default: deploy/examples).",
)
@click.pass_context
def demo(ctx: click.Context, examples: Path | None) -> None:
    """Local mode, the examples, explanations, the card map, a verified replay.

    The examples show every device family, and what its device plugin tells the containers; then
    Jobs that run whole, a gang that cannot, a quota that refuses, and pods that make room for an
    urgent one. Exit code 1 unless all of it is as it should. With --examples only your own are
    shown.
    """
    place = examples or next((path for path in PLACES if path.is_dir()), None)
    if place is None:
        raise CliError("the examples are not installed", "say where they are: --examples DIR")
    home = Path(tempfile.mkdtemp(prefix="allotment-demo-"))
    reason = anyio.run(_guarded, lambda: _demo(home, place, examples is None), home)
    if reason:
        note(f"demo: failed: {reason}")
        note(f"demo: the logs are in {home / 'logs'}")
        ctx.exit(1)
    shutil.rmtree(home)
    emit(["", "demo: ok"])


async def _guarded(act: Callable[[], Awaitable[None]], home: Path) -> str:
    """Run the demo, end local mode whatever happened; why it failed, or nothing."""
    reason = f"not finished within {WITHIN_S:g} s"
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def end_on_signal(scope: anyio.CancelScope) -> None:
                nonlocal reason
                async for number in signals:
                    reason = f"stopped by {number.name}"
                    scope.cancel()

            try:
                with anyio.move_on_after(WITHIN_S) as scope:
                    tasks.start_soon(end_on_signal, scope)
                    await act()
                    reason = ""
            except (DemoFailed, LocalModeError) as error:
                reason = str(error)
            except CliError as error:
                reason = f"{error.message} {error.remedy}".strip()
            finally:
                with anyio.CancelScope(shield=True):
                    reason = await _end(home) or reason
            tasks.cancel_scope.cancel()
    return reason


async def _end(home: Path) -> str:
    try:
        await down(home, say=note)
    except LocalModeError as error:
        return f"local mode could not be ended: {error}"
    return ""


async def _demo(home: Path, examples: Path, is_complete: bool) -> None:
    """`is_complete`: the examples are ours, and must show all that they are to show."""
    note(f"demo: starting local mode in {home}")
    rules = examples / RULES
    policy = rules if rules.is_file() else None
    found: dict[str, Any] = await up(home, policy_file=policy, detach=True, say=note)
    origin = Origin(home, nats=found["nats"])
    kubeconfig = Path(found["kubeconfig"])
    applied = await apply_examples(kubeconfig, manifests_in(examples))
    note(f"demo: {len(applied)} pods applied from {examples}")
    settled = await demo_watch.settle(origin, applied)
    _title("Placements")
    emit(_placements(settled))
    _check(settled, is_complete)
    _title("What device plugins set in the containers' environment")
    environments = await demo_env.environments(kubeconfig, applied)
    emit(table(("POD", "VARIABLE", "VALUE"), demo_env.lines_of(environments)))
    placed = next((pod for pod in settled.pods if pod.placement is not None), None)
    waiting = next((pod for pod in settled.pods if pod.never), None)
    if placed is None or waiting is None:
        raise DemoFailed("expected a pod that was placed and one that can never fit")
    for pod in (placed, waiting):
        _title(f"allot explain pod {pod.namespace}/{pod.name}")
        emit(explanation_lines(await explain.run(origin, pod.namespace, pod.name, None, None)))
    _title(f"allot trace {placed.namespace}/{placed.name}")
    life = await story.run(origin, placed.namespace, placed.name, None, False)
    emit(trace.trace_lines(life, spans_of(life)))
    _title("allot ledger")
    emit(ledger_lines(ledgers(settled.state)))
    if is_complete:
        for title, lines in await demo_batch.batch_sections(origin, kubeconfig, examples):
            _title(title)
            emit(lines)
        for title, lines in await demo_preemption.preemption_sections(origin, kubeconfig, examples):
            _title(title)
            emit(lines)
    _title("allot replay --verify")
    document = await replay.run(origin, True, None, None)
    emit(replay.report_lines(document))
    report = document.report
    if report.identical != report.decisions or not report.decisions:
        raise DemoFailed("the replay differs from what was recorded")


def _check(settled: demo_watch.Settled, is_complete: bool) -> None:
    """Raises `DemoFailed` for a pod that failed, and for a kind of device that nobody got."""
    if failed := [pod.name for pod in settled.pods if pod.status == "Failed"]:
        raise DemoFailed(f"these pods failed: {', '.join(failed)}")
    shown = {kind for pod in settled.pods for kind in demo_watch.kinds(settled.state, pod)}
    if is_complete and (missing := sorted(demo_watch.KINDS - shown)):
        raise DemoFailed(f"no example got a device of: {', '.join(missing)}")


def _title(text: str) -> None:
    emit(["", heading(f"=== {text}"), ""])


def _placements(settled: demo_watch.Settled) -> list[str]:
    rows = [
        [
            f"{pod.namespace}/{pod.name}",
            pod.status,
            pod.placement.node if pod.placement is not None else "",
            ", ".join(sorted(demo_watch.kinds(settled.state, pod))),
            *_cards(settled.state, pod),
        ]
        for pod in settled.pods
    ]
    headers = ("POD", "STATUS", "NODE", "KIND", "CARDS", "MEMORY", "CORES", "WHY NOT")
    return table(headers, rows)


def _cards(state: ClusterState, pod: demo_watch.DemoPod) -> list[str]:
    """Cards, memory and cores per card of what the pod got, and why it got nothing."""
    if pod.placement is None:
        return ["", "", "", pod.cause]
    return [*demo_watch.held_text(state, pod.placement), ""]
