"""`allot demo`: the examples in local mode, checked and explained from the log.

It prints a few lines of results, the last of which begins with ``demo: ok``; every screen with
--verbose. Everything that it starts is stopped at its end, unless --keep leaves it running.
"""

import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click

from allotment.answers import local
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.history.spans import spans_of
from allotment.core.explain.rows.words import status_text
from allotment.core.ledger.model import ClusterState
from allotment_cli.demo import batch, env, preemption, watch
from allotment_cli.demo.apply import apply_examples, manifests_in
from allotment_cli.options.source import home_option
from allotment_cli.read import explain, replay, story, trace
from allotment_cli.read.ledger import ledger_lines, ledgers
from allotment_cli.show.explain_text import explanation_lines
from allotment_cli.show.output import emit, heading, note, table
from allotment_local.home import DEFAULT_HOME
from allotment_local.orchestrator import LocalModeError, down, up

WITHIN_S = 110.0
OK = "demo: ok"
ACTS = {"Jobs, gangs and quotas": batch.run, "a preemption": preemption.run}
ENVIRONMENT = ("POD", "VARIABLE", "VALUE")
PLACES = (
    Path(__file__).resolve().parents[3] / "deploy" / "examples",
    Path(__file__).resolve().parents[1] / "examples",
)
"""Where the examples are: in a checkout, and in an installed package."""
RULES = Path("config") / "demo.conf"
"""Next to the examples: the configuration that keeps two of them apart and lets one preempt."""


class DemoFailed(Exception):
    """Raised with the reason when a result is not as expected."""


class Stage(NamedTuple):
    """Where the demo runs, and how much of it is shown.

    `is_complete`: the examples are ours, and must show every kind of device.
    """

    home: Path
    examples: Path
    is_complete: bool
    is_kept: bool
    is_verbose: bool

    def show(self, title: str, lines: Iterable[str]) -> None:
        """Print a screen under its heading, if screens are wanted."""
        if self.is_verbose:
            emit(["", heading(f"=== {title}"), "", *lines])

    def say(self, text: str) -> None:
        """Report a detail of starting and stopping, if details are wanted."""
        if self.is_verbose:
            note(text)


@click.command()
@click.option(
    "--examples",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of manifests (default: deploy/examples).",
)
@click.option(
    "--keep", is_flag=True, help="Leave local mode running in --home; print the page's address."
)
@click.option("-v", "--verbose", is_flag=True, help="Show every screen.")
@home_option
@click.pass_context
def demo(ctx: click.Context, examples: Path | None, keep: bool, verbose: bool, home: Path) -> None:
    """Run the examples in local mode and check the results.

    The examples show every device family; then Jobs that are placed whole, a gang that cannot
    start, a quota that rejects, pods that are preempted for an urgent one, and a verified replay.
    Exit code 1 if any of it fails. With --examples only your own manifests run. Without --keep
    everything runs in a temporary directory and is stopped at the end.
    """
    place = examples or next((path for path in PLACES if path.is_dir()), None)
    if place is None:
        raise AllotError("the examples are not installed", "name their directory: --examples DIR")
    if not keep:
        home = Path(tempfile.mkdtemp(prefix="allotment-demo-"))
    elif local.is_running(home):
        raise AllotError(f"local mode is already running in {home}", "stop it first: allot down")
    results: list[str] = []
    reason = anyio.run(_guarded, Stage(home, place, examples is None, keep, verbose), results)
    if reason:
        note(f"demo: failed: {reason}")
        note(f"demo: the logs are in {home / 'logs'}")
        ctx.exit(1)
    if not keep:
        shutil.rmtree(home)
    emit(["", *results])


async def _guarded(stage: Stage, results: list[str]) -> str:
    """Run the demo and add its results; why it failed, or nothing. Local mode is stopped unless
    the demo succeeded and is kept.
    """
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
                    results += await _demo(stage)
                    reason = ""
            except (DemoFailed, LocalModeError) as error:
                reason = str(error)
            except AllotError as error:
                reason = f"{error.message} {error.remedy}".strip()
            finally:
                if reason or not stage.is_kept:
                    with anyio.CancelScope(shield=True):
                        reason = await _end(stage) or reason
            tasks.cancel_scope.cancel()
    return reason


async def _end(stage: Stage) -> str:
    try:
        await down(stage.home, say=stage.say)
    except LocalModeError as error:
        return f"local mode could not be stopped: {error}"
    return ""


