"""Fake device plugins serve as the real ones do, and say when a card is oversold."""

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.apiserver.resources import LEASES, PODS
from allotment_local.nodes.annotations import FAULT, RUN_DURATION, START_DELAY
from allotment_local.nodes.objects import card_id
from allotment_proto.volcano import keys, vgpu


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_shows_what_its_plugin_registers(world: World) -> None:
    node = world.node("v")
    register = vgpu.decode_register(node["metadata"]["annotations"][keys.NODE_VGPU_REGISTER])
    assert [(card.id, card.model, card.memory_mib, card.slots) for card in register.cards] == [
        (card_id("v", index), "NVIDIA-Tesla T4", 16000, 2) for index in (0, 1)
    ]
    assert world.allocatable("v", keys.VGPU_NUMBER) == "4"
    assert world.allocatable("v", keys.VGPU_MEMORY) == "32000"
    assert world.allocatable("v", keys.VGPU_CORES) == "200"
    assert world.node("s")["status"]["capacity"][keys.GPU_MEMORY] == "32000"
    assert world.allocatable("w", "nvidia.com/gpu") == "2"
    assert world.store.get(LEASES, "kube-node-lease", "v")["spec"]["holderIdentity"] == "v"


def test_a_vgpu_pod_is_served_runs_and_gives_back(world: World) -> None:
    world.pod("p", ask(2, 3000, 50), {RUN_DURATION: "5s", START_DELAY: "500ms"})
    world.bind_vgpu("p", (1, 3000, 50), (0, 3000, 50))
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_ALLOCATING
    world.pass_time()
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_SUCCESS
    assert world.annotation("p", keys.VGPU_TIME) == keys.VGPU_TIME_DONE
    assert world.annotation("p", keys.DEVICES_TO_ALLOCATE) == ""
    assert world.used("v") == {0: (1, 3000, 50), 1: (1, 3000, 50)}
    assert world.phase("p") == "Pending"
    world.pass_time(1)
    status = world.get("p")["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.")
    assert [s["ready"] for s in status["containerStatuses"]] == [True]
    assert {c["type"]: c["status"] for c in status["conditions"]}["PodScheduled"] == "True"
    world.pass_time(5)
    assert world.phase("p") == "Succeeded"
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}
    assert world.incidents() == []


