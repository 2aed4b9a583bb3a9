"""Ascend through HAMi: what nodes offer, what pods ask and hold, which chips they get."""

import json
from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.rules.scores import score
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import Holding, PodRequest, Policy
from allotment_proto.volcano import keys
from tests import build, chips
from tests.chips import SOFT, asks, entry

ASCEND = FAMILIES["ascend"]
MICRO = 1_000_000


def test_resources_are_those_of_the_configuration() -> None:
    assert ASCEND.resources(chips.CONFIG) == {
        "huawei.com/Ascend310P",
        "huawei.com/Ascend310P-memory",
        "huawei.com/Ascend310P-core",
        "huawei.com/Ascend910B3",
        "huawei.com/Ascend910B3-memory",
        "huawei.com/Ascend910B3-core",
    }
    assert ASCEND.unadvertised(chips.CONFIG) == {
        name for name in ASCEND.resources(chips.CONFIG) if name.endswith(("-memory", "-core"))
    }
    assert ASCEND.resources(DeviceConfig()) == frozenset()


# ---- nodes


def test_chips_of_several_kinds_are_one_inventory() -> None:
    source = chips.ascend_source(
        entry("d1"), entry("a", "Ascend910B3", network=1), entry("d2", health=False)
    )
    found = chips.inventory("ascend", source)
    assert (found.family, found.mode) == ("ascend", "")
    assert [(c.id, c.index, c.model, c.cores_pct, c.healthy, c.network) for c in found.cards] == [
        ("a", 0, "Ascend910B3", 20, True, 1),
        ("d1", 1, "Ascend310P", 8, True, -1),
        ("d2", 2, "Ascend310P", 8, False, -1),
    ]


@pytest.mark.parametrize(
    ("configured", "annotation", "mode", "cores"),
    [
        (False, None, "", 8),
        (False, "false", "", 8),
        (False, "true", "hami-core", 100),
        (True, None, "hami-core", 100),
        (True, "false", "", 8),
        (True, "yes", "", 8),
    ],
)
def test_soft_slicing(configured: bool, annotation: str | None, mode: str, cores: int) -> None:
    config = DeviceConfig(ascend=chips.CONFIG.ascend, ascend_soft_slicing=configured)
    said = {} if annotation is None else {keys.HAMI_SOFT_SLICING: annotation}
    found = chips.inventory(
        "ascend", chips.ascend_source(entry("d1"), annotations=said, config=config)
    )
    assert (found.mode, found.cards[0].cores_pct) == (mode, cores)


@pytest.mark.parametrize(
    ("register", "allocatable", "code"),
    [
        (None, "7", None),
        ("", "7", None),
        ("{", "7", "BrokenRegister"),
        ("[]", "7", "BrokenRegister"),
        ('[{"id": "d1", "count": "many"}]', "7", "BrokenRegister"),
        (json.dumps([entry("d1")]), "0", "NotAllocatable"),
        (json.dumps([entry("d1")]), None, "NotAllocatable"),
        (json.dumps([entry("d1")]), "some", "BrokenQuantity"),
    ],
)
def test_nodes_without_chips(
    register: str | None, allocatable: str | None, code: str | None
) -> None:
    source = chips.ascend_source()._replace(
        annotations={} if register is None else {keys.hami_register("Ascend310P"): register},
        allocatable={} if allocatable is None else {"huawei.com/Ascend310P": allocatable},
    )
    found, problems = ASCEND.inventory(source)
    assert found is None
    assert {problem.code for problem in problems} == ({code} if code else set())


def test_a_chip_is_of_one_kind_and_has_memory() -> None:
    source = chips.ascend_source(
        entry("d1", "Ascend910B3"), entry("d1"), entry("d2", devmem=0), entry("d3")
    )
    found, (problem,) = ASCEND.inventory(source)
    assert found is not None
    assert [(c.id, c.model, c.healthy) for c in found.cards] == [
        ("d1", "Ascend910B3", True),
        ("d2", "Ascend310P", False),
        ("d3", "Ascend310P", True),
    ]
    assert (problem.code, "'d1'" in problem.message) == ("BrokenRegister", True)


# ---- requests


