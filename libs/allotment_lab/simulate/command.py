"""`allot simulate`: what a policy makes of a workload, without a cluster."""

from pathlib import Path

import click
import msgspec

from allotment.adapters.telemetry.log import file_trouble
from allotment_cli import completion
from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, suggest
from allotment_cli.params import Finite, can_be_written
from allotment_cli.progress import in_silence, progress
from allotment_lab.simulate import curve as picture
from allotment_lab.simulate.inputs import read
from allotment_lab.simulate.outputs import kept, refuse_overwriting
from allotment_lab.simulate.policies import KEPT, NAMES, WORDS, as_recorded, choose
from allotment_lab.simulate.report import (
    Curve,
    RunReport,
    cluster,
    is_repeated,
    legend,
    lines,
    summary,
)
from allotment_lab.simulate.run import Plan, assumed, check_history, draw
from allotment_lab.simulate.run import simulate as run_once
from allotment_proto.facts import Policy

DIFFERENCES = 1

_in = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--nodes", type=_in, help="Nodes of the openb trace, CSV.")
@click.option("--pods", type=_in, help="Pods of the openb trace, CSV.")
@click.option("--file", type=_in, help="An exported log (allot log -o jsonl): its nodes and pods.")
@click.option("--workload", type=_in, help="A YAML of node shapes, pod shapes and arrival rates.")
@click.option(
    "--policy",
    "words",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=completion.words(*KEPT, files=True),
    help=f"One of {WORDS}, or a scheduler configuration file. Repeatable. "
    "[the recorded one, else binpack]",
)
@click.option(
    "--inflate",
    type=Finite(0.01, 10_000),
    help="Load the cluster to so many times its cards, by sampling pods or leaving some out.",
)
@click.option("--seed", default=42, show_default=True, type=click.IntRange(0))
@click.option(
    "--repeat", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Seeds from it."
)
@click.option(
    "--churn/--no-churn",
    default=None,
    help="Pods come and go at their times and wait for room, or arrive one by one and stay. "
    "[--churn for --file and --workload]",
)
@click.option(
    "--through",
    type=click.Choice(("core", "services")),
    default="core",
    show_default=True,
    help="The core in virtual time, or NATS, filter, scorer and binder as processes.",
)
@click.option(
    "--record",
    type=_in,
    callback=can_be_written,
    help="Keep the run as an exported log (one run only).",
)
@click.option(
    "--svg",
    type=_in,
    callback=can_be_written,
    help="Draw allocation against arrived load, a curve a policy.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run, each on one line.")
@click.pass_context
def simulate(
    ctx: click.Context,
    nodes: Path | None,
    pods: Path | None,
    file: Path | None,
    workload: Path | None,
    words: tuple[str, ...],
    inflate: float | None,
    seed: int,
    repeat: int,
    churn: bool | None,
    through: str,
    record: Path | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Schedule a recorded or made-up workload on a made-up cluster, and say how full it got.

    The published experiment: --nodes and --pods of the openb trace with --inflate 1.3, and only
    the nodes that have cards; others in the file are used as they are.

    Exit codes: 0 simulated; 1 the services placed otherwise than the core; 2 could not run.
    """
    inputs = {"--nodes": nodes, "--pods": pods, "--file": file, "--workload": workload}
    inputs |= {f"--policy {word}": Path(word) for word in words if word not in NAMES}
    refuse_overwriting({"--record": record, "--svg": svg}, inputs)
    source = read(nodes, pods, file, workload)
    policies = choose(words, source.recorded)
    for doubt in dict.fromkeys(d for chosen in policies for d in source.doubts(chosen.policy)):
        note(f"warning: {doubt}")
    is_churn = source.comes_and_goes if churn is None else churn
    if is_churn and not source.is_timed:
        raise CliError(f"{pods} does not say when pods come and go", "leave out --churn")
    if record is not None and (repeat * len(policies) > 1 or policies[0].is_random):
        raise CliError(
            "--record keeps one run, of a policy that can be decided again",
            "give one --policy, not random, and no --repeat",
        )
    if through == "services" and is_churn:
        raise CliError(
            "the services run in real time: nobody can wait for pods to come and go",
            "leave out --through services, or give --no-churn",
        )
    if through == "services" and record is not None:
        raise CliError("--record keeps a run through the core", "leave out --through services")
    plan = Plan(source, inflate, is_churn)
    for line in assumed(plan):
        note(line)
    if repeat > 1 and not plan.is_drawn and not all(chosen.is_random for chosen in policies):
        raise CliError(
            "every seed gives the same run here: no dice are part of this workload or its policy",
            "leave out --repeat, or give --inflate or --policy random",
        )
    own = as_recorded(source.recorded or Policy())
    is_history = bool(source.placed_then) and is_churn and inflate is None
    differing = 0
    reports: list[RunReport] = []
    curves: dict[str, list[Curve]] = {chosen.name: [] for chosen in policies}
    for number in range(seed, seed + repeat):
        drawn = draw(plan, number)
        if number == seed and is_history and policies != [own]:
            history, _ = run_once(plan, drawn, own, number, in_silence, None)
            note(check_history(source.placed_then, history.placed, compares=True))
        for chosen in policies:
            title = f"{chosen.name}, seed {number}"
            with kept(record) as sink, progress(title, len(drawn.ours)) as advance:
                if through == "core":
                    report, curve = run_once(plan, drawn, chosen, number, advance, sink)
                else:
                    from allotment_lab.simulate.through import simulate_through

                    report, curve = simulate_through(drawn, chosen, number, advance)
            if through == "services":
                core, _ = run_once(plan, drawn, chosen, number, in_silence, None)
                differing += _is_different(core, report)
            reports.append(report)
            curves[chosen.name].append(curve)
            if as_json:
                click.echo(msgspec.json.encode(report).decode())
    if is_history and policies == [own]:
        note(check_history(source.placed_then, reports[0].placed, compares=False))
    _conclude(reports, as_json)
    if svg is not None:
        _draw(svg, curves, reports)
    if differing:
        ctx.exit(DIFFERENCES)
    if record is not None:
        suggest(f"allot replay --verify --file {record}")


def _is_different(core: RunReport, services: RunReport) -> bool:
    """Whether services and core placed otherwise; says which on stderr."""
    is_same = core.trace_sha256 == services.trace_sha256
    told = "every pod where" if is_same else "NOT every pod where"
    note(f"{services.policy}, seed {services.seed}: the services put {told} the core puts it")
    return not is_same


def _conclude(reports: list[RunReport], as_json: bool) -> None:
    if not as_json:
        emit(lines(reports))
    elif is_repeated(reports):
        for line in summary(reports):
            note(line)


def _draw(path: Path, curves: dict[str, list[Curve]], reports: list[RunReport]) -> None:
    title = f"Allocation on {cluster(reports[0])}; figures: ALLOCATED % as in the table"
    named = {name: curves[policy] for policy, name in legend(reports).items()}
    try:
        drawn = picture.svg(named, title, over_time=reports[0].mode == "churn")
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {file_trouble(error)}") from error
    note(f"drawn: {path}")
