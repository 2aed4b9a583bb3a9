"""The watch bench: a real watcher and nats-server, everything told, and nothing for heartbeats."""

import msgspec
import pytest
from click.testing import CliRunner

from allotment_cli.main import main


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_all_objects_are_told_once_and_heartbeats_make_no_event() -> None:
    words = ["bench", "watch", "--nodes", "30", "--pods", "700", "--rounds", "2", "--json"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    facts = msgspec.json.decode(line)
    assert facts["bench"] == "watch"
    assert facts["parameters"] == {"nodes": 30, "pods": 700, "rounds": 2}
    assert facts["events_appended"] == 30 + 700 + 2
    assert facts["heartbeats"] == 2 * (30 + 30)
    assert facts["events_appended_for_heartbeats"] == 0
    assert facts["rss_mib"]["watcher"] > 0
    folded_us = 1e6 * facts["folded_seconds_wall"]
    assert 0 < facts["p50_us"] <= facts["p99_us"] < folded_us, "when facts landed, from the start"
