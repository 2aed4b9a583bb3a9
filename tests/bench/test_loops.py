"""The loops bench runs real replicas, evicts, and fails where a loop computed for too long."""

from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from allotment.adapters.service.loop_watch import CPU
from allotment_cli.main import main
from allotment_lab.bench.results import Result
from allotment_lab.processes import longest_ms, run

pytestmark = pytest.mark.slow
SMALL = ["--nodes", "20", "--preemptors", "3", "--small", "3"]


class Measured(NamedTuple):
    """A small run: what the command did, and what was measured."""

    command: Outcome
    result: Result


@pytest.fixture(scope="module")
def measured() -> Measured:
    kept: list[Result] = []

    def keeping(*given: Any) -> Result:
        kept.append(run(*given))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allotment_lab.bench.loops.run", keeping)
        words = ["bench", "loops", *SMALL, "--bound-ms", "1000", "--json"]
        return Measured(CliRunner().invoke(main, words), *kept)


def test_loops_reports_one_line_of_json(measured: Measured) -> None:
    assert measured.command.exit_code == 0, measured.command.output
    facts = msgspec.json.decode(measured.command.stdout)
    assert (facts["bench"], facts["parameters"]["nodes"]) == ("loops", 20)
    assert facts["live_pods"] == 160
    assert facts["evictions"] >= 3
    assert facts["lease_changes"] == 0
    replicas = {f"{name}-{n}" for name in ("filter", "scorer", "binder") for n in (0, 1)}
    assert set(facts["blocked_cpu_ms_max"]) == set(facts["blocked_wall_ms_max"]) == replicas
    assert 0 < facts["p50_us"] <= facts["p99_us"]


def test_a_loop_that_computed_for_too_long_is_an_error(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = measured.result | {"blocked_cpu_ms_max": {"scorer-1": 75.0}}
    monkeypatch.setattr("allotment_lab.bench.loops.run", lambda *_: late)
    result = CliRunner().invoke(main, ["bench", "loops", *SMALL])
    assert result.exit_code == 2
    assert "event loops computed for longer than 50 ms: {'scorer-1': 75.0}" in result.stderr


def test_the_longest_time_is_the_least_bound_that_all_stayed_within() -> None:
    before = {"scorer-0": {CPU: {0.005: 7.0, 0.05: 8.0, float("inf"): 9.0}}}
    after = {"scorer-0": {CPU: {0.005: 8.0, 0.05: 10.0, float("inf"): 11.0}}}
    assert longest_ms(before, after, CPU) == {"scorer-0": 50.0}