@pytest.mark.parametrize(
    ("memory", "trimmed", "templates"),
    [
        (None, 21527, ()),
        (0, 21527, ()),
        (1, 3072, ("vir01",)),
        (3071, 3072, ("vir01",)),
        (3072, 3072, ("vir01",)),
        (6145, 12288, ("vir04",)),
        (12289, 21527, ()),
        (24576, 21527, ()),
    ],
)
def test_memory_is_trimmed_to_a_template(
    memory: int | None, trimmed: int, templates: tuple[str, ...]
) -> None:
    limits = asks() if memory is None else asks(memory=memory)
    (found,), problem = ASCEND.requests(chips.pod_source(limits))
    assert problem is None
    assert (found.memory_mib, found.memory_pct, found.cores_pct) == (trimmed, 0, 0)
    assert (found.chip, found.templates, found.count) == ("Ascend310P", templates, 1)


def test_a_soft_slice_is_what_was_asked_for() -> None:
    source = chips.pod_source(asks(memory=4096, core=50), asks(number=2), annotations=SOFT)
    found, problem = ASCEND.requests(source)
    assert problem is None
    assert [(r.container, r.count, r.memory_mib, r.memory_pct, r.cores_pct) for r in found] == [
        (0, 1, 4096, 0, 50),
        (1, 2, 0, 100, 0),
    ]


def test_containers_ask_for_themselves() -> None:
    both = {**asks(), **asks("Ascend910B3", 2)}
    found, problem = ASCEND.requests(chips.pod_source({}, asks(number=0), both))
    assert problem is None
    assert [(r.container, r.chip, r.count, r.memory_mib) for r in found] == [
        (2, "Ascend910B3", 2, 65536),
        (2, "Ascend310P", 1, 21527),
    ]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (asks(memory=24577), "huawei.com/Ascend310P-memory is 24577; a Ascend310P has 24576 MiB"),
        (asks(number=2, memory=3072), "several chips come whole: leave it out, or set it to 21527"),
        (asks(number=0, memory=3072), "huawei.com/Ascend310P is 0: kubelet would start"),
        (asks(number=65), "huawei.com/Ascend310P is 65; at most 64"),
        (asks(core=101), "huawei.com/Ascend310P-core is 101; at most 100"),
        ({"huawei.com/Ascend310P": "x"}, "'x' is not a quantity"),
        ({"huawei.com/Ascend310P-memory": "3072"}, "write huawei.com/Ascend310P: 1"),
        ({"huawei.com/Ascend310P-core": "4"}, "write huawei.com/Ascend310P: 1"),
    ],
)
def test_requests_that_cannot_be_granted(limits: dict[str, str], says: str) -> None:
    problem = chips.problem_of("ascend", chips.pod_source(limits))
    assert problem.code == reasons.INVALID_REQUEST
    assert says in f"{problem.place} {problem.message}"
    assert "container 'c0'" in problem.place


def test_more_than_a_request() -> None:
    source = chips.pod_source({})
    container = source.containers[0]
    only_requested = source._replace(containers=[container._replace(requests=asks())])
    assert "must be a limit" in chips.problem_of("ascend", only_requested).message
    init = source._replace(init_containers=[container._replace(limits=asks())])
    assert "init container" in chips.problem_of("ascend", init).message
    assert ASCEND.requests(source) == ((), None)


# ---- chips on a node


def state(*entries: Any, soft: bool = False, held: tuple[Holding, ...] = ()) -> ClusterState:
    source = chips.ascend_source(*entries, annotations={keys.HAMI_SOFT_SLICING: str(soft).lower()})
    node = chips.node("n1", chips.inventory("ascend", source))
    others = [
        build.pod(f"e{n}", PodRequest(), node="n1", phase="Running", holdings=(one,))
        for n, one in enumerate(held)
    ]
    return build.state_of(node, *others)


def place(
    state: ClusterState,
    *limits: dict[str, str],
    annotations: dict[str, str] | None = None,
    policy: str = "binpack",
) -> list[tuple[int, str, int, int, str]] | str:
    wanted = chips.request("ascend", chips.pod_source(*limits, annotations=annotations))
    found = fits(state.nodes["n1"], wanted, Policy(device_policy=policy))
    if isinstance(found, str):
        return found
    return [
        (h.container, h.card, h.memory_mib, h.cores_pct, h.instance)
        for h in found.chosen[0].holdings
    ]