def test_two_pending_records_of_one_size_can_be_swapped(world: World) -> None:
    """Why the binder paces: the plugin sees numbers of devices, not pods. Smallest time wins."""
    world.pod("late", ask())
    world.pod("early", ask())
    world.bind_vgpu("early", (0, 4000, 25))
    world.bind_vgpu("late", (1, 4000, 25))
    # The kubelet meets `late` first, as its watch may deliver it.
    late = world.get("late")["metadata"]["uid"]
    early = world.get("early")["metadata"]["uid"]
    patch = {"metadata": {"annotations": {keys.VGPU_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "late", patch)
    world.pass_time()
    assert world.incidents() == ["Misdelivered", "Misdelivered"]
    holders = {
        card["index"]: [holder["uid"] for holder in card["holders"]]
        for card in world.fake.report()["cards"]
        if card["node"] == "v"
    }
    assert holders == {0: [late], 1: [early]}


def test_swapping_equal_records_is_harmless_and_booked(world: World) -> None:
    for name in ("a", "b"):
        world.pod(name, ask())
        world.bind_vgpu(name, (0, 4000, 25))
    patch = {"metadata": {"annotations": {keys.VGPU_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "b", patch)
    world.pass_time()
    assert world.incidents() == ["Swapped", "Swapped"]
    assert world.used("v")[0] == (2, 8000, 50)


def test_gpu_memory_of_equal_size_can_be_swapped_too(world: World) -> None:
    for name, card in (("late", 0), ("early", 1)):
        world.pod(name, {keys.GPU_MEMORY: 4096})
        world.bind_share(name, card)
    patch = {"metadata": {"annotations": {keys.PREDICATE_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "early", patch)
    world.pass_time()
    assert world.incidents() == ["Misdelivered", "Misdelivered"]


def test_records_of_different_sizes_are_told_apart(world: World) -> None:
    world.pod("two", ask(2))
    world.pod("one", ask(1))
    world.bind_vgpu("one", (0, 4000, 25))
    world.bind_vgpu("two", (0, 4000, 25), (1, 4000, 25))
    world.pass_time()
    assert world.incidents() == []
    assert world.used("v") == {0: (2, 8000, 50), 1: (1, 4000, 25)}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ((0, 9000, 10), (0, 9000, 10), "18000 MiB handed out of 16000"),
        ((0, 1000, 60), (0, 1000, 60), "120 % of the cores handed out"),
        ((0, 1000, 100), (0, 1000, 0), "has alone"),
    ],
)
def test_an_oversold_card_is_seen(
    world: World, first: tuple[int, int, int], second: tuple[int, int, int], why: str
) -> None:
    for name, card in (("a", first), ("b", second)):
        world.pod(name, ask(1, card[1], card[2]))
        world.bind_vgpu(name, card)
        world.pass_time()
    (incident,) = world.fake.books.oversold
    assert (incident.node, incident.card, incident.pod) == ("v", card_id("v", 0), "default/b")
    assert why in incident.message
    assert world.fake.report()["counts"]["Oversold"] == 1


def test_too_many_holders_of_a_card_are_seen(world: World) -> None:
    for name in "abc":
        world.pod(name, ask(1, 1000, 10))
        world.bind_vgpu(name, (0, 1000, 10))
        world.pass_time()
    assert [incident.message for incident in world.fake.books.oversold] == [
        "3 holders on a card of 2"
    ]


def test_more_than_the_node_offers_is_not_admitted(world: World) -> None:
    for name in "abcde":
        world.pod(name, ask(1, 1000, 10))
        world.bind_vgpu(name, (ord(name) % 2, 1000, 10))
        world.pass_time()
    status = world.get("e")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "Requested: 1, Available: 0" in status["message"]
    assert world.incidents() == ["Refused"]
    assert world.events()[0][:2] == ("e", "UnexpectedAdmissionError")


def test_allocate_fails_on_request(world: World) -> None:
    world.pod("p", ask(), {FAULT: "allocate-fails"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_FAILED
    assert world.annotation("p", keys.VGPU_TIME) == keys.VGPU_TIME_DONE
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}
    # The failed record stays, but the next pod has the smaller time.
    world.pod("q", ask())
    world.bind_vgpu("q", (1, 4000, 25))
    world.pass_time()
    assert world.phase("q") == "Running"
    assert world.incidents() == []


def test_a_vgpu_pod_without_a_record_fails(world: World) -> None:
    world.pod("p", ask())
    world.bind("p", "v")
    world.pass_time()
    status = world.get("p")["status"]
    assert status["phase"] == "Failed"
    assert "cannot get valid pod" in status["message"]


def test_gpu_memory_is_assigned_by_index(world: World) -> None:
    for name in "ab":
        world.pod(name, {keys.GPU_MEMORY: 4096})
        world.bind_share(name, 1)
        world.pass_time()
        assert world.annotation(name, keys.GPU_ASSIGNED) == "true"
        assert world.phase(name) == "Running"
        assert world.env(name) == {
            "NVIDIA_VISIBLE_DEVICES": "1",
            "VOLCANO_GPU_ALLOCATED": "4096",
            "VOLCANO_GPU_MEMORY_TOTAL": "16000",
        }
    assert world.used("s") == {0: (0, 0, 0), 1: (2, 8192, 0)}
    world.pod("number", {keys.GPU_NUMBER: 1})
    world.bind_share("number", 0)
    world.pass_time()
    assert world.used("s")[0] == (1, 16000, 100)
    assert world.incidents() == []
    world.pod("greedy", {keys.GPU_NUMBER: 1})
    world.bind_share("greedy", 1)
    world.pass_time()
    assert "Oversold" in world.incidents()


@pytest.mark.parametrize("index", [None, "7", "x"])
def test_a_gpu_index_that_names_no_card_fails(world: World, index: str | None) -> None:
    world.pod("p", {keys.GPU_MEMORY: 4096})
    world.bind("p", "s", {} if index is None else {keys.GPU_INDEX: index})
    world.pass_time()
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"


def test_whole_cards_are_counted(world: World) -> None:
    world.pod("two", {"nvidia.com/gpu": 2})
    world.bind("two", "w")
    world.pod("one", {"nvidia.com/gpu": 1})
    world.bind("one", "w")
    world.pass_time()
    assert world.phase("two") == "Running"
    assert world.phase("one") == "Failed"
    assert world.used("w") == {0: (1, 0, 100), 1: (1, 0, 100)}
    assert world.incidents() == ["Refused"]


def test_devices_that_a_node_does_not_have_are_noticed(world: World) -> None:
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25), node="c")
    world.pass_time()
    assert world.phase("p") == "Running"
    assert set(world.incidents()) == {"NotOffered"}
