"""The device configuration of a local cluster: installed, followed, and left aside when broken."""

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.nodes.device_map import shipped, shipped_text
from allotment_local.nodes.objects import card_id
from allotment_proto.volcano import device_config, keys, vgpu

PLAIN = "nvidia: {}\n"


@pytest.fixture
def world() -> World:
    return World(configured=True)


def registered(world: World, node: str = "v") -> list[tuple[int, int, str]]:
    """Slots, memory and mode of each card."""
    cards = vgpu.decode_register(world.shown(node, keys.NODE_VGPU_REGISTER) or "").cards
    return [(card.slots, card.memory_mib, card.mode) for card in cards]


def extended(world: World, node: str = "v") -> dict[str, str]:
    listed = world.node(node)["status"]["allocatable"]
    return {name: n for name, n in listed.items() if "/" in name}


def test_what_is_installed_is_what_is_built_in_and_more_chips(world: World) -> None:
    data = world.config_map("kube-system", keys.DEVICE_CONFIG_MAP)
    assert data == {keys.DEVICE_CONFIG_KEY: shipped_text()}
    parsed = device_config.parse(shipped_text(), "text")
    assert (parsed.problems, parsed.warnings) == ((), ())
    assert shipped().nvidia == device_config.default().nvidia
    assert {chip.common_word for chip in shipped().ascend} == {"Ascend310P", "Ascend910B3"}


def test_installing_it_changes_no_node() -> None:
    plain, configured = World(), World(configured=True)
    for node in "vwsc":
        assert plain.node(node)["status"] == configured.node(node)["status"]
        assert plain.node(node)["metadata"].get("annotations") == configured.node(node)[
            "metadata"
        ].get("annotations")


def test_a_split_and_a_factor_are_registered_anew(world: World) -> None:
    before = world.node("v")
    world.edit_config("nvidia: {deviceSplitCount: 5, gpuMemoryFactor: 10}\n")
    assert registered(world) == [(5, 1600, "hami-core")] * 2
    assert extended(world) == {
        keys.VGPU_NUMBER: "10",
        keys.VGPU_MEMORY: "3200",
        keys.VGPU_CORES: "200",
    }
    world.pod("p", ask(1, 400, 25))
    world.bind_vgpu("p", (0, 400, 25))
    world.pass_time()
    assert world.env("p")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "4000m"
    world.edit_config(PLAIN)
    assert world.node("v")["status"] == before["status"]


def test_over_commit_is_offered_as_documented(world: World) -> None:
    world.edit_config("nvidia: {deviceMemoryScaling: 1.5, deviceCoreScaling: 2}\n")
    assert extended(world)[keys.VGPU_MEMORY] == str(2 * 24000)
    assert extended(world)[keys.VGPU_CORES] == "400"
    for name in "ab":
        world.pod(name, ask(1, 12000, 80))
        world.bind_vgpu(name, (0, 12000, 80))
        world.pass_time()
    assert world.incidents() == []
    assert world.env("a")["CUDA_OVERSUBSCRIBE"] == "true"


def test_resources_can_be_renamed_and_back(world: World) -> None:
    names = "resourceCountName: nvidia.com/gpu, resourceMemoryName: nvidia.com/gpumem"
    world.edit_config(f"nvidia: {{{names}, resourceCoreName: nvidia.com/gpucores}}\n")
    assert extended(world) == {
        "nvidia.com/gpu": "4",
        "nvidia.com/gpumem": "32000",
        "nvidia.com/gpucores": "200",
    }
    assert extended(world, "w") == {"nvidia.com/gpu": "2"}, "those are whole cards still"
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 25}
    world.pod("p", limits)
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    assert world.phase("p") == "Running"
    assert world.used("v")[0] == (1, 4000, 25)
    world.edit_config(PLAIN)
    assert set(extended(world)) == {keys.VGPU_NUMBER, keys.VGPU_MEMORY, keys.VGPU_CORES}


def test_one_node_may_be_configured_apart(world: World) -> None:
    config = """{"nodeconfig": [{"name": "v", "operatingmode": "mps", "devicesplitcount": 7,
    "filterdevices": {"index": [0]}}]}"""
    world.edit_config(config, keys.NODE_CONFIG_MAP)
    assert registered(world) == [(7, 16000, "mps")]
    assert extended(world)[keys.VGPU_NUMBER] == "7"
    text = world.shown("v", keys.NODE_VGPU_REGISTER) or ""
    assert card_id("v", 0) not in text


def test_a_broken_configuration_is_an_event_and_nothing_else(world: World) -> None:
    before = world.node("v")
    world.edit_config("nvidia: {deviceSplitCount: many}\n")
    (told,) = world.events()
    assert told[:2] == (keys.DEVICE_CONFIG_MAP, "InvalidDeviceConfig")
    assert "deviceSplitCount" in told[2]
    assert world.node("v") is before


def test_cards_can_be_gone_from_one_registration_to_the_next(world: World) -> None:
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    world.annotate_node("v", "card-gone=0")
    assert len(registered(world)) == 1
    assert world.node("v")["status"]["capacity"][keys.VGPU_NUMBER] == "2"
    assert world.phase("p") == "Running"
    world.pod("q", ask())
    world.bind_vgpu("q", (0, 4000, 25))
    world.pass_time()
    assert "there is no card" in world.get("q")["status"]["message"]
    world.annotate_node("s", "card-gone=0")
    assert world.node("s")["status"]["capacity"][keys.GPU_NUMBER] == "1"
    world.annotate_node("w", "card-gone=1")
    assert world.node("w")["status"]["capacity"]["nvidia.com/gpu"] == "1"
    world.annotate_node("v", None)
    assert len(registered(world)) == 2