def held(card: str, memory_mib: int, cores: int = 0) -> Holding:
    return Holding("ascend", 0, card, memory_mib, cores, "Ascend310P/vir01")


def test_a_template_and_a_whole_chip() -> None:
    one = state(entry("d1"))
    assert place(one, asks(memory=1)) == [(0, "d1", 3072, 0, "Ascend310P/vir01")]
    assert place(one, asks()) == [(0, "d1", 21527, 0, "Ascend310P/")]
    assert place(state(entry("d1"), held=(held("d1", 3072),)), asks()) == (
        reasons.INSUFFICIENT_GPU_MEMORY
    )


def test_a_used_chip_is_preferred_and_slots_count() -> None:
    two = state(entry("d1"), entry("d2"), held=(held("d2", 3072),))
    assert place(two, asks(memory=3072)) == [(0, "d2", 3072, 0, "Ascend310P/vir01")]
    assert place(two, asks(memory=3072), policy="spread") == [
        (0, "d1", 3072, 0, "Ascend310P/vir01")
    ]
    full = state(entry("d1", count=1), held=(held("d1", 3072),))
    assert place(full, asks(memory=3072)) == reasons.SHARE_LIMIT_REACHED


def test_containers_of_a_pod_share_no_chip() -> None:
    small = asks(memory=3072)
    assert place(state(entry("d1")), small, small) == reasons.NOT_ENOUGH_GPUS_ON_NODE
    found = place(state(entry("d1"), entry("d2")), small, small)
    assert [h[:2] for h in found] == [(0, "d1"), (1, "d2")]


@pytest.mark.parametrize(
    ("cores", "used", "answer"),
    [
        (50, 50, ["d1"]),
        (20, 90, reasons.INSUFFICIENT_GPU_COMPUTE),
        (0, 100, reasons.INSUFFICIENT_GPU_COMPUTE),
        (100, 0, reasons.EXCLUSIVE_CONFLICT),
    ],
)
def test_compute_of_soft_slices(cores: int, used: int, answer: list[str] | str) -> None:
    one = state(entry("d1", devcore=100), soft=True, held=(held("d1", 1024, used),))
    found = place(one, asks(memory=1024, core=cores), annotations=SOFT)
    assert (found if isinstance(found, str) else [h[1] for h in found]) == answer


def test_soft_slices_need_nodes_that_slice() -> None:
    small = asks(memory=4096)
    assert place(state(entry("d1")), small, annotations=SOFT) == reasons.GPU_MODE_MISMATCH
    found = place(state(entry("d1"), soft=True), small, annotations=SOFT)
    assert found == [(0, "d1", 4096, 0, "Ascend310P/hami-core")]
    assert place(state(entry("d1"), soft=True), small) == [(0, "d1", 6144, 0, "Ascend310P/vir02")]


def test_a_chip_of_another_kind_will_not_do() -> None:
    one = state(entry("a", "Ascend910B3"))
    assert place(one, asks()) == reasons.GPU_MODEL_MISMATCH
    two = state(entry("a", "Ascend910B3"), entry("d1", health=False))
    assert place(two, asks()) == reasons.GPU_UNHEALTHY


def networked(*networks: int) -> ClusterState:
    names = "abcdef"
    return state(*(entry(names[n], "Ascend910B3", net) for n, net in enumerate(networks)))


def test_chips_of_the_network_with_most_come_first() -> None:
    two = asks("Ascend910B3", 2)
    assert [h[1] for h in place(networked(0, 1, 1), two)] == ["b", "c"]
    assert [h[1] for h in place(networked(1, 1, 0, 0), two)] == ["c", "d"]
    assert [h[1] for h in place(networked(0, 1, -1), two)] == ["a", "b"]
    mixed = state(entry("a", "Ascend910B3", 0), entry("b", "Ascend910B3", 0), entry("d1"))
    assert [h[1] for h in place(mixed, two)] == ["a", "b"]


