"""Owners edit and delete the annotations of their bound pods: no card is handed out twice for it,
and none is kept from others by a pod that asks for none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from allotment_proto.facts import Holding
from tests.e2e.audit import fold, held
from tests.e2e.stack import ROLES, Json, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- name: v
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 32
  memory: 128Gi
- name: s
  kind: gpushare
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000}
"""
IDS = "volcano.sh/vgpu-ids-new"
MERGE_PATCH = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("edited"), NODES) as running:
        yield running


@pytest.fixture(autouse=True)
def _leave_it_empty(stack: Stack) -> Iterator[None]:
    yield
    stack.leave_empty()
    stack.until(lambda: fold(stack.records()).pods == {}, "the log knows it")


def run(stack: Stack, *names: str) -> None:
    def all_run() -> bool:
        return all(stack.pod(name)["status"].get("phase") == "Running" for name in names)

    stack.until(all_run, f"{', '.join(names)} run")


def annotate(stack: Stack, name: str, **annotations: str | None) -> None:
    body = {"metadata": {"annotations": annotations}}
    stack.call("PATCH", f"{PODS}/{name}", body, MERGE_PATCH)


def is_told(stack: Stack, name: str) -> None:
    """Until the log has the edited pod, and its owner was told that it counts for nothing."""
    stack.until(lambda: bool(stack.events(name, "ClaimMismatch")), "the mismatch was told")


def mismatches(stack: Stack) -> dict[str, float]:
    url = f"http://{stack.processes['binder'].announced['http']}/metrics"
    with urlopen(url, timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line.split() for line in lines if line.startswith("allot_claim_mismatches{")]
    return {name.partition('"')[2].partition('"')[0]: float(value) for name, value in rows}


def incidents(stack: Stack) -> list[Json]:
    return list(stack.books()["incidents"])


def card_of(pod: Json) -> str:
    return held(pod)[0][0]


@pytest.mark.parametrize("edit", ["to-less", "to-the-other-card", "away", "replaced"])
def test_the_card_of_an_edited_pod_is_nobody_elses(stack: Stack, edit: str) -> None:
    name = f"f1-{edit}"
    stack.create_pod(name, vgpu(12000))
    run(stack, name)
    before = stack.pod(name)
    mine = card_of(before)
    other = next(
        card["card"]
        for card in stack.books()["cards"]
        if card["card"] != mine and card["family"] == "vgpu"
    )
    if edit == "to-less":
        annotate(stack, name, **{IDS: f"{mine},NVIDIA,1,0:"})
    elif edit == "to-the-other-card":
        annotate(stack, name, **{IDS: f"{other},NVIDIA,12000,0:"})
    elif edit == "away":
        annotate(stack, name, **{IDS: None})
    else:
        before["metadata"]["annotations"] = {}
        stack.call("PUT", f"{PODS}/{name}", before)
    is_told(stack, name)
    stack.create_pod("f2", vgpu(15000))
    run(stack, "f2")
    assert card_of(stack.pod("f2")) == other
    assert incidents(stack) == []
    said = stack.events(name, "ClaimMismatch")[0]
    assert f"{mine} (12000 MiB)" in said
    assert " claim" in said
    assert mismatches(stack) == {"v": 1}


def test_an_index_that_is_edited_frees_no_card(stack: Stack) -> None:
    stack.create_pod("e1", {"volcano.sh/gpu-memory": "12000"})
    run(stack, "e1")
    mine = stack.pod("e1")["metadata"]["annotations"]["volcano.sh/gpu-index"]
    other = "1" if mine == "0" else "0"
    annotate(stack, "e1", **{"volcano.sh/gpu-index": other})
    is_told(stack, "e1")
    stack.create_pod("e2", {"volcano.sh/gpu-memory": "15000"})
    run(stack, "e2")
    assert stack.pod("e2")["metadata"]["annotations"]["volcano.sh/gpu-index"] == other
    assert incidents(stack) == []


def test_a_pod_without_a_device_in_its_limits_keeps_no_card_from_others(stack: Stack) -> None:
    cards = [c["card"] for c in stack.books()["cards"] if c["family"] == "vgpu"]
    claim = "".join(f"{card},NVIDIA,16000,100:" for card in cards)
    stack.call(
        "POST",
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "greedy", "annotations": {IDS: claim}},
            "spec": {
                "nodeName": "v",
                "schedulerName": "somebody-elses",
                "containers": [
                    {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "10m"}}}
                ],
            },
        },
    )
    is_told(stack, "greedy")
    assert "the pod's limits ask for no card" in stack.events("greedy", "ClaimMismatch")[0]
    stack.create_pod("honest", vgpu(number=2))
    run(stack, "honest")
    assert incidents(stack) == []


