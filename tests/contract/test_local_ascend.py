"""The fake plugins for Ascend chips: HAMi's, and Huawei's of MindCluster."""

import json

import pytest
from tests.contract.local_nodes import Json, World

from allotment_local.nodes.annotations import FAULT
from allotment_local.nodes.npu_objects import chip_id
from allotment_proto.facts import Holding
from allotment_proto.volcano import ascend, keys, mindcluster, mindcluster_node

NODES = """
- name: a
  kind: ascend
  npus: {chip: Ascend910B3, count: 4, memory_mib: 65536, slots: 4, networks: 2}
- name: s
  kind: ascend
  npus: {chip: Ascend310P, count: 1, memory_mib: 21527, cores: 8, soft: true}
- {name: n, kind: mindcluster, npus: {chip: Ascend310P, count: 2}}
"""
WORD = "Ascend910B3"
DEVICES = ("mindx-dl", "cluster-info-device-0")


@pytest.fixture
def world() -> World:
    return World(NODES, configured=True)


def ask(word: str = WORD, number: int = 1, **more: int) -> Json:
    return {f"huawei.com/{word}": number} | {f"huawei.com/{word}-{k}": n for k, n in more.items()}


def chip(index: int, memory_mib: int, template: str, *, node: str = "a", cores: int = 0) -> Holding:
    word = WORD if node == "a" else "Ascend310P"
    instance = ascend.instance_name(word, template)
    return Holding(ascend.FAMILY, 0, chip_id(node, index), memory_mib, cores, instance)


def bind(world: World, name: str, node: str, *holdings: Holding) -> None:
    world.bind(name, node, ascend.binding_annotations(node, holdings, next(world.stamps), 1))
    world.pass_time()


def bind_npu(world: World, name: str, *holdings: Holding) -> None:
    world.bind(name, "n", mindcluster.binding_annotations(holdings, next(world.stamps)))
    world.pass_time()


def npu(index: int, cores: int, template: str = "") -> Holding:
    return Holding(mindcluster.FAMILY, 0, str(index), 0, cores, template)


