"""A log becomes the workload that it records: the same nodes, pods, times, and what others hold."""

import pytest

from allotment.core.logport import Record
from allotment_lab.bundle import from_records
from allotment_lab.workload import WorkloadError
from allotment_proto.facts import Policy
from tests.recording import Recorder, busy_cluster, vgpu


def test_pods_run_again_as_long_as_they_did() -> None:
    log = Recorder()
    log.policy(Policy(device_policy="spread"))
    log.node("n1")
    uid = log.pod("a", vgpu())
    log.decide()
    seen_ms = log.now_ms
    for _ in range(40):
        log.node("n1")
    log.gone(uid)
    ran_s = (log.now_ms - seen_ms) // 1000
    workload = from_records(log.records, "log.jsonl")
    (arrival,) = workload.arrivals
    assert arrival.deleted_s is None
    assert arrival.runs_s is not None
    assert abs(arrival.runs_s - ran_s) <= 1
    assert (arrival.fact.node, arrival.fact.holdings) == ("", ())
    assert workload.policy == Policy(device_policy="spread")
    assert [node.name for node in workload.nodes] == ["n1"]


def test_the_whole_of_a_busy_log_is_read() -> None:
    log = busy_cluster()
    workload = from_records(log.records, "log.jsonl")
    assert {node.name for node in workload.nodes} == {
        name for name, node in log.state.nodes.items() if node.fact is not None
    }
    assert workload.ours
    assert all(not arrival.fact.node for arrival in workload.ours)
    assert min(arrival.created_s for arrival in workload.arrivals) == 0


@pytest.mark.parametrize("keep", [0, 1])
def test_a_log_without_pods_or_nodes_is_refused(keep: int) -> None:
    log = Recorder()
    log.policy(Policy())
    log.node("n1")
    with pytest.raises(WorkloadError, match=r"log\.jsonl: holds no (nodes|pods); wanted: a whole"):
        from_records(log.records[: 1 + keep], "log.jsonl")


def test_what_cannot_be_read_is_passed_over() -> None:
    log = busy_cluster()
    broken = Record(log.seq + 1, "allot.log.pod.x", b"{", 0, "x")
    assert from_records([*log.records, broken], "l") == from_records(log.records, "l")
