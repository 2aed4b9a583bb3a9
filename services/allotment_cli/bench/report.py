"""What every bench reports, how it is printed, and how it is compared with an earlier run.

A report is one flat JSON object on one line. Times are CPU time unless a field says `wall`, since a
busy machine stretches the wall clock. `calibration_ns` is the time of one turn of an empty loop on
this machine in this run: two reports are compared by rate × calibration, so that a slow or a busy
machine does not look like a slow release.
"""

import functools
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, table
from allotment_cli.params import can_be_written

CALIBRATION_TURNS = 2_000_000
REFERENCE_NS = 30.0
"""An empty loop's turn on the machine that the goals are stated for."""
SLOWER_PERCENT = 20
SAME = (
    "bench",
    "nodes",
    "shapes",
    "policy",
    "cards_per_node",
    "size",
    "pods",
    "groups",
    "pending",
    "queues",
)
"""Reports are of the same thing when these fields agree."""


@functools.cache
def calibrate_ns() -> float:
    """The best of five timings of an empty loop's turn, CPU ns."""
    return round(min(loop_ns() for _ in range(5)), 1)


def loop_ns() -> float:
    """One timing of an empty loop's turn, CPU ns: how fast the machine is just now."""
    start = time.process_time_ns()
    for _ in range(CALIBRATION_TURNS):
        pass
    return (time.process_time_ns() - start) / CALIBRATION_TURNS


def versions() -> dict[str, str]:
    """What was measured, and on what."""
    return {
        "allotment": version("allotment"),
        "numpy": version("numpy"),
        "python": sys.version.split()[0],
    }


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What every bench says. A field that a bench has no meaning for is None."""

    bench: str
    nodes: int
    shapes: int
    rate_per_cpu_second: float
    ratio_to_oracle: float | None = None
    p50_us: float
    p99_us: float
    cpu_us: dict[str, float] = {}
    """CPU time per unit of work by stage or process, µs."""
    rss_mib: dict[str, int] = {}
    """Peak resident memory by process, MiB."""
    calibration_ns: float = msgspec.field(default_factory=calibrate_ns)
    versions: dict[str, str] = msgspec.field(default_factory=versions)


def peak_rss_mib() -> int:
    """Peak resident memory of this process.

    Not getrusage's on Linux: that one starts at what the parent had when it forked.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20  # macOS counts bytes
    facts = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(facts["VmHWM"].split()[0]) // 1024


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of an ordered, non-empty sequence lie."""
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def reporting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`, `--save` and `--compare` to a bench, which then passes them to `publish`."""
    for option in (
        click.option(
            "--compare",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            callback=_can_be_compared,
            help="Compare with the same bench in FILE; exit 1 if it was over 20 % faster there.",
        ),
        click.option(
            "--save",
            type=click.Path(dir_okay=False, path_type=Path),
            callback=can_be_written,
            help="Append the report to FILE.",
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on one line."),
    ):
        command = option(command)
    return command


def publish(
    report: Report,
    title: str,
    rows: Sequence[tuple[str, str]],
    *,
    as_json: bool,
    save: Path | None,
    compare: Path | None,
) -> None:
    """Print a report as JSON or as a table, keep it, and hold it against an earlier one.

    Exits with 1 if the earlier one was more than `SLOWER_PERCENT` faster.
    """
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        emit([title, *table(["FIGURE", "VALUE"], [list(row) for row in rows], right=["VALUE"])])
    if save is not None:
        keep(report, save)
    if compare is not None and not holds_up(report, compare):
        raise SystemExit(1)


def keep(report: Report, path: Path) -> None:
    """Append a report to a file of reports."""
    with path.open("a", encoding="utf-8") as file:
        file.write(msgspec.json.encode(report).decode() + "\n")


def holds_up(report: Report, path: Path) -> bool:
    """Whether a report is not much slower than the last of the same thing in a file; says so."""
    earlier = find(report, path)
    now = report.rate_per_cpu_second * report.calibration_ns
    then: float = earlier["rate_per_cpu_second"] * earlier["calibration_ns"]
    change = 100 * (now / then - 1)
    note(
        f"against {path}: {report.rate_per_cpu_second:,.0f} /CPU-s now "
        f"(loop {report.calibration_ns} ns), {earlier['rate_per_cpu_second']:,.0f} then "
        f"(loop {earlier['calibration_ns']} ns): {change:+.0f} % at equal speed of the machine"
    )
    return change > -SLOWER_PERCENT


def find(report: Report, path: Path) -> dict[str, Any]:
    """The last report of the same thing in a file of reports. Raises CliError if there is none."""
    same = {key: getattr(report, key) for key in SAME if hasattr(report, key)}
    found = last_with(same, path)
    if found is None:
        wanted = ", ".join(f"{key} {value}" for key, value in same.items())
        raise CliError(f"{path}: no report with {wanted}; --save makes one")
    return found


def last_with(facts: Mapping[str, object], path: Path) -> dict[str, Any] | None:
    """The last report that says so in a file of reports, one JSON object a line."""
    found = None
    for candidate in read(path):
        if all(candidate.get(key) == value for key, value in facts.items()):
            found = candidate
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """The reports in a file. Raises CliError naming the line that is none."""
    reports = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            kept = msgspec.json.decode(line, type=_Kept)
            reports.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise CliError(f"{path}:{number}: not a report ({error})") from None
        if kept.rate_per_cpu_second <= 0 or kept.calibration_ns <= 0:
            raise CliError(f"{path}:{number}: not a report (rates must be above 0)")
    return reports


class _Kept(msgspec.Struct):
    """What a comparison needs of a kept report."""

    bench: str
    rate_per_cpu_second: float
    calibration_ns: float


def _can_be_compared(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Read the file before anything is measured."""
    if value is not None:
        read(value)
    return value
