"""Three nats-servers as shipped, two replicas of each service, and pods that keep coming.

How long it takes is measured by `python -m tests.bench.failover`; here it must only end well.
"""

from pathlib import Path

import pytest

from tests.bench.failover import READY_FOR_S, Found, run
from tests.contract.manifests import needs_kubectl, of_kind


@pytest.mark.slow
def test_no_pod_is_lost_with_a_machine_or_in_an_upgrade(tmp_path: Path) -> None:
    wanted = "the leader, all active|upgrade"
    found = list(run(tmp_path / "three", 4, 1, wanted, segment_bytes=1 << 16))
    events = [one for one in found if isinstance(one, Found)]
    assert len(events) == 2
    assert all(one.pods for one in events)
    assert len(found) > len(events), "a segment was closed, too"


@needs_kubectl
def test_servers_restart_at_the_pace_that_is_measured() -> None:
    (servers,) = of_kind("deploy/overlays/default", "StatefulSet")
    assert servers["spec"]["minReadySeconds"] == READY_FOR_S