def points(state: ClusterState, *limits: dict[str, str], policy: str = "binpack") -> float:
    wanted = chips.request("ascend", chips.pod_source(*limits))
    chosen = Policy(device_policy=policy, device_weight=1, host_weight=0)
    found = fits(state.nodes["n1"], wanted, chosen)
    assert isinstance(found, Fit)
    return dict(score(state.nodes["n1"], wanted, found, chosen).terms)["device"] / MICRO


def test_scores_count_the_first_chip_before_the_charge() -> None:
    half = state(entry("d1", devmem=32_000), held=(held("d1", 16_000),))
    assert points(half, asks(memory=3072)) == 50
    assert points(half, asks(memory=3072), policy="spread") == 0
    assert points(half, asks(memory=3072), policy="none") == 0
    idle = state(entry("d1"), entry("d2"))
    assert points(idle, asks(number=2), policy="spread") == 100
    assert points(idle, asks(memory=1), asks(memory=1), policy="spread") == 200
    assert points(idle, asks(memory=1)) == 0


@pytest.mark.parametrize("policy", ["binpack", "spread", "none"])
def test_one_network_earns_points(policy: str) -> None:
    one, two = asks("Ascend910B3"), asks("Ascend910B3", 2)
    for networks, limits, extra in (
        ((0, 1), (two,), 10),
        ((0, 1), (one, one), 5),
        ((1, 1), (one, one), 10),
        ((0, 1, -1), (two,), 0 if policy == "none" else 10),
    ):
        cards = 100 * len(limits) if policy == "spread" else 0
        assert points(networked(*networks), *limits, policy=policy) == cards + extra


# ---- annotations


def test_annotations_of_a_soft_slice_and_a_template() -> None:
    soft = (Holding("ascend", 0, "d1", 4096, 50, "Ascend310P/hami-core"),)
    written = ASCEND.annotations("n1", soft, 7, 9)
    assert written["huawei.com/Ascend310P"] == '[{"UUID":"d1","memory":4096,"core":50}]'
    assert written["hami.io/Ascend310P-devices-allocated"] == "d1,Ascend310P,4096,50:;"
    template = (Holding("ascend", 0, "d1", 3072, 0, "Ascend310P/vir01"),)
    written = ASCEND.annotations("n1", template, 7, 9)
    assert written["huawei.com/Ascend310P"] == '[{"UUID":"d1","temp":"vir01"}]'
    assert (written["hami.io/vgpu-time"], written["hami.io/bind-time"]) == ("7", "9")


def test_every_container_of_a_bound_pod_is_charged() -> None:
    source = chips.pod_source(
        {},
        asks(memory=3072),
        asks("Ascend910B3", memory=16384),
        asks(memory=6144),
        annotations={
            "hami.io/Ascend310P-devices-allocated": "d1,Ascend310P,3072,1:;d2,Ascend310P,6144,2:;",
            "huawei.com/Ascend310P": '[{"UUID":"d1","temp":"vir01"},{"UUID":"d2","temp":"vir02"}]',
            "hami.io/Ascend910B3-devices-allocated": "a,Ascend910B3,16384,0:;",
        },
    )
    assert ASCEND.holdings(source) == (
        (
            Holding("ascend", 2, "a", 16384, 0, "Ascend910B3/"),
            Holding("ascend", 1, "d1", 3072, 1, "Ascend310P/vir01"),
            Holding("ascend", 3, "d2", 6144, 2, "Ascend310P/vir02"),
        ),
        (),
    )


def test_groups_belong_to_containers_that_ask_for_more_than_nothing() -> None:
    text = {"hami.io/Ascend310P-devices-allocated": "d1,Ascend310P,3072,0:;"}
    source = chips.pod_source(asks(number=0), asks(), annotations=text)
    assert [h.container for h in ASCEND.holdings(source)[0]] == [1]


def test_what_cannot_be_read_is_said() -> None:
    text = {"hami.io/Ascend310P-devices-allocated": "d1,Ascend310P:;"}
    holdings, (problem,) = ASCEND.holdings(chips.pod_source(asks(), annotations=text))
    assert holdings == ()
    assert "hami.io/Ascend310P-devices-allocated" in problem.place
