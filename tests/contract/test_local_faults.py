"""Faults of fake nodes, asked for by annotation: what shows of them, and what does not."""

from collections.abc import Callable

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.apiserver.resources import LEASES, NODES, PODS
from allotment_local.nodes.annotations import FAULT, RUN_DURATION, START_DELAY
from allotment_local.nodes.objects import card_id
from allotment_proto.volcano import keys, vgpu


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("name", [lambda: "1", lambda: card_id("v", 1)])
def test_a_card_can_be_unhealthy_and_recover(world: World, name: Callable[[], str]) -> None:
    before = world.node("v")
    world.annotate_node("v", f"card-unhealthy={name()}")
    text = world.node("v")["metadata"]["annotations"][keys.NODE_VGPU_REGISTER]
    assert [card.healthy for card in vgpu.decode_register(text).cards] == [True, False]
    assert world.allocatable("v", keys.VGPU_NUMBER) == "2"
    assert world.allocatable("v", keys.VGPU_MEMORY) == "16000"
    assert world.allocatable("v", keys.VGPU_CORES) == "100"
    world.annotate_node("v", None)
    after = world.node("v")
    assert after["status"] == before["status"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_other_families_show_broken_cards_their_own_way(world: World) -> None:
    world.annotate_node("s", "card-unhealthy=0,card-unhealthy=1")
    assert world.node("s")["metadata"]["annotations"][keys.GPU_UNHEALTHY_IDS] == "0,1"
    assert world.allocatable("s", keys.GPU_MEMORY) == "0"
    world.annotate_node("s", None)
    assert keys.GPU_UNHEALTHY_IDS not in world.node("s")["metadata"]["annotations"]
    world.annotate_node("w", "card-unhealthy=0")
    assert world.allocatable("w", "nvidia.com/gpu") == "1"
    world.pod("p", {"nvidia.com/gpu": 1})
    world.bind("p", "w")
    world.pass_time()
    assert world.used("w") == {0: (0, 0, 0), 1: (1, 0, 100)}


def test_containers_exit_at_once_on_a_card_or_by_themselves(world: World) -> None:
    world.annotate_node("v", "exits=0")
    for index, name in enumerate("ab"):
        world.pod(name, ask())
        world.bind_vgpu(name, (index, 4000, 25))
    world.pod("c", ask(), {FAULT: "exits"})
    world.bind_vgpu("c", (1, 4000, 25))
    world.pass_time(5)
    assert [world.phase(name) for name in "abc"] == ["Failed", "Running", "Failed"]
    (status,) = world.get("a")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 1
    assert world.incidents() == []


def test_a_dead_plugin_offers_nothing(world: World) -> None:
    world.annotate_node("v", "plugin-dies")
    assert world.allocatable("v", keys.VGPU_NUMBER) == "0"
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"
    world.annotate_node("v", None)
    assert world.allocatable("v", keys.VGPU_NUMBER) == "4"


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while(world: World) -> None:
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    world.annotate_node("v", "node-gone")
    assert world.store.find(NODES, "", "v") is None
    assert world.store.find(LEASES, "kube-node-lease", "v") is None
    world.pod("q", ask())
    world.bind_vgpu("q", (1, 4000, 25))
    world.pass_time(1)
    assert world.phase("p") == "Running"
    assert world.phase("q") == "Pending"
    world.pass_time(10)
    assert world.store.list(PODS)[0] == []
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}


def test_wrong_values_are_events_and_nothing_else(world: World) -> None:
    world.pod("p", ask(), {FAULT: "burns", RUN_DURATION: "soon", START_DELAY: "-1s"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.annotate_node("v", "card-unhealthy=9, smoke")
    world.annotate_node("v", "card-unhealthy=9, smoke, plugin-dies")
    world.annotate_node("v", None)
    world.annotate_node("c", "card-unhealthy=0")
    world.pass_time(5)
    assert world.phase("p") == "Running"
    said = world.events()
    assert sorted(name for name, reason, _ in said if reason == "InvalidAnnotation") == [
        *("c", "p", "p", "p", "v", "v"),
    ]
    assert (
        "p",
        "InvalidAnnotation",
        "annotation allotment.dev/run-duration: 'soon' is ignored; "
        "wanted: a duration like 500ms, 5s, 2m or 1h30m, up to 30 days",
    ) in said