def test_chips_are_registered_with_their_networks(world: World) -> None:
    text = world.shown("a", keys.hami_register(WORD))
    register = ascend.decode_register(text or "", WORD)
    assert [(card.id, card.network) for card in register.cards] == [
        (chip_id("a", index), index // 2) for index in range(4)
    ]
    assert world.allocatable("a", f"huawei.com/{WORD}") == "16"
    assert world.shown("s", keys.HAMI_SOFT_SLICING) == "true"


def test_a_template_is_cut_for_a_pod(world: World) -> None:
    world.pod("p", ask(memory=16000))
    bind(world, "p", "a", chip(2, 16384, "vir05_1c_16g"))
    assert world.phase("p") == "Running"
    assert world.annotation("p", keys.HAMI_BIND_PHASE) == keys.PHASE_SUCCESS
    assert world.annotation("p", keys.hami_to_allocate(WORD)) == ";"
    assert world.env("p") == {"ASCEND_VISIBLE_DEVICES": "2", "ASCEND_VNPU_SPECS": "vir05_1c_16g"}
    assert world.used("a")[2] == (1, 16384, 0)
    world.end("p")
    assert world.used("a")[2] == (0, 0, 0)
    assert world.incidents() == []


def test_two_chips_come_whole(world: World) -> None:
    world.pod("p", ask(number=2))
    bind(world, "p", "a", chip(1, 65536, ""), chip(0, 65536, ""))
    assert world.env("p") == {"ASCEND_VISIBLE_DEVICES": "1,0"}
    world.pod("q", ask(memory=16000))
    bind(world, "q", "a", chip(1, 16384, "vir05_1c_16g"))
    assert world.incidents() == ["Oversold"]


def test_a_soft_slice_is_told_its_memory_and_compute(world: World) -> None:
    world.pod("p", ask("Ascend310P", memory=4000, core=30), {keys.VNPU_MODE: keys.MODE_HAMI_CORE})
    bind(world, "p", "s", chip(0, 4000, ascend.SOFT, node="s", cores=30))
    assert world.env("p") == {
        "ASCEND_VISIBLE_DEVICES": "0",
        "NPU_MEM_QUOTA": "4000",
        "NPU_PRIORITY": "30",
        "NPU_GLOBAL_SHM_PATH": "/hami-shared-region/0_global_registry",
        "NPU_LOCAL_SHM_PATH": "/hami-vnpu-shmem/vnpu_local_shmem",
    }


def test_the_plugin_asks_only_which_pod_waits(world: World) -> None:
    """Why the binder lets one pod of a node at a time: the first listed is served."""
    world.pod("b-first-bound", ask(memory=16000), {"allotment.dev/start-delay": "1s"})
    world.pod("a-later", ask(memory=16000))
    bind(world, "b-first-bound", "a", chip(0, 16384, "vir05_1c_16g"))
    bind(world, "a-later", "a", chip(1, 16384, "vir05_1c_16g"))
    assert world.incidents() == [], "in time, each is the first"
    world.pod("c", ask(memory=16000))
    bind(world, "c", "a", chip(2, 16384, "vir05_1c_16g"))
    status = world.get("c")["status"]
    assert status["reason"] == "UnexpectedAdmissionError", "b still is pending, and comes first"
    assert "no pending device allocation found" in status["message"]


def test_the_lock_may_name_the_pod(world: World) -> None:
    for name in "ab":
        world.pod(name, ask(memory=16000))
    world.lock("a", keys.LOCK_ASCEND, "2026-01-01T00:00:00Z,default,b")
    for name, index in (("b", 0), ("a", 1)):
        holding = chip(index, 16384, "vir05_1c_16g")
        stamp = next(world.stamps)
        world.bind(name, "a", ascend.binding_annotations("a", (holding,), stamp, 1))
    world.pass_time()
    assert world.incidents() == []
    assert world.shown("a", keys.LOCK_ASCEND) is None


@pytest.mark.parametrize("by_node", [False, True])
def test_a_failing_plugin_says_so(world: World, by_node: bool) -> None:
    if by_node:
        world.annotate_node("a", "allocate-fails=0")
    world.pod("p", ask(memory=16000), {} if by_node else {FAULT: "allocate-fails"})
    world.lock("a", keys.LOCK_ASCEND, "2026-01-01T00:00:00Z")
    bind(world, "p", "a", chip(0, 16384, "vir05_1c_16g"))
    assert world.phase("p") == "Failed"
    assert world.annotation("p", keys.HAMI_BIND_PHASE) == keys.PHASE_FAILED
    assert world.shown("a", keys.LOCK_ASCEND) is None
    assert world.used("a")[0] == (0, 0, 0)


def test_a_card_may_be_ill_or_gone(world: World) -> None:
    before = world.node("a")
    world.annotate_node("a", "card-unhealthy=0,card-gone=3")
    register = ascend.decode_register(world.shown("a", keys.hami_register(WORD)) or "", WORD)
    assert [(card.id, card.healthy) for card in register.cards] == [
        (chip_id("a", 0), False),
        (chip_id("a", 1), True),
        (chip_id("a", 2), True),
    ]
    assert world.allocatable("a", f"huawei.com/{WORD}") == "8"
    world.annotate_node("a", None)
    assert world.node("a")["status"] == before["status"]
    assert world.node("a")["metadata"]["annotations"] == before["metadata"]["annotations"]


def info(world: World) -> mindcluster_node.DeviceInfo:
    data = world.config_map(*DEVICES)
    infos, problems = mindcluster_node.decode_device_infos(DEVICES[1], data, "Ascend310P")
    assert problems == ()
    return infos["n"]


def test_mindcluster_tells_of_its_chips_in_config_maps(world: World) -> None:
    assert info(world).available == (0, 1)
    node = world.node("n")
    found = mindcluster_node.decode_node(
        node["metadata"]["labels"], node["metadata"]["annotations"], 16, info(world)
    )
    assert [(card.id, card.cores_pct, card.slots) for card in found.cards] == [
        ("0", 8, 7),
        ("1", 8, 7),
    ]
    nodes = json.loads(world.config_map("mindx-dl", "cluster-info-node-cm")["cluster-info-node-cm"])
    assert nodes["mindx-dl-nodeinfo-n"]["NodeStatus"] == "Healthy"
    world.annotate_node("n", "card-unhealthy=1")
    assert (info(world).available, info(world).unhealthy) == ((0,), (1,))
    assert world.allocatable("n", keys.NPU_CORE) == "8"
    world.annotate_node("n", "card-gone=0")
    assert (info(world).available, info(world).unhealthy) == ((1,), ())
    assert world.shown("n", keys.NPU_BASE_DEVICES) == (
        '{"Ascend310P-1": {"IP": "", "SuperDeviceID": 0}}'
    )
    world.annotate_node("n", "node-gone")
    assert json.loads(world.config_map(*DEVICES)[DEVICES[1]]) == {}


@pytest.mark.parametrize(
    ("cores", "holdings", "real", "env"),
    [
        (
            4,
            (npu(1, 4, "vir04_3c_ndvpp"),),
            "Ascend310P-4c.3cpu.ndvpp-100-1",
            {"ASCEND_VISIBLE_DEVICES": "1", "ASCEND_VNPU_SPECS": "vir04_3c_ndvpp"},
        ),
        (2, (npu(0, 2, "vir02"),), "Ascend310P-2c-100-0", None),
        (16, (npu(0, 8), npu(1, 8)), "Ascend310P-0,Ascend310P-1", None),
    ],
)
def test_mindclusters_plugin_says_what_it_gave(
    world: World, cores: int, holdings: tuple[Holding, ...], real: str, env: Json | None
) -> None:
    world.pod("p", {keys.NPU_CORE: cores})
    bind_npu(world, "p", *holdings)
    assert world.phase("p") == "Running"
    assert world.annotation("p", keys.ASCEND_REAL) == real
    if env is not None:
        assert world.env("p") == env
    assert sum(cores for _, _, cores in world.used("n").values()) == cores
    assert world.incidents() == []


def test_more_pieces_than_a_chip_has_are_seen(world: World) -> None:
    for name in "ab":
        world.pod(name, {keys.NPU_CORE: 4})
        bind_npu(world, name, npu(0, 4, "vir04"))
    (incident,) = world.fake.books.oversold
    assert incident.message == "8 holders on a card of 7", "eight AI CPUs of seven"


def test_other_cores_than_were_asked_for_are_refused(world: World) -> None:
    world.pod("p", {keys.NPU_CORE: 4})
    bind_npu(world, "p", npu(0, 2, "vir02"))
    assert "so 2 AI cores, not 4" in world.get("p")["status"]["message"]
