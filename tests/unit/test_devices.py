"""What pods ask, what nodes offer, what bound pods hold: by device family, from annotations."""

from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import ContainerSource, NodeSource, PodSource
from allotment.core.placement.policies.typical import CORES_MOST
from allotment_proto.device_config import DeviceConfig, MigModel, NodeConfig, Nvidia
from allotment_proto.facts import NO_TABLE, Geometry, Holding, Inventory, Profile
from allotment_proto.volcano import keys

VGPU, SHARE = FAMILIES["vgpu"], FAMILIES["gpushare"]


def pod(*limits: dict[str, str], annotations: dict[str, str] | None = None) -> PodSource:
    containers = [ContainerSource(f"c{i}", one, {}) for i, one in enumerate(limits)]
    return PodSource(annotations or {}, containers, [])


def short(**amounts: Any) -> dict[str, str]:
    return {f"volcano.sh/vgpu-{key.replace('_', '-')}": str(n) for key, n in amounts.items()}


@pytest.mark.parametrize(
    ("limits", "memory_mib", "memory_pct", "cores_pct"),
    [
        (short(number=1), 0, 100, 0),
        (short(number=2, memory=3000), 3000, 0, 0),
        (short(number=1, memory=0), 0, 100, 0),
        (short(number=1, memory=3000, memory_percentage=50, cores=30), 0, 50, 30),
        (short(number=1, memory="1k"), 1000, 0, 0),
    ],
)
def test_vgpu_amounts(
    limits: dict[str, str], memory_mib: int, memory_pct: int, cores_pct: int
) -> None:
    (found,), problem = VGPU.requests(pod(limits))
    assert problem is None
    assert (found.memory_mib, found.memory_pct, found.cores_pct) == (
        memory_mib,
        memory_pct,
        cores_pct,
    )


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (short(memory=1000), "without volcano.sh/vgpu-number"),
        (short(cores=50), "without volcano.sh/vgpu-number"),
        (short(number=0, memory=1000, cores=50), "but volcano.sh/vgpu-number is 0"),
        (short(number=0, memory_percentage=50), "but volcano.sh/vgpu-number is 0"),
        (short(number="1500m"), "'1500m' is not a whole number"),
        (short(number=-1), "'-1' is negative"),
        (short(number=65), "is 65; at most 64"),
        (short(number=1, cores=101), "is 101"),
        (short(number=1, memory_percentage=0), "is 0; wanted: 1 to 100"),
        (short(number=1, memory_percentage=101), "is 101"),
        (short(number=1, memory="much"), "'much' is not a quantity"),
    ],
)
def test_vgpu_requests_that_cannot_be_meant(limits: dict[str, str], says: str) -> None:
    found, problem = VGPU.requests(pod({}, limits))
    assert found == ()
    assert problem is not None
    assert problem.code == reasons.INVALID_REQUEST
    assert problem.place.startswith("container 'c1', volcano.sh/vgpu-")
    assert says in problem.message


def test_the_first_of_several_mistakes_does_not_depend_on_hashing() -> None:
    _, problem = VGPU.requests(pod(short(number="x", memory="y", cores="z")))
    assert problem is not None
    assert problem.place == "container 'c0', volcano.sh/vgpu-cores"


def test_a_count_must_be_a_limit() -> None:
    source = PodSource({}, [ContainerSource("c", {}, short(number=1))], [])
    _, problem = VGPU.requests(source)
    assert problem is not None
    assert "must be a limit" in problem.message


def test_an_init_container_cannot_have_cards() -> None:
    asking = ContainerSource("warm-up", {keys.VGPU_NUMBER: "1"}, {})
    found, problem = VGPU.requests(PodSource({}, [], [asking]))
    assert found == ()
    assert problem is not None
    assert "'warm-up'" in problem.place
    assert "init container" in problem.message


def test_zero_cards_are_no_request() -> None:
    assert VGPU.requests(pod(short(number=0), {})) == ((), None)
    assert VGPU.requests(pod(short(number=0, memory=0), short(memory=0, cores=0))) == ((), None)


REGISTER = "GPU-0,10,16000,NVIDIA-T4,true,hami-core:"
LISTED = short(number=10, memory=16000, cores=100)


@pytest.mark.parametrize(
    ("register", "allocatable", "code"),
    [
        (REGISTER, LISTED, None),
        (REGISTER, {}, "NotAllocatable"),
        (REGISTER, {**LISTED, keys.VGPU_MEMORY: "0"}, "NotAllocatable"),
        (REGISTER, {**LISTED, keys.VGPU_MEMORY: "junk"}, "NotAllocatable"),
        ("GPU-0,10,16000", LISTED, "BrokenRegister"),
    ],
)
def test_vgpu_nodes(register: str, allocatable: dict[str, str], code: str | None) -> None:
    node = NodeSource({keys.NODE_VGPU_REGISTER: register}, {}, allocatable)
    inventory, problems = VGPU.inventory(node)
    assert (inventory is None) == (code is not None)
    assert [p.code for p in problems] == ([code] if code else [])


