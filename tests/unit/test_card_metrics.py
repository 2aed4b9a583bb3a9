"""Gauges of cards are read off the books: exact, complete, and gone with their node."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.metrics.cards import Gauge, card_gauges, own_gauges, volcano_gauges
from allotment_proto.device_config import DeviceConfig, Nvidia
from allotment_proto.events import DevicesConfigured, NodeGone, PodGone
from allotment_proto.facts import Geometry, Holding, Inventory, Profile
from tests.build import MODEL, card, holding, node, pod, policy, state_of

GIB = 1 << 30
MIB = 1 << 20
PREFIX = "volcano_vgpu_device_"
TABLE = (
    Geometry("group1", (Profile("1g.5gb", 4_864, 7),)),
    Geometry("group2", (Profile("3g.20gb", 19_968, 1), Profile("1g.5gb", 4_864, 2))),
)


def rows(gauges: list[Gauge], name: str) -> Any:
    (found,) = (gauge for gauge in gauges if gauge.name == name)
    return found.rows


def volcano(state: ClusterState, name: str) -> Any:
    return rows(volcano_gauges(state), PREFIX + name)


def on(uid: str, *holdings: Holding, **changes: Any) -> Any:
    return pod(uid, **{"node": "n1", "holdings": holdings, **changes})


def test_volcanos_gauges_by_name_label_and_value() -> None:
    state = state_of(
        policy(),
        node("n1", 2),
        on("a", holding("GPU-0", 3_000, 30), holding("GPU-1", 1_000, 10)),
        on("b", holding("GPU-0", 500, 0)),
    )
    limit, shared, memory, cores, pod_memory, pod_cores = volcano_gauges(state)
    assert [g.name for g in (limit, shared, memory, cores, pod_memory, pod_cores)] == [
        "volcano_vgpu_device_memory_limit",
        "volcano_vgpu_device_shared_number",
        "volcano_vgpu_device_allocated_memory",
        "volcano_vgpu_device_allocated_cores",
        "volcano_vgpu_device_memory_allocation_for_a_certain_pod",
        "volcano_vgpu_device_core_allocation_for_a_certain_pod",
    ]
    assert limit.labels == ("devID", "NodeName")
    assert pod_memory.labels == ("devID", "NodeName", "podName")
    assert limit.rows == {("GPU-0", "n1"): 16_000, ("GPU-1", "n1"): 16_000}
    assert shared.rows == {("GPU-0", "n1"): 2, ("GPU-1", "n1"): 1}
    assert memory.rows == {("GPU-0", "n1"): 3_500, ("GPU-1", "n1"): 1_000}
    assert cores.rows == {("GPU-0", "n1"): 30, ("GPU-1", "n1"): 10}
    assert pod_memory.rows == {
        ("GPU-0", "n1", "pod-a"): 3_000,
        ("GPU-1", "n1", "pod-a"): 1_000,
        ("GPU-0", "n1", "pod-b"): 500,
    }
    assert pod_cores.rows == {
        ("GPU-0", "n1", "pod-a"): 30,
        ("GPU-1", "n1", "pod-a"): 10,
        ("GPU-0", "n1", "pod-b"): 0,
    }


def test_what_is_gone_leaves_no_series() -> None:
    state = state_of(policy(), node("n1"), on("a", holding()))
    apply(state, PodGone(uid="a", namespace="default", name="pod-a", rv=2), 4)
    assert volcano(state, "allocated_memory") == {("GPU-0", "n1"): 0, ("GPU-1", "n1"): 0}
    assert volcano(state, "memory_allocation_for_a_certain_pod") == {}
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=2), 5)
    assert not any(gauge.rows for gauge in card_gauges(state))


def test_a_pod_of_several_containers_counts_once_and_all_that_it_has() -> None:
    shares = (holding(), Holding("vgpu", 1, "GPU-0", 1_000, 5))
    state = state_of(policy(), node("n1"), on("a", *shares))
    assert volcano(state, "shared_number")[("GPU-0", "n1")] == 1
    assert volcano(state, "memory_allocation_for_a_certain_pod") == {
        ("GPU-0", "n1", "pod-a"): 5_000
    }


def test_pods_of_one_name_are_told_apart_by_namespace_if_it_is_a_label() -> None:
    same: dict[str, Any] = {"name": "train-0", "holdings": (holding(),), "node": "n1"}
    pods = [pod("a", namespace="x", **same), pod("b", namespace="y", **same)]
    state = state_of(policy(), node("n1"), *pods)
    gauge = volcano_gauges(state)[4]
    assert gauge.rows == {("GPU-0", "n1", "train-0"): 8_000}
    apply(state, policy(namespace_in_metrics=True), 5)
    gauge = volcano_gauges(state)[4]
    assert gauge.labels == ("devID", "NodeName", "podName", "podNamespace")
    assert gauge.rows == {
        ("GPU-0", "n1", "train-0", "x"): 4_000,
        ("GPU-0", "n1", "train-0", "y"): 4_000,
    }


def mig_node() -> Any:
    cards = tuple(card(n, memory_mib=40_960, mode="mig", table=0) for n in range(2))
    return node("n1", inventories=(Inventory("vgpu", "mig", cards, (TABLE,)),))


def test_of_a_mig_card_the_instances_count() -> None:
    asked = Holding("vgpu", 0, "GPU-0", 1_000, 10, "group2-1")
    state = state_of(policy(), mig_node(), on("a", asked))
    assert volcano(state, "allocated_memory")[("GPU-0", "n1")] == 4_864
    assert volcano(state, "memory_allocation_for_a_certain_pod") == {
        ("GPU-0", "n1", "pod-a"): 4_864
    }
    gauges = own_gauges(state)
    assert rows(gauges, "allot_gpu_memory_reserved_bytes")[("n1", "GPU-0", MODEL)] == 4_864 * MIB
    assert rows(gauges, "allot_largest_free_memory_bytes") == {(MODEL,): 19_968 * MIB}
    cut = Holding("vgpu", 0, "GPU-1", 1_000, 10, "group1-0")
    big = Holding("vgpu", 0, "GPU-0", 10_000, 10, "group2-0")
    apply(state, on("b", cut), 4)
    apply(state, on("c", big), 5)
    assert rows(own_gauges(state), "allot_largest_free_memory_bytes") == {(MODEL,): 4_864 * MIB}


def test_our_own_gauges_are_in_bytes_and_parts_of_one() -> None:
    state = state_of(policy(), node("n1"), on("a", holding("GPU-0", 4_096, 25)))
    gauges = {gauge.name: gauge for gauge in own_gauges(state)}
    capacity = gauges["allot_gpu_memory_capacity_bytes"]
    assert capacity.labels == ("node", "device", "model")
    assert capacity.rows[("n1", "GPU-1", MODEL)] == 16_000 * MIB
    assert gauges["allot_gpu_memory_reserved_bytes"].rows == {
        ("n1", "GPU-0", MODEL): 4 * GIB,
        ("n1", "GPU-1", MODEL): 0,
    }
    compute = gauges["allot_gpu_compute_reserved_ratio"]
    assert {at: value / compute.divisor for at, value in compute.rows.items()} == {
        ("n1", "GPU-0"): 0.25,
        ("n1", "GPU-1"): 0.0,
    }
    assert gauges["allot_largest_free_memory_bytes"].rows == {(MODEL,): 16_000 * MIB}


def test_the_unit_of_registered_memory_counts_for_bytes_only() -> None:
    config = DeviceConfig(nvidia=Nvidia(memory_factor=10))
    configured = DevicesConfigured(config=config, source="test", text_sha256="")
    state = state_of(policy(), configured, node("n1", [card(0, memory_mib=1_600)]))
    assert volcano(state, "memory_limit") == {("GPU-0", "n1"): 1_600}
    capacity = rows(own_gauges(state), "allot_gpu_memory_capacity_bytes")
    assert capacity == {("n1", "GPU-0", MODEL): 16_000 * MIB}


@pytest.mark.parametrize(
    "changes", [{"healthy": False}, {"slots": 0}, {"memory_mib": 0}], ids=["sick", "full", "empty"]
)
def test_cards_that_take_nobody_offer_nothing(changes: dict[str, Any]) -> None:
    state = state_of(policy(), node("n1", [card(0, **changes)]))
    assert rows(own_gauges(state), "allot_largest_free_memory_bytes") == {(MODEL,): 0}


def test_other_families_have_our_gauges_only() -> None:
    shared = tuple(card(n, id=str(n), model="shared GPU", slots=1_000) for n in range(2))
    plain = node("n1", inventories=(Inventory("gpushare", "", shared),))
    state = state_of(policy(), plain, on("a", Holding("gpushare", 0, "1", 4_096, 0)))
    assert not any(gauge.rows for gauge in volcano_gauges(state))
    reserved = rows(own_gauges(state), "allot_gpu_memory_reserved_bytes")
    assert reserved == {("n1", "0", "shared GPU"): 0, ("n1", "1", "shared GPU"): 4 * GIB}


def test_a_scrape_shows_the_state_as_it_is_then() -> None:
    metrics = ServiceMetrics("scorer")
    state = state_of(policy(), node("n1"))
    metrics.expose_gauges(lambda: card_gauges(state), card_gauges(ClusterState()))

    def scraped() -> dict[str, list[tuple[dict[str, str], float]]]:
        body, _ = metrics.encode("")
        return {
            family.name: [(sample.labels, sample.value) for sample in family.samples]
            for family in text_string_to_metric_families(body.decode())
        }

    assert scraped()[f"{PREFIX}shared_number"] == [
        ({"devID": "GPU-0", "NodeName": "n1"}, 0.0),
        ({"devID": "GPU-1", "NodeName": "n1"}, 0.0),
    ]
    apply(state, on("a", holding("GPU-1")), 3)
    found = scraped()
    labels = {"devID": "GPU-1", "NodeName": "n1", "podName": "pod-a"}
    assert found[f"{PREFIX}core_allocation_for_a_certain_pod"] == [(labels, 25.0)]
    assert ({"node": "n1", "device": "GPU-1"}, 0.25) in found["allot_gpu_compute_reserved_ratio"]
    with pytest.raises(ValueError, match="memory_limit"):
        metrics.expose(f"{PREFIX}memory_limit", "again", lambda: 0)
