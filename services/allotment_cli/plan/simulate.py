"""`allot simulate`: what a policy makes of a workload, without a cluster."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from allotment.adapters.telemetry.log import file_trouble
from allotment.core.errors import AllotError
from allotment.core.placement.policies import POLICIES
from allotment_cli.options import completion
from allotment_cli.options.params import Finite, can_be_written
from allotment_cli.plan.simulated import differences, is_repeated, lines, summary
from allotment_cli.show.output import emit, note, suggest
from allotment_cli.show.progress import Advance, in_silence, progress
from allotment_lab.simulate.inputs import read
from allotment_lab.simulate.outputs import kept, refuse_overwriting
from allotment_lab.simulate.policies import KEPT, NAMES, WORDS, as_recorded, choose
from allotment_lab.simulate.report import Curve, Ran, RunReport, Starts
from allotment_lab.simulate.run import Plan, assumed, check_history, draw
from allotment_lab.simulate.run import simulate as run_once
from allotment_proto.facts import Policy

DIFFERENCES = 1
RUN_UNITS = 1000
"""How finely the progress of one run is shown."""

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
    "--csv",
    "curves",
    type=_in,
    callback=can_be_written,
    help="Write the allocation of each run, by arrived load or by time, to a CSV file.",
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
    curves: Path | None,
    as_json: bool,
) -> None:
    """Schedule a recorded or synthetic workload on a simulated cluster; report utilisation.

    The published experiment: --nodes and --pods of the openb trace with --inflate 1.3, and only
    the nodes that have cards; others in the file are used as they are.

    Exit codes: 0 simulated; 1 the services placed otherwise than the core; 2 could not run.
    """
    inputs = {"--nodes": nodes, "--pods": pods, "--file": file, "--workload": workload}
    inputs |= {f"--policy {word}": Path(word) for word in words if word not in NAMES}
    refuse_overwriting({"--record": record, "--csv": curves}, inputs)
    source = read(nodes, pods, file, workload)
    policies = choose(words, source.recorded, note)
    for doubt in dict.fromkeys(d for chosen in policies for d in source.doubts(chosen.policy)):
        note(f"warning: {doubt}")
    is_churn = source.comes_and_goes if churn is None else churn
    if is_churn and not source.is_timed:
        raise AllotError(f"{pods} does not say when pods come and go", "leave out --churn")
    if record is not None and (repeat * len(policies) > 1 or not policies[0].is_of_product):
        raise AllotError(
            "--record keeps one run, of a policy that can be decided again",
            f"give one --policy of {', '.join(POLICIES)} or a file, and no --repeat",
        )
    if through == "services" and is_churn:
        raise AllotError(
            "the services run in real time, too slowly for pods that come and go",
            "leave out --through services, or give --no-churn",
        )
    if through == "services" and record is not None:
        raise AllotError("--record keeps a run through the core", "leave out --through services")
    plan = Plan(source, inflate, is_churn)
    for line in assumed(plan):
        note(line)
    if repeat > 1 and not plan.is_drawn and not all(chosen.is_random for chosen in policies):
        raise AllotError(
            "every seed gives the same run here: no dice are part of this workload or its policy",
            "leave out --repeat, or give --inflate or --policy random",
        )
    own = as_recorded(source.recorded or Policy())
    is_history = bool(source.placed_then) and is_churn and inflate is None
    differing = 0
    finished = _Finished(repeat * len(policies))
    title = f"{finished.wanted} runs" if finished.wanted > 1 else f"{policies[0].name}, seed {seed}"
    try:
        with progress(title, finished.wanted * RUN_UNITS) as advance:
            for number in range(seed, seed + repeat):
                drawn = draw(plan, number)
                if number == seed and is_history and policies != [own]:
                    history = run_once(plan, drawn, own, number, in_silence, None).report
                    note(check_history(source.placed_then, history.placed, compares=True))
                for chosen in policies:
                    with _part(advance, len(drawn.ours)) as part, kept(record) as sink:
                        if through == "core":
                            ran = run_once(plan, drawn, chosen, number, part, sink)
                        else:
                            from allotment_lab.simulate.through import simulate_through

                            ran = simulate_through(drawn, chosen, number, part)
                    if through == "services":
                        core = run_once(plan, drawn, chosen, number, in_silence, None).report
                        differing += _is_different(core, ran.report)
                    finished.take(chosen.name, ran)
                    if as_json:
                        click.echo(msgspec.json.encode(ran.report).decode())
    except KeyboardInterrupt:
        finished.conclude(as_json, curves)
        raise
    if is_history and policies == [own]:
        note(check_history(source.placed_then, finished.reports[0].placed, compares=False))
    finished.conclude(as_json, curves)
    if differing:
        ctx.exit(DIFFERENCES)
    if record is not None:
        suggest(f"allot replay --verify --file {record}")


class _Finished:
    """The runs that came to their end, of as many as were `wanted`."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.reports: list[RunReport] = []
        self._curves: list[Curve] = []
        self._starts: dict[str, Starts] = {}
        """Of the first seed."""

    def take(self, policy: str, ran: Ran) -> None:
        """One more."""
        self.reports.append(ran.report)
        self._curves.append(ran.curve)
        if ran.report.seed == self.reports[0].seed:
            self._starts[policy] = ran.starts

    def conclude(self, as_json: bool, curves: Path | None) -> None:
        """Print and write them, even if some did not finish."""
        if len(self.reports) < self.wanted:
            note(f"stopped: {len(self.reports)} of {self.wanted} runs are finished")
        if not self.reports:
            return
        compared = differences(self._starts, self.reports[0].seed)
        if not as_json:
            emit([*lines(self.reports), *([""] if compared else []), *compared])
        else:
            for line in [*(summary(self.reports) if is_repeated(self.reports) else []), *compared]:
                note(line)
        if curves is not None:
            _write(curves, self._curves, self.reports)


@contextmanager
def _part(advance: Advance, pods: int) -> Iterator[Advance]:
    """The progress of one run of so many pods, as its equal part of the progress of all."""
    done = shown = 0

    def advance_part(more: int) -> None:
        nonlocal done, shown
        done += more
        now = RUN_UNITS * min(done, pods) // max(pods, 1)
        advance(now - shown)
        shown = now

    yield advance_part
    advance(RUN_UNITS - shown)


def _is_different(core: RunReport, services: RunReport) -> bool:
    """Whether services and core placed otherwise; says which on stderr."""
    is_same = core.trace_sha256 == services.trace_sha256
    told = "every pod where" if is_same else "NOT every pod where"
    note(f"{services.policy}, seed {services.seed}: the services put {told} the core puts it")
    return not is_same


def _write(path: Path, curves: list[Curve], reports: list[RunReport]) -> None:
    by = "seconds" if reports[0].mode == "churn" else "arrived_percent"
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(["policy", "seed", by, "allocated_percent"])
            for report, curve in zip(reports, curves, strict=True):
                table.writerows([report.policy, report.seed, *point] for point in curve)
    except OSError as error:
        raise AllotError(f"{path} cannot be written: {file_trouble(error)}") from error
    note(f"written: {path}")