def test_a_pod_whose_claim_nobody_can_read_leaves_its_node_to_the_others(stack: Stack) -> None:
    """A tenant puts a pod onto the node himself, with what the plugin serves it by, and garbage for
    everybody else: what the plugin goes by counts, and the rest is given out.
    """
    cards = [c["card"] for c in stack.books()["cards"] if c["family"] == "vgpu"]
    claim = f"{cards[0]},NVIDIA,1000,5:"
    served = {"volcano.sh/vgpu-node": "v", "volcano.sh/devices-to-allocate": claim}
    stack.call(
        "POST",
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "garbage", "annotations": {IDS: "x;y", **served}},
            "spec": {
                "nodeName": "v",
                "schedulerName": "nobody",
                "containers": [
                    {"name": "c", "image": "i:1", "resources": {"limits": vgpu(1000, cores=5)}}
                ],
            },
        },
    )
    stack.until(lambda: bool(stack.events("garbage", "RecordForged")), "its owner was told")
    run(stack, "garbage")
    node = fold(stack.records()).nodes["v"]
    assert node.blocked is None
    assert [c.free_memory_mib for c in node.ledgers["vgpu"].cards] == [15_000, 16_000]
    stack.create_pod("honest", vgpu(15000, number=2))
    run(stack, "honest")
    stack.create_pod("late", vgpu(1000))
    run(stack, "late")
    assert card_of(stack.pod("late")) == cards[1]
    assert incidents(stack) == []


def test_deleting_our_marks_moves_nothing(stack: Stack) -> None:
    """Sequence, node, phase and times are the pod's owner's to edit as well."""
    marks = ("allotment.dev/log-seq", "volcano.sh/vgpu-node", "volcano.sh/vgpu-time")
    stack.create_pod("m1", vgpu(12000))
    run(stack, "m1")
    uid = stack.pod("m1")["metadata"]["uid"]
    booked = fold(stack.records()).pods[uid].allocation
    edits = {**dict.fromkeys(marks, None), "volcano.sh/bind-phase": "allocating"}
    body = {"metadata": {"annotations": edits, "labels": {"edited": "yes"}}}
    stack.call("PATCH", f"{PODS}/m1", body, MERGE_PATCH)
    stack.until(
        lambda: ("edited", "yes") in fold(stack.records()).pods[uid].fact.labels,
        "the log has the edited pod",
    )
    now = fold(stack.records()).pods[uid].allocation
    assert booked is not None
    assert now is not None
    assert (now.node, now.holdings, now.seq, now.phase) == (
        booked.node,
        booked.holdings,
        booked.seq,
        booked.phase,
    )
    stack.create_pod("m2", vgpu(15000))
    run(stack, "m2")
    assert incidents(stack) == []


def test_after_the_log_is_lost_pods_hold_what_they_claim_within_their_limits(
    tmp_path: Path,
) -> None:
    """Without a log annotations are all there is, and some were edited before it was lost."""
    with Stack(tmp_path, NODES) as stack:
        part = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory-percentage": "25"}
        stack.create_pod("a", vgpu(12000))
        stack.create_pod("b", part)
        stack.create_pod("m", {"volcano.sh/gpu-memory": "12000"})
        run(stack, "a", "b", "m")
        before = books_of(stack)
        mine = card_of(stack.pod("a"))
        cards = [c["card"] for c in stack.books()["cards"] if c["family"] == "vgpu"]
        claim = "".join(f"{card},NVIDIA,16000,100:" for card in sorted(cards, key=mine.__ne__))
        annotate(stack, "a", **{IDS: claim})
        is_told(stack, "a")
        for role in ROLES:
            stack.kill(role)
        stack.nats.stop()
        shutil.rmtree(stack.nats.directory)
        stack.nats.start()
        stack.call("DELETE", "/api/v1/namespaces/allotment-system/configmaps/allotment-log")
        for role in ROLES:
            stack.start(role, wait=False)
        for role in ROLES:
            stack.processes[role].announce()
            stack.until(lambda role=role: stack.is_ready(role), f"{role} is ready")  # type: ignore[misc]
        stack.until(lambda: books_of(stack) == before, "the books are what they were")
        assert all(pod.allocation.seq == 0 for pod in bookings(stack).values())
        stack.create_pod("next", vgpu(15000))
        run(stack, "next")
        assert {card_of(stack.pod(name)) for name in ("a", "next")} == set(cards)
        assert incidents(stack) == []


def bookings(stack: Stack) -> dict[str, Any]:
    """By name, the pods that hold something as the log says."""
    pods = fold(stack.records()).pods.values()
    return {pod.fact.name: pod for pod in pods if pod.allocation is not None}


def books_of(stack: Stack) -> dict[str, tuple[Holding, ...]]:
    return {name: pod.allocation.holdings for name, pod in bookings(stack).items()}
