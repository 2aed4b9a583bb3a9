"""Kubernetes JSON → facts: nodes with cards, broken ones too, and where pods may run."""

import pytest

from allotment.core.explain.rows.views import node_problems
from allotment_proto.device_config import DeviceConfig, NodeConfig, Nvidia
from allotment_proto.facts import (
    Expression,
    NodeTerm,
    PodRequest,
    Taint,
    Toleration,
)
from allotment_watcher.__main__ import node_device_problems
from allotment_watcher.normalise import REQUEST_BYTES_MAX
from tests.build import state_of
from tests.unit.kube_json import (
    GIB,
    REGISTER,
    TWO_CARDS,
    VGPU_AMOUNTS,
    container,
    node,
    node_json,
    pod_json,
    refused,
    seen,
)

UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"


def test_constraints_are_read_in_all_their_forms() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {"matchExpressions": [{"key": "gpu", "operator": "Exists", "values": None}]},
        {},
    ]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    constraints = seen(
        pod_json(
            container(),
            nodeSelector={"b": "2", "a": "1"},
            affinity={"nodeAffinity": {key: {"nodeSelectorTerms": terms}}, "podAffinity": {}},
            tolerations=[{"operator": "Exists"}, {"key": "gpu", "effect": "NoSchedule"}],
        )
    ).request.constraints
    assert constraints.node_selector == (("a", "1"), ("b", "2"))
    assert constraints.affinity == (
        NodeTerm((Expression("zone", "In", ("a", "b")),)),
        NodeTerm((), (Expression("metadata.name", "In", ("n1",)),)),
        NodeTerm((Expression("gpu", "Exists", ()),)),
        NodeTerm(()),
    )
    assert constraints.tolerations == (
        Toleration("", "Exists", "", ""),
        Toleration("gpu", "Equal", "", "NoSchedule"),
    )


def test_an_affinity_too_large_for_the_log_is_the_pods_own_problem() -> None:
    values = [f"value-{number}" for number in range(20_000)]
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {key: {"nodeSelectorTerms": [term]}}}
    fact = seen(pod_json(container(), affinity=affinity))
    refused(fact, "constraints", f"at most {REQUEST_BYTES_MAX}")
    assert fact.request == PodRequest()


def test_a_node_with_cards() -> None:
    fact = node(node_json({REGISTER: TWO_CARDS}, VGPU_AMOUNTS))
    assert (fact.name, fact.uid, fact.rv, fact.ready) == ("n.example", "uid-n", 5, True)
    assert fact.labels == (("arch", "amd64"), ("zone", "a"))
    assert (fact.cpu_milli, fact.memory_bytes, fact.pods) == (8000, 32 * GIB, 110)
    assert fact.extended == (
        ("volcano.sh/vgpu-cores", 200),
        ("volcano.sh/vgpu-memory", 32000),
        ("volcano.sh/vgpu-number", 20),
    )
    (inventory,) = fact.inventories
    assert [(c.id, c.healthy) for c in inventory.cards] == [("GPU-a", True), ("GPU-b", False)]
    assert fact.problems == ()


@pytest.mark.parametrize(
    ("register", "words"),
    [
        ("", "holds no card"),
        ("garbage", "holds no card"),
        ("GPU-a,10,16000:", "has 3 fields"),
        (TWO_CARDS + TWO_CARDS, "card id GPU-a occurs twice"),
        (",10,16000,NVIDIA,true,hami-core:", "has no card id"),
    ],
)
def test_a_broken_register_string_is_the_nodes_problem(register: str, words: str) -> None:
    fact = node(node_json({REGISTER: register}, VGPU_AMOUNTS))
    assert fact.inventories == ()
    assert [problem.code for problem in fact.problems] == ["BrokenRegister"]
    assert words in fact.problems[0].message


COUNTED = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("listed", "in_all", "is_twice"),
    [("2", None, True), ("2", "2", True), ("2", "4", False), ("0", None, False)],
)
def test_cards_that_another_plugin_counts_are_listed_twice(
    listed: str, in_all: str | None, is_twice: bool
) -> None:
    """Unless the node says that it has enough for both."""
    document = node_json({REGISTER: TWO_CARDS}, {**VGPU_AMOUNTS, COUNTED: listed})
    if in_all is not None:
        document["metadata"]["labels"][f"{COUNTED}.count"] = in_all
    fact = node(document)
    assert fact.listed_twice == (((COUNTED, "vgpu"),) if is_twice else ())
    said = [problem for problem in fact.problems if problem.code == "CardsListedTwice"]
    assert [problem.place for problem in said] == [f"status.allocatable {COUNTED}"] * is_twice


def test_a_share_under_the_name_of_whole_cards_is_no_second_listing() -> None:
    config = DeviceConfig(nvidia=Nvidia(count_name=COUNTED))
    amounts = {**VGPU_AMOUNTS, COUNTED: VGPU_AMOUNTS["volcano.sh/vgpu-number"]}
    assert node(node_json({REGISTER: TWO_CARDS}, amounts), config).listed_twice == ()


