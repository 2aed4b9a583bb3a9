"""Options that make no sense are refused before any work is done, with exit code 2."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from allotment_cli.main import main

ROOT = Path(__file__).parents[2]
BENCH = ["bench", "core", "--nodes", "5", "--seconds", "0.1"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["simulate", "--inflate", "nan"], "nan is not in the range"),
        (["bench", "core", "--seconds", "nan"], "nan is not in the range"),
        (["bench", "e2e", "--rate", "0"], "0 is not in the range"),
        (["bench", "e2e", "--seconds", "-1"], "-1"),
        (["bench", "full", "--policy", "nope"], "'nope' is neither one of"),
        ([*BENCH, "--save", "/nowhere/at/all"], "directory '/nowhere/at' does not exist"),
        (["simulate", "--csv", "/nowhere/at/all"], "directory '/nowhere/at' does not exist"),
    ],
)
def test_refused(arguments: list[str], why: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "truncated"),
        ('{"bench":"core"}', "missing required field `parameters`"),
        (
            '{"bench":"core","parameters":{},"machine":"","versions":{},"rate_per_cpu_second":"x"}',
            "got `str`",
        ),
    ],
)
def test_a_file_that_holds_no_results(line: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    result = CliRunner().invoke(main, [*BENCH, "--compare", str(path)])
    assert result.exit_code == 2
    assert f"{path}:1: not a result of a bench" in result.output
    assert why in result.output


def test_one_file_cannot_be_record_and_table(tmp_path: Path) -> None:
    both = str(tmp_path / "x")
    workload = str(ROOT / "deploy/examples/simulate/training-and-inference.yaml")
    result = CliRunner().invoke(
        main, ["simulate", "--workload", workload, "--csv", both, "--record", both]
    )
    assert result.exit_code == 2
    assert "give two files" in result.output
