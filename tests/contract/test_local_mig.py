"""The fake vGPU plugin in modes mig and mps, and what it tells containers."""

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.nodes.annotations import FAULT
from allotment_local.nodes.objects import card_id
from allotment_local.nodes.plugin_vgpu import mig_uuid
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys, mig_tables, vgpu

NODES = """
- name: m
  gpus: {model: NVIDIA A100-SXM4-80GB, count: 2, memory_mib: 81920, slots: 7, mode: mig}
- name: p
  gpus: {model: NVIDIA L40S, count: 1, memory_mib: 46068, slots: 10, mode: mps}
- {name: v, gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 4}}
"""
CARD = card_id("m", 0)


@pytest.fixture
def world() -> World:
    return World(NODES)


def instance(name: str, need_mib: int = 5000, card: str = CARD) -> Holding:
    return Holding(vgpu.FAMILY, 0, card, need_mib, 0, name)


def put(world: World, pod: str, *holdings: Holding) -> None:
    """Create a pod, bind it to these instances, and let the plugin serve it."""
    world.pod(pod, ask(len(holdings), 5000, 0))
    world.bind_holdings(pod, "m", *holdings)
    world.pass_time()


def test_an_instance_is_handed_out_by_its_uuid(world: World) -> None:
    put(world, "a", instance("group1-3"))
    assert world.phase("a") == "Running"
    assert world.annotation("a", keys.BIND_PHASE) == keys.PHASE_SUCCESS
    assert world.env("a") == {"NVIDIA_VISIBLE_DEVICES": mig_uuid(CARD, "group1-3")}
    assert world.fake.report()["geometries"] == {f"m/{CARD}": "group1"}
    profile = mig_tables.DEFAULT[2].geometries[0].profiles[0]
    assert world.used("m")[0] == (1, profile.memory_mib, 0), "the instance, not what was asked for"
    put(world, "b", instance("group1-0"))
    assert world.env("b") != world.env("a")
    assert world.incidents() == []


def test_a_card_is_cut_anew_when_nobody_holds_a_part_of_it(world: World) -> None:
    put(world, "a", instance("group1-0"))
    world.end("a")
    put(world, "b", instance("group3-1", 30000))
    assert world.phase("b") == "Running"
    assert world.fake.report()["geometries"] == {f"m/{CARD}": "group3"}
    assert world.incidents() == []


def test_a_card_in_use_is_not_cut_anew(world: World) -> None:
    put(world, "a", instance("group1-0"))
    put(world, "b", instance("group3-0", 30000))
    status = world.get("b")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "cut as group1, in use are group1-0" in status["message"]
    assert world.incidents() == ["CutInUse"]
    assert world.phase("a") == "Running"
    assert world.fake.report()["geometries"] == {f"m/{CARD}": "group1"}
    put(world, "c", instance("group3-0", 30000, card_id("m", 1)))
    assert world.phase("c") == "Failed", "the record of b is older and still there"


def test_an_instance_that_is_handed_out_twice_is_seen(world: World) -> None:
    put(world, "a", instance("group1-0"))
    put(world, "b", instance("group1-0"))
    (incident,) = world.fake.books.oversold
    assert incident.message == "one instance handed out twice: group1-0, group1-0"


@pytest.mark.parametrize("name", ["group1-7", "group9-0"])
def test_an_instance_that_no_table_has_is_refused(world: World, name: str) -> None:
    put(world, "a", instance(name))
    message = world.get("a")["status"]["message"]
    assert f"{name} of card {CARD} is in no geometry that the device configuration has" in message
    assert world.used("m")[0] == (0, 0, 0)


def test_a_table_that_is_edited_holds_for_the_plugin_too() -> None:
    world = World(NODES, configured=True)
    table = """
nvidia:
  knownMigGeometries:
    - models: [A100-SXM4-80GB]
      allowedGeometries:
        - group: halves
          geometries: [{name: 3g.40gb, memory: 40000, count: 2}]
"""
    world.edit_config(table)
    put(world, "a", instance("group1-0"))
    assert "in no geometry" in world.get("a")["status"]["message"]
    world.end("a")
    put(world, "b", instance("halves-1"))
    assert world.phase("b") == "Running"
    assert world.used("m")[0] == (1, 40000, 0)


def test_a_plugin_fails_on_a_card_that_is_to_fail(world: World) -> None:
    world.annotate_node("m", "allocate-fails=0")
    put(world, "a", instance("group1-0"))
    assert world.annotation("a", keys.BIND_PHASE) == keys.PHASE_FAILED
    put(world, "b", instance("group1-0", card=card_id("m", 1)))
    assert world.phase("b") == "Running"


def test_hami_core_limits_are_told(world: World) -> None:
    world.pod("a", ask(2, 3000, 50))
    world.bind_vgpu("a", (0, 3000, 50), (1, 3000, 50))
    world.pass_time()
    env = world.env("a")
    cache = env.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")
    assert cache.startswith("/tmp/vgpu/")
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": f"{card_id('v', 0)},{card_id('v', 1)}",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "50",
    }
    world.pod("b", ask(2, 3000, 10))
    world.bind_vgpu("b", (0, 3000, 10), (1, 3000, 10))
    world.pass_time()
    assert world.env("b")["CUDA_DEVICE_MEMORY_SHARED_CACHE"] != cache


def test_mps_limits_threads_and_hijacks_no_memory(world: World) -> None:
    for name, cores in (("a", 30), ("b", 0)):
        world.pod(name, ask(1, 3000, cores))
        world.bind_vgpu(name, (0, 3000, cores), node="p")
        world.pass_time()
    shared = {
        "NVIDIA_VISIBLE_DEVICES": card_id("p", 0),
        "CUDA_MPS_PIPE_DIRECTORY": "/mps/volcano.sh/vgpu-number/pipe",
    }
    assert world.env("a") == {**shared, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
    assert world.env("b") == shared


def test_the_node_lock_is_deleted_whatever_comes_out(world: World) -> None:
    for name, fault in (("a", {}), ("b", {FAULT: "allocate-fails"})):
        world.lock("v", keys.LOCK_VGPU, "2026-01-01T00:00:00Z")
        world.pod(name, ask(), fault)
        world.bind_vgpu(name, (0, 4000, 25))
        world.pass_time()
        assert world.shown("v", keys.LOCK_VGPU) is None
    assert (world.phase("a"), world.phase("b")) == ("Running", "Failed")
