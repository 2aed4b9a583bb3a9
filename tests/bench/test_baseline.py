"""The baseline has a report of every bench, and a run can be compared with each."""

from pathlib import Path

import msgspec

from allotment_lab.bench.batch import BatchReport
from allotment_lab.bench.core import CoreReport
from allotment_lab.bench.e2e import E2eReport
from allotment_lab.bench.gang import GangReport
from allotment_lab.bench.pipeline import PipelineReport
from allotment_lab.bench.replay import ReplayReport
from allotment_lab.bench.report import Report, find, holds_up
from allotment_lab.bench.watch import WatchReport

BASELINE = Path(__file__).with_name("baseline.jsonl")
KINDS: dict[str, type[Report]] = {
    "batch": BatchReport,
    "core": CoreReport,
    "e2e": E2eReport,
    "gang": GangReport,
    "pipeline": PipelineReport,
    "replay": ReplayReport,
    "watch": WatchReport,
}


def kept(path: Path) -> list[Report]:
    """The reports in a file, each decoded as its bench's."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [msgspec.json.decode(line)["bench"] for line in lines]
    return [
        msgspec.json.decode(line, type=KINDS[name]) for name, line in zip(names, lines, strict=True)
    ]


def test_the_baseline_holds_a_report_of_every_bench_that_a_run_can_be_compared_with() -> None:
    reports = kept(BASELINE)
    assert {report.bench for report in reports} == set(KINDS)
    for report in reports:
        found = find(report, BASELINE)["rate_per_cpu_second"]
        assert found == report.rate_per_cpu_second, "two of the same thing"
        assert holds_up(report, BASELINE)
        slow = msgspec.structs.replace(report, rate_per_cpu_second=report.rate_per_cpu_second / 2)
        assert not holds_up(slow, BASELINE)