def test_a_dead_device_plugin_takes_the_cards_away() -> None:
    dead = {**VGPU_AMOUNTS, "volcano.sh/vgpu-number": "0"}
    fact = node(node_json({REGISTER: TWO_CARDS}, dead))
    assert fact.inventories == ()
    assert "is the device plugin running?" in fact.problems[0].message


def test_shared_cards_come_from_capacity_and_unhealthy_ones_are_marked() -> None:
    amounts = {"volcano.sh/gpu-memory": "32000", "volcano.sh/gpu-number": "2"}
    fact = node(node_json({"volcano.sh/gpu-unhealthy-ids": "1, x"}, amounts))
    (inventory,) = fact.inventories
    assert [(c.memory_mib, c.healthy) for c in inventory.cards] == [(16000, True), (16000, False)]
    assert [c.unhealthy_by for c in inventory.cards] == ["", f"annotation {UNHEALTHY}"]
    assert [problem.code for problem in fact.problems] == ["BrokenIndexList"]


def test_a_shared_card_that_is_named_by_uuid_may_be_any_of_its_node() -> None:
    amounts = {"volcano.sh/gpu-memory": "32000", "volcano.sh/gpu-number": "2"}
    fact = node(node_json({"volcano.sh/gpu-unhealthy-ids": "GPU-xxxx-1234"}, amounts))
    assert [card.healthy for card in fact.inventories[0].cards] == [False, False]
    (problem,) = fact.problems
    assert problem.code == "UnhealthyCardUnknown"
    assert "index" in problem.message


@pytest.mark.parametrize(
    ("ids", "healthy", "unknown"),
    [
        ("0", [False, True], []),
        (" GPU-b ,", [True, False], []),
        ("GPU-a,1", [False, False], []),
        ("GPU-A, 7, x", [True, True], ["'GPU-A'", "'x'", "'7'"]),
        ("", [True, True], []),
    ],
)
def test_a_card_that_is_named_unhealthy_takes_nothing(
    ids: str, healthy: list[bool], unknown: list[str]
) -> None:
    register = TWO_CARDS.replace("false", "true")
    fact = node(node_json({REGISTER: register, UNHEALTHY: ids}, VGPU_AMOUNTS))
    cards = fact.inventories[0].cards
    assert [card.healthy for card in cards] == healthy
    named = ["" if is_healthy else f"annotation {UNHEALTHY}" for is_healthy in healthy]
    assert [card.unhealthy_by for card in cards] == named
    assert [p.code for p in fact.problems] == ["UnhealthyCardUnknown"] * len(unknown)
    assert all(name in p.message for name, p in zip(unknown, fact.problems, strict=True))


def test_broken_amounts_of_a_node_count_as_nothing_and_are_named() -> None:
    fact = node(node_json(None, {"cpu": "many", "x.io/y": "-3", "memory": 1024.5}))
    assert (fact.cpu_milli, fact.memory_bytes) == (0, 1025)
    assert fact.extended == (("x.io/y", 0),)
    assert [problem.place for problem in fact.problems] == [
        "status.allocatable cpu",
        "status.allocatable x.io/y",
    ]


def test_taints_cordon_and_readiness() -> None:
    spec = {
        "unschedulable": True,
        "taints": [
            {"key": "z", "effect": "NoExecute", "value": None},
            {"key": "a", "effect": "NoSchedule", "value": "1", "timeAdded": "x"},
        ],
    }
    unready = [{"type": "Ready", "status": "Unknown"}, {"type": "MemoryPressure", "status": "True"}]
    fact = node(node_json(spec=spec, conditions=unready))
    assert fact.unschedulable
    assert not fact.ready
    assert fact.taints == (Taint("a", "1", "NoSchedule"), Taint("z", "", "NoExecute"))


def test_a_heartbeat_is_not_news() -> None:
    first = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]
    later = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]
    assert node(node_json(conditions=first)) == node(node_json(conditions=later))


def test_a_bare_node_is_a_node() -> None:
    fact = node({"metadata": {"name": "n", "uid": "u"}, "spec": None, "status": None})
    assert (fact.cpu_milli, fact.pods, fact.inventories, fact.problems) == (0, 0, (), ())


def test_a_node_that_disagrees_with_its_configuration_says_so_wherever_it_is_shown() -> None:
    config = DeviceConfig(
        nvidia=Nvidia(split_count=4), nodes=(NodeConfig("n.example", mode="mig"),)
    )
    fact = node(node_json({REGISTER: TWO_CARDS}, VGPU_AMOUNTS), config)
    places = ["operatingmode", "deviceSplitCount"]
    assert [problem.place for problem in fact.problems] == places
    state = state_of(fact)
    shown = node_problems(state, state.nodes["n.example"])
    assert [p.place for p in shown if p.code == "DeviceConfigMismatch"] == places
    assert node_device_problems(state) == {("n.example", "DeviceConfigMismatch"): 2}


def test_the_configuration_of_one_node_concerns_no_other() -> None:
    config = DeviceConfig(nodes=(NodeConfig("other", hidden_ids=("GPU-a",)),))
    assert node(node_json({REGISTER: TWO_CARDS}, VGPU_AMOUNTS), config).problems == ()