MIG_CONFIG = DeviceConfig(
    nvidia=Nvidia(mig=(MigModel(("A100",), (Geometry("g1", (Profile("7g", 15_000, 1),)),)),))
)


def registered(
    *entries: str, config: DeviceConfig = MIG_CONFIG, number: int = 10, memory: int = 16_000
) -> tuple[Inventory, list[str]]:
    """The inventory of a node with these cards, and the codes of its problems."""
    text = "".join(f"{entry}:" for entry in entries)
    listed = short(number=number, memory=memory, cores=100)
    source = NodeSource({keys.NODE_VGPU_REGISTER: text}, {}, listed, name="n1", config=config)
    inventory, problems = VGPU.inventory(source)
    assert inventory is not None
    return inventory, [problem.code for problem in problems]


def test_a_mig_node_has_the_tables_of_its_models() -> None:
    inventory, problems = registered("GPU-0,10,16000,NVIDIA-A100,true,mig")
    assert (inventory.mode, [card.table for card in inventory.cards]) == ("mig", [0])
    assert inventory.tables[0][0].name == "g1"
    assert problems == []


def test_a_mig_node_of_an_unheard_model_counts_as_shares_and_says_so() -> None:
    inventory, problems = registered("GPU-0,10,16000,NVIDIA-X1,true,mig")
    assert (inventory.mode, inventory.tables) == ("hami-core", ())
    assert problems == ["NoMigTable"]


def test_a_card_without_a_table_among_others_takes_nothing() -> None:
    inventory, problems = registered(
        "GPU-0,10,16000,NVIDIA-X1,true,mig", "GPU-1,10,16000,NVIDIA-A100,true,mig", number=20
    )
    assert [card.table for card in inventory.cards] == [NO_TABLE, 0]
    assert "NoMigTable" in problems


def test_mps_is_a_mode_of_its_own() -> None:
    inventory, problems = registered("GPU-0,10,16000,NVIDIA-T4,true,mps")
    assert (inventory.mode, problems) == ("mps", [])


def test_over_commit_scales_cards_and_says_what_kubelet_does_not_list() -> None:
    config = DeviceConfig(nvidia=Nvidia(memory_scaling_milli=1500, cores_scaling_milli=2000))
    inventory, problems = registered("GPU-0,10,16000,NVIDIA-T4,true,hami-core", config=config)
    assert [(c.memory_mib, c.cores_pct) for c in inventory.cards] == [(24_000, 200)]
    assert problems == ["DeviceConfigMismatch", "DeviceConfigMismatch"]


def test_no_more_compute_of_a_card_is_counted_than_the_columns_can() -> None:
    config = DeviceConfig(nvidia=Nvidia(cores_scaling_milli=1_000_000))
    inventory, _ = registered("GPU-0,10,16000,NVIDIA-T4,true,hami-core", config=config)
    assert [card.cores_pct for card in inventory.cards] == [CORES_MOST]


def test_a_node_config_that_contradicts_its_node() -> None:
    said = NodeConfig("n1", mode="mig", split_count=2, hidden_ids=("GPU-0",))
    inventory, problems = registered(
        "GPU-0,10,16000,NVIDIA-T4,true,hami-core",
        config=DeviceConfig(nodes=(NodeConfig("other", mode="mps"), said)),
    )
    assert [card.healthy for card in inventory.cards] == [False]
    assert problems == ["DeviceConfigMismatch"] * 3


def test_renamed_resources() -> None:
    config = DeviceConfig(nvidia=Nvidia(count_name="nvidia.com/gpu", default_memory=3000))
    source = PodSource({}, [ContainerSource("c", {"nvidia.com/gpu": "2"}, {})], [], config=config)
    (found,), problem = VGPU.requests(source)
    assert problem is None
    assert (found.count, found.memory_mib, found.memory_pct) == (2, 3000, 0)


def test_a_mig_holding_on_the_wire() -> None:
    holding = Holding("vgpu", 0, "GPU-0", 5000, 0, "g1-0")
    text = VGPU.annotations("n1", (holding,), 1, 1)[keys.VGPU_IDS]
    assert text == "GPU-0[g1-0],NVIDIA,5000,0:"
    source = pod(short(number=1, memory=5000), annotations={keys.VGPU_IDS: text})
    assert VGPU.holdings(source) == ((holding,), ())


