"""The replay bench measures roads that end in one state, and says what it cannot do."""

import msgspec
from click.testing import CliRunner, Result

from allotment_cli.main import main


def replay(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", "replay", "--json", *words])


def test_it_reports_one_line_of_json() -> None:
    result = replay("--events", "6000", "--nodes", "40", "--live", "400", "--tail", "1500")
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    facts = msgspec.json.decode(line)
    assert (facts["bench"], facts["parameters"]["nodes"]) == ("replay", 40)
    assert facts["events"] >= 6000
    assert facts["live_pods"] == facts["allocations"] - facts["releases"] == 400
    assert facts["tail_events"] >= 1500
    assert facts["rate_per_cpu_second"] > 0
    assert facts["fold_events_per_cpu_second"] > 0
    assert facts["snapshot_mib"] < facts["log_mib"]
    assert 0 < facts["p50_us"] <= facts["p99_us"]
    assert len(facts["state_sha256"]) == 64


def test_a_cluster_that_is_too_small_is_said_to_be() -> None:
    result = replay("--events", "100000", "--nodes", "10", "--live", "5000")
    assert result.exit_code == 2
    assert "no room on 10 nodes for 5000 pods; take more nodes" in result.stderr
