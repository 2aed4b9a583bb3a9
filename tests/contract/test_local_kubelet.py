"""Fake kubelets: what they check, how pods start and end with them, and their heartbeats."""

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.apiserver.resources import LEASES, NODES, PODS
from allotment_local.nodes.annotations import RUN_DURATION
from allotment_local.nodes.objects import card_id
from allotment_proto.volcano import keys


@pytest.fixture
def world() -> World:
    return World()


def test_cpu_is_checked_as_a_kubelet_checks_it(world: World) -> None:
    world.pod("big", {"cpu": "1500m"})
    world.bind("big", "c")
    world.pod("more", {"cpu": "1500m"})
    world.bind("more", "c")
    world.pass_time()
    assert world.phase("big") == "Running"
    status = world.get("more")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    world.store.delete(PODS, "default", "big")
    world.pass_time(1)
    world.pod("again", {"cpu": "1500m"})
    world.bind("again", "c")
    world.pass_time()
    assert world.phase("again") == "Running"


def test_what_a_pod_asks_itself_is_checked_as_a_kubelet_checks_it(world: World) -> None:
    container = {"name": "main", "image": "i:1"}
    for name, own in (
        ("itself", {"requests": {"cpu": "3"}}),
        ("by-limit", {"limits": {"cpu": "3"}}),
    ):
        spec = {"containers": [container], "resources": own}
        world.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
        world.bind(name, "c")
    big = {**container, "resources": {"requests": {"cpu": "1500m"}}}
    spec = {
        "containers": [big],
        "initContainers": [{**big, "name": "s", "restartPolicy": "Always"}],
    }
    world.store.create(PODS, "default", {"metadata": {"name": "sidecar"}, "spec": spec})
    world.bind("sidecar", "c")
    world.pass_time()
    for name in ("itself", "by-limit", "sidecar"):
        assert world.get(name)["status"].get("reason") == "OutOfcpu", name


def test_a_deleted_pod_goes_after_a_short_grace(world: World) -> None:
    world.pod("p", ask(), {"allotment.dev/stop-delay": "2s"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    world.store.delete(PODS, "default", "p")
    world.pass_time(1)
    assert world.used("v")[0] == (1, 4000, 25), "it still runs"
    world.pass_time(1.5)
    assert world.store.find(PODS, "default", "p") is None
    assert world.used("v")[0] == (0, 0, 0)


def test_a_node_that_someone_else_creates_gets_a_kubelet_too(world: World) -> None:
    register = f"{card_id('x', 0)},2,8000,NVIDIA-Tesla T4,true,hami-core:"
    offered = {"cpu": "4", keys.VGPU_NUMBER: "2", keys.VGPU_MEMORY: "8000", keys.VGPU_CORES: "100"}
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25), node="x")
    world.pass_time(1)
    world.store.create(
        NODES,
        "",
        {
            "metadata": {"name": "x", "annotations": {keys.NODE_VGPU_REGISTER: register}},
            "status": {"capacity": offered, "allocatable": offered},
        },
    )
    world.pass_time(20)
    assert world.phase("p") == "Running"
    assert world.used("x") == {0: (1, 4000, 25)}


def test_a_duration_given_later_counts_from_the_start(world: World) -> None:
    world.pod("p", {})
    world.bind("p", "c")
    world.pass_time(3)
    patch = {"metadata": {"annotations": {RUN_DURATION: "5s"}}}
    world.store.merge_patch(PODS, "default", "p", patch)
    world.pass_time(1)
    assert world.phase("p") == "Running"
    world.pass_time(1.5)
    assert world.phase("p") == "Succeeded"


def test_heartbeats_change_the_lease_and_rarely_the_node(world: World) -> None:
    node, lease = world.node("v"), world.store.get(LEASES, "kube-node-lease", "v")
    world.pass_time(25)
    assert world.node("v") is node
    assert world.store.get(LEASES, "kube-node-lease", "v") != lease
    world.pass_time(300)
    after = world.node("v")
    assert after["status"]["conditions"] != node["status"]["conditions"]
    assert after["status"]["allocatable"] == node["status"]["allocatable"]


def test_a_life_costs_four_writes_to_the_pod() -> None:
    """Created, bound, served by the plugin, running: what every watcher pays for."""
    world = World()
    before = world.store.resource_version
    world.pod("p", {keys.VGPU_NUMBER: 1})
    world.bind_vgpu("p", (0, 4_000, 10))
    world.pass_time(1)
    assert world.store.get(PODS, "default", "p")["status"]["phase"] == "Running"
    assert world.store.resource_version - before == 4