def test_a_card_without_memory_takes_nobody() -> None:
    entry = "GPU-a,10,12GiB,NVIDIA-T4,true,hami-core:"
    node = NodeSource({keys.NODE_VGPU_REGISTER: entry}, {}, LISTED)
    found, problems = VGPU.inventory(node)
    assert found is not None
    assert [card.healthy for card in found.cards] == [False]
    assert "'12GiB'" in problems[0].message


def test_a_node_that_never_registered_has_no_problem() -> None:
    assert VGPU.inventory(NodeSource({}, {}, {})) == (None, ())


@pytest.mark.parametrize(
    ("containers", "text", "held"),
    [
        ([short(number=1)], "GPU-0,NVIDIA,5,1:", [(0, "GPU-0")]),
        ([{}, short(number=1)], "GPU-0,NVIDIA,5,1:", [(1, "GPU-0")]),
        (
            [short(number=1), {}, short(number=1)],
            "GPU-0,NVIDIA,5,1:;GPU-1,NVIDIA,5,1:",
            [(0, "GPU-0"), (2, "GPU-1")],
        ),
        ([short(number=0), short(number=1)], "GPU-0,NVIDIA,5,1:", [(1, "GPU-0")]),
        ([short(number=0), short(number=1)], ";GPU-0,NVIDIA,5,1:", [(1, "GPU-0")]),
        ([], "GPU-0,NVIDIA,5,1:;GPU-0,NVIDIA,5,1:", [(0, "GPU-0"), (1, "GPU-0")]),
        (
            [{}, short(number=1)],
            "GPU-0,NVIDIA,5,1:;GPU-0,NVIDIA,5,1:",
            [(1, "GPU-0"), (2, "GPU-0")],
        ),
    ],
)
def test_vgpu_holdings_by_container(
    containers: list[dict[str, str]], text: str, held: list[tuple[int, str]]
) -> None:
    """Group k is the k-th asking container; two groups never fall on one container."""
    found, problems = VGPU.holdings(pod(*containers, annotations={keys.VGPU_IDS: text}))
    assert [(h.container, h.card) for h in found] == held
    assert problems == ()


@pytest.mark.parametrize(
    ("main", "init", "memory_mib", "count"),
    [
        ([{keys.GPU_MEMORY: "1"}, {keys.GPU_MEMORY: "3"}], [], 4, 1),
        ([{keys.GPU_MEMORY: "2"}], [{keys.GPU_MEMORY: "3"}], 3, 1),
        ([{keys.GPU_NUMBER: "2"}], [], 0, 2),
    ],
)
def test_gpushare_amounts(
    main: list[dict[str, str]], init: list[dict[str, str]], memory_mib: int, count: int
) -> None:
    source = PodSource(
        {},
        [ContainerSource("m", limits, {}) for limits in main],
        [ContainerSource("i", limits, {}) for limits in init],
    )
    (found,), problem = SHARE.requests(source)
    assert problem is None
    assert (found.memory_mib, found.count) == (memory_mib, count)


def test_gpushare_memory_and_number_exclude_each_other() -> None:
    _, problem = SHARE.requests(pod({keys.GPU_MEMORY: "1", keys.GPU_NUMBER: "1"}))
    assert problem is not None
    assert "not for both" in problem.message


@pytest.mark.parametrize(
    ("capacity", "cards", "code"),
    [
        ({keys.GPU_MEMORY: "100", keys.GPU_NUMBER: "3"}, 3, None),
        ({keys.GPU_MEMORY: "100", keys.GPU_NUMBER: "0"}, 0, None),
        ({keys.GPU_NUMBER: "2"}, 0, None),
        ({keys.GPU_MEMORY: "x", keys.GPU_NUMBER: "2"}, 0, "BrokenCapacity"),
        ({keys.GPU_MEMORY: "1", keys.GPU_NUMBER: "1G"}, 0, "BrokenCapacity"),
    ],
)
def test_gpushare_nodes(capacity: dict[str, str], cards: int, code: str | None) -> None:
    inventory, problems = SHARE.inventory(NodeSource({}, capacity, {}))
    assert len(inventory.cards if inventory else ()) == cards
    assert [p.code for p in problems] == ([code] if code else [])


def test_gpushare_holdings_from_indexes() -> None:
    source = pod({keys.GPU_NUMBER: "2"}, annotations={keys.GPU_INDEX: "2, 0,x"})
    found, problems = SHARE.holdings(source)
    assert [(h.card, h.memory_mib, h.cores_pct) for h in found] == [("0", 0, 100), ("2", 0, 100)]
    assert [p.code for p in problems] == ["BrokenIndexList"]
