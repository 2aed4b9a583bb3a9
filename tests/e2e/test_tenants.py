"""Pods of one tenant that fit nowhere, with many rules about everybody, and another tenant."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment_local.definitions import read_definitions
from allotment_proto.events import Decided, PodObserved
from tests.e2e.stack import ROLES, Json, Stack, vgpu
from tests.e2e.test_gangs import DEFINITIONS, events

NODES = """
- prefix: v
  count: 6
  gpus: {model: Tesla T4, count: 8, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
HOSTILE, PROBES = 150, 8
TERMS_EACH = {"required": 12, "preferred": 12}
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
PODS = "/api/v1/namespaces/{}/pods"


@pytest.fixture(params=["one by one", "by queues"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, NODES, services=()) as running:
        if request.param == "by queues":
            for definition in read_definitions():
                running.call("POST", DEFINITIONS, definition)
            running.call("POST", QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
        for role in ROLES:
            running.start(role)
        running.until(lambda: all(running.is_ready(role) for role in ROLES), "all are ready")
        yield running


def hostile(number: int, terms: dict[str, int]) -> Json:
    def about_everybody(term: int) -> Json:
        told_apart = {"key": "app", "operator": "NotIn", "values": [f"{number}-{term}"]}
        return {
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [told_apart]},
        }

    rules = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            about_everybody(term) for term in range(terms["required"])
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": about_everybody(1000 + term)}
            for term in range(terms["preferred"])
        ],
    }
    container = {"name": "c", "image": "i:1", "resources": {"limits": vgpu(10_000_000)}}
    spec = {
        "schedulerName": "allotment",
        "containers": [container],
        "affinity": {"podAntiAffinity": rules},
    }
    return {"metadata": {"name": f"hostile-{number}"}, "spec": spec}


def bound_after_s(stack: Stack, name: str) -> float:
    begin = time.monotonic()
    stack.create_pod(name, vgpu(100, 1))
    stack.until(lambda: bool(stack.node_of(name)), f"{name} is bound")
    return time.monotonic() - begin


def test_another_tenants_pod_is_decided_in_its_first_cycles(stack: Stack) -> None:
    stack.call("POST", "/api/v1/namespaces", {"metadata": {"name": "hostile"}})
    before = statistics.median(bound_after_s(stack, f"before-{n}") for n in range(PROBES))
    for number in range(HOSTILE):
        stack.call("POST", PODS.format("hostile"), hostile(number, TERMS_EACH))
    meanwhile = statistics.median(bound_after_s(stack, f"meanwhile-{n}") for n in range(PROBES))
    for number in range(PROBES):
        stack.delete_pod(f"before-{number}")  # room appears, and all that waits is due again
    after = statistics.median(bound_after_s(stack, f"after-{n}") for n in range(PROBES))
    print(f"\ncreated to bound, median: {before:.3f} s, {meanwhile:.3f} s, {after:.3f} s")
    for name in [f"{when}-{n}" for when in ("meanwhile", "after") for n in range(PROBES)]:
        assert cycles_until_decided(stack, name) <= 3, name
    too_many = hostile(HOSTILE, {"required": 60, "preferred": 40})
    stack.call("POST", PODS.format("hostile"), too_many)
    stack.until(
        lambda: "100 rules about other pods; at most 32 are heeded" in refusal(stack, HOSTILE),
        "a pod with more rules hears how many it may have",
    )


def cycles_until_decided(stack: Stack, name: str) -> int:
    """How many decisions there were from when the log knew the pod to the one that placed it."""
    uid = stack.pod(name)["metadata"]["uid"]
    known, decisions = False, 0
    for event in events(stack):
        if isinstance(event, PodObserved) and event.uid == uid:
            known = True
        elif isinstance(event, Decided) and known:
            decisions += 1
            if any(placement.uid == uid for placement in event.placements):
                return decisions
    raise AssertionError(f"{name} was not placed")


def refusal(stack: Stack, number: int) -> str:
    pod = stack.call("GET", f"{PODS.format('hostile')}/hostile-{number}")
    conditions = pod["status"].get("conditions") or []
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")
