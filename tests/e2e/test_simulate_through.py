"""`allot simulate --through services`: real processes decide what the core decides in this one."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from allotment_cli.main import main
from tests.simulating import NODES, PODS


@pytest.mark.timeout(240)
@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_the_services_put_every_pod_where_the_core_puts_it(policy: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    trace = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    arguments = ["simulate", *trace, "--policy", policy, "--inflate", "1.5", "--json"]
    through = CliRunner().invoke(main, [*arguments, "--through", "services"])
    assert through.exit_code == 0, through.output
    assert "the services put every pod where the core puts it" in through.stderr
    services = msgspec.json.decode(through.stdout)
    core = msgspec.json.decode(CliRunner().invoke(main, arguments).stdout)
    assert services["refused"] > 0
    same = ("trace_sha256", "allocation_percent", "fragmentation_percent", "placed", "idle_cards")
    assert [services[field] for field in same] == [core[field] for field in same]
