"""Two runs are compared if they are of the same thing, and if the machine kept its speed."""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from allotment_cli.errors import CliError
from allotment_lab.bench import speed
from allotment_lab.bench.core import CoreReport
from allotment_lab.bench.gang import GangReport
from allotment_lab.bench.report import UnsteadyError, find, holds_up, keep, publish, read
from allotment_lab.percentiles import percentile

CORE = CoreReport(
    bench="core",
    nodes=10_000,
    shapes=16,
    cards_per_node=8,
    policy="binpack",
    seed=1,
    decisions=1,
    placed_percent=100,
    oracle_rate_per_cpu_second=1,
    rate_per_cpu_second=1000,
    p50_us=1,
    p99_us=1,
    calibration_ns=100,
    versions={"numba": "none"},
)
GANG = GangReport(
    bench="gang",
    nodes=10,
    shapes=1,
    policy="binpack",
    seed=1,
    size=2,
    gangs=1,
    undo_us=1,
    failed_us=1,
    hopeless_us=1,
    rate_per_cpu_second=1000,
    p50_us=1,
    p99_us=1,
    calibration_ns=100,
)


def kept(path: Path, report: CoreReport | GangReport, *without: str) -> Path:
    facts: dict[str, Any] = msgspec.to_builtins(report)
    for name in without:
        del facts[name]
    path.write_bytes(msgspec.json.encode(facts) + b"\n")
    return path


@pytest.fixture(autouse=True)
def _steady_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's speed nor what benches before this test saw of it decides here."""
    monkeypatch.setattr(speed, "_turn_ns", lambda: 40.0)
    speed.begin()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.jsonl"


@pytest.mark.parametrize(
    ("report", "other"),
    [
        (CORE, msgspec.structs.replace(CORE, devices="mig")),
        (GANG, msgspec.structs.replace(GANG, cards_per_pod=8)),
    ],
)
def test_other_devices_and_cards_are_another_bench(
    report: CoreReport | GangReport, other: CoreReport | GangReport, file: Path
) -> None:
    with pytest.raises(CliError, match="no report with"):
        find(report, kept(file, other))
    assert find(report, kept(file, report))
    assert find(report, kept(file, report, "devices" if report is CORE else "cards_per_pod"))
    with pytest.raises(CliError, match="no report with"):
        find(other, file)


def test_that_one_run_had_compiled_loops_is_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = msgspec.structs.replace(CORE, versions={"numba": "0.61.0"})
    assert holds_up(compiled, kept(file, CORE, "versions"))
    assert "compiled loops differ: numba 0.61.0 now, none then" in capsys.readouterr().err
    assert holds_up(CORE, file)
    assert "compiled loops" not in capsys.readouterr().err


def test_no_verdict_where_the_machine_changed_its_speed(file: Path) -> None:
    unsteady = msgspec.structs.replace(CORE, calibration_change_percent=200)
    with pytest.raises(UnsteadyError, match=r"speed changed during the run: .* 200 %"):
        holds_up(unsteady, kept(file, CORE))
    with pytest.raises(UnsteadyError, match="during the run kept in"):
        holds_up(CORE, kept(file, unsteady))
    slow = msgspec.structs.replace(CORE, rate_per_cpu_second=500)
    assert not holds_up(slow, kept(file, CORE))


def test_no_verdict_where_only_the_empty_loop_was_quicker(file: Path) -> None:
    quick = msgspec.structs.replace(CORE, calibration_ns=CORE.calibration_ns / 3)
    with pytest.raises(UnsteadyError, match="67 % slower by the empty loop"):
        holds_up(quick, kept(file, CORE))
    both = msgspec.structs.replace(quick, rate_per_cpu_second=CORE.rate_per_cpu_second * 0.9)
    assert not holds_up(both, file)


def test_other_versions_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = msgspec.structs.replace(CORE, versions={"allotment": "0.0.9", "python": "3.11.2"})
    newer = msgspec.structs.replace(CORE, versions={"allotment": "0.1.0", "python": "3.11.2"})
    assert holds_up(newer, kept(file, older))
    said = capsys.readouterr().err
    assert "Allotment 0.1.0, Python 3.11.2 now, Allotment 0.0.9, Python 3.11.2 then" in said


def test_a_report_is_kept_on_a_line_of_its_own(file: Path) -> None:
    file.write_text('{"bench":"co')
    keep(CORE, file)
    keep(CORE, file)
    broken, *lines = file.read_text().splitlines()
    assert broken == '{"bench":"co'
    assert [msgspec.json.decode(line)["bench"] for line in lines] == ["core", "core"]


def test_a_run_is_not_compared_with_itself(file: Path) -> None:
    fast = msgspec.structs.replace(CORE, rate_per_cpu_second=4000)
    out: dict[str, Any] = {"as_json": True, "save": file, "compare": kept(file, fast)}
    with pytest.raises(SystemExit) as raised:
        publish(CORE, "core", [], **out)
    assert raised.value.code == 1
    assert len(read(file)) == 2


def test_a_report_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be written"):
        keep(CORE, tmp_path)


def test_a_quick_moment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the short loops find the machine three times as fast."""
    turns = iter([130.0, 40.0, 131.0, 129.0] * speed.LOOPS)
    monkeypatch.setattr(speed, "_turn_ns", lambda: next(turns))
    speed.begin()
    assert 129 <= speed.calibrate_ns() <= 130
    assert speed.change_percent() < 2


def test_looks_around_a_bench_are_held_against_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_turn_ns", lambda: 40.0)
    speed.begin()
    monkeypatch.setattr(speed, "_turn_ns", lambda: 130.0)
    assert speed.calibrate_ns() == 85
    assert speed.change_percent() == 225


@pytest.mark.parametrize("count", [1, 2, 3, 4, 99, 100, 101])
def test_a_percentile_is_the_nearest_rank(count: int) -> None:
    ordered = list(range(count))
    for percent in (1, 50, 99, 100):
        least = next(x for x in ordered if 100 * (x + 1) >= percent * count)
        assert percentile(ordered, percent) == least
    if count % 2:
        assert percentile(ordered, 50) == median(ordered)