async def _demo(stage: Stage) -> list[str]:
    """Run everything and check it; returns the results, at most ten lines."""
    note(f"demo: starting local mode in {stage.home}")
    rules = stage.examples / RULES
    policy = rules if rules.is_file() else None
    found: dict[str, Any] = await up(stage.home, policy_file=policy, detach=True, say=stage.say)
    origin = Origin(stage.home, nats=found["nats"])
    kubeconfig = Path(found["kubeconfig"])
    applied = await apply_examples(kubeconfig, manifests_in(stage.examples))
    note(f"demo: {len(applied)} pods applied from {stage.examples}")
    settled = await watch.settle(origin, applied)
    waiting, results = await _examples(stage, origin, settled)
    environments = env.lines_of(await env.environments(kubeconfig, applied))
    stage.show("Environment set by device plugins", table(ENVIRONMENT, environments))
    if stage.is_complete:
        for what, run in ACTS.items():
            note(f"demo: {what}")
            act = await run(origin, kubeconfig, stage.examples)
            for title, lines in act.sections:
                stage.show(title, lines)
            results += act.results
    note("demo: recomputing every decision from the log")
    document = await replay.run(origin, True, False, None, None)
    stage.show("allot replay --verify", replay.report_lines(document))
    report = document.report
    if report.identical != report.decisions or not report.decisions:
        raise DemoFailed("the replay differs from the log")
    results.append(f"All {report.decisions} decisions, recomputed from the log, are identical.")
    if not stage.is_kept:
        return [*results, "Every screen: --verbose. Keep it running, with its page: --keep", OK]
    home = "" if stage.home == DEFAULT_HOME.expanduser() else f" --home {stage.home}"
    return [
        *results,
        f"Next: allot explain pod {waiting.namespace}/{waiting.name}{home}",
        f"Stop it: allot down{home}",
        f"{OK}, and still running; open {found['inspector']}",
    ]


async def _examples(
    stage: Stage, origin: Origin, settled: watch.Settled
) -> tuple[watch.DemoPod, list[str]]:
    """Show what became of the example pods; one that can never fit, and the results."""
    stage.show("Placements", _placements(settled))
    _check(settled, stage.is_complete)
    placed = [pod for pod in settled.pods if pod.placement is not None]
    waiting = next((pod for pod in settled.pods if pod.never), None)
    if not placed or waiting is None:
        raise DemoFailed("expected a pod that was placed and one that can never fit")
    for pod in (placed[0], waiting):
        found = await explain.run(origin, pod.namespace, pod.name, None, None)
        stage.show(f"allot explain pod {pod.namespace}/{pod.name}", explanation_lines(found))
    first = placed[0]
    life = await story.run(origin, first.namespace, first.name, None, False)
    lines = trace.trace_lines(life, spans_of(life))
    stage.show(f"allot trace {first.namespace}/{first.name}", lines)
    stage.show("allot ledger", ledger_lines(ledgers(settled.state)))
    kinds = {kind for pod in placed for kind in watch.kinds(settled.state, pod)}
    nodes = {pod.placement.node for pod in placed if pod.placement is not None}
    return waiting, [
        f"{len(placed)} of {len(settled.pods)} example pods got devices of {len(kinds)} kinds "
        f"on {len(nodes)} nodes.",
        f"{waiting.name}: {status_text(found)}",
    ]


def _check(settled: watch.Settled, is_complete: bool) -> None:
    """Raises `DemoFailed` for a pod that failed, and for a kind of device that no pod got."""
    if failed := [pod.name for pod in settled.pods if pod.status == "Failed"]:
        raise DemoFailed(f"these pods failed: {', '.join(failed)}")
    shown = {kind for pod in settled.pods for kind in watch.kinds(settled.state, pod)}
    if is_complete and (missing := sorted(watch.KINDS - shown)):
        raise DemoFailed(f"no example got a device of: {', '.join(missing)}")


def _placements(settled: watch.Settled) -> list[str]:
    rows = [
        [
            f"{pod.namespace}/{pod.name}",
            pod.status,
            pod.placement.node if pod.placement is not None else "",
            ", ".join(sorted(watch.kinds(settled.state, pod))),
            *_cards(settled.state, pod),
        ]
        for pod in settled.pods
    ]
    headers = ("POD", "STATUS", "NODE", "KIND", "CARDS", "MEMORY", "CORES", "WHY NOT")
    return table(headers, rows)


def _cards(state: ClusterState, pod: watch.DemoPod) -> list[str]:
    """Cards, memory and cores per card of what the pod got, and why it got nothing."""
    if pod.placement is None:
        return ["", "", "", pod.cause]
    return [*watch.held_text(state, pod.placement), ""]
