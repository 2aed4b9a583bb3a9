"""MindCluster: what nodes offer, what pods ask and hold, which chips and pieces they get."""

import json
from typing import Any

import pytest

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.partitions.mindcluster import (
    CLOSED,
    ENGINE_FREE,
    ENGINE_TAKEN,
    MINDCLUSTER,
)
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NodeSource
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.rules.scores import score
from allotment_board.board import Board
from allotment_proto.facts import CardFact, DeviceRequest, Holding, PodRequest, Policy
from allotment_proto.volcano import keys
from tests import build, chips
from tests.chips import npu

NPU = FAMILIES["mindcluster"]
CHIP = CardFact("0", 0, "Ascend310P", 7, 0, 8, True, "")
NAMES = {0: "yes", 1: "null", 2: "no"}


# ---- nodes


def test_the_chips_of_a_node() -> None:
    found = chips.inventory("mindcluster", chips.npu_source(3, unhealthy=(1,)))
    assert (found.family, found.mode) == ("mindcluster", "")
    assert [(c.id, c.slots, c.memory_mib, c.cores_pct, c.healthy) for c in found.cards] == [
        ("0", 7, 0, 8, True),
        ("1", 7, 0, 8, False),
        ("2", 7, 0, 8, True),
    ]
    assert {card.model for card in found.cards} == {"Ascend310P"}


def own_info(node: str = "n1") -> dict[str, str]:
    """What a node's own ConfigMap says, where no other tells of the whole cluster."""
    entry = {"DeviceList": {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"}}
    return {f"kube-system/mindx-dl-deviceinfo-{node}/DeviceInfoCfg": json.dumps(entry)}


def test_information_of_single_nodes() -> None:
    found = chips.inventory("mindcluster", chips.npu_source(2, device_info=own_info()))
    assert [card.id for card in found.cards] == ["0", "1"]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"capacity": {}}, set()),
        ({"capacity": {keys.NPU_CORE: "0"}}, set()),
        ({"capacity": {keys.NPU_CORE: "x"}}, {"BrokenCapacity"}),
        ({"capacity": {keys.NPU_CORE: "15"}}, {"BrokenNpuNode"}),
        ({"labels": {}}, {"BrokenNpuNode"}),
        ({"device_info": {}}, {"BrokenNpuNode"}),
        ({"device_info": own_info("n2")}, {"BrokenNpuNode"}),
        (
            {"device_info": {"mindx-dl/cluster-info-device-0/cluster-info-device-0": "{"}},
            {"BrokenNpuNode", "BrokenDeviceInfo"},
        ),
    ],
)
def test_nodes_without_chips(changes: dict[str, Any], codes: set[str]) -> None:
    found, problems = NPU.inventory(chips.npu_source(2, **changes))
    assert found is None
    assert {problem.code for problem in problems} == codes


def test_a_node_that_was_set_apart_takes_nothing() -> None:
    source = chips.npu_source(2, annotations={keys.NPU_NODE_HEALTH: keys.NPU_NODE_SEPARATED})
    found, (problem,) = NPU.inventory(source)
    assert found is not None
    assert not any(card.healthy for card in found.cards)
    assert (problem.code, keys.NPU_NODE_HEALTH in problem.place) == ("NodeSeparated", True)


# ---- requests


@pytest.mark.parametrize(
    ("cores", "labels", "count", "each", "templates"),
    [
        (1, {}, 1, 1, ("vir01",)),
        (2, {}, 1, 2, ("vir02_1c",)),
        (2, {"vnpu-level": "mid"}, 1, 2, ("vir02_1c",)),
        (2, {"vnpu-level": "high"}, 1, 2, ("vir02", "vir02_1c")),
        (4, {"vnpu-level": "high"}, 1, 4, ("vir04", "vir04_3c")),
        (4, {"vnpu-dvpp": "yes"}, 1, 4, ("vir04_4c_dvpp",)),
        (4, {"vnpu-dvpp": "no"}, 1, 4, ("vir04_3c_ndvpp",)),
        (8, {}, 1, 8, ()),
        (16, {"vnpu-level": "high"}, 2, 8, ()),
        (10, {}, 1, 10, ()),
        (30, {}, 3, 10, ()),
    ],
)
def test_cores_are_a_template_or_whole_chips(
    cores: int, labels: dict[str, str], count: int, each: int, templates: tuple[str, ...]
) -> None:
    labels = {keys.LABEL_RING: keys.RING_310P, **labels}
    (found,), problem = NPU.requests(chips.pod_source({}, npu(cores), labels=labels))
    assert problem is None
    assert (found.container, found.count, found.cores_pct) == (1, count, each)
    assert (found.templates, found.memory_mib, found.memory_pct) == (templates, 0, 0)


@pytest.mark.parametrize(
    ("limits", "labels", "says"),
    [
        ((npu(3),), {}, "is 3; wanted: 1, 2 or 4 cores of a chip, or a multiple of 8 or 10"),
        ((npu(8 * 65),), {}, "is 520; at most 64 chips"),
        ((npu(2),), {"vnpu-dvpp": "maybe"}, "'maybe'; wanted: yes, no or null"),
        ((npu(8),), {keys.LABEL_RING: "ascend-910"}, "is 'ascend-910'"),
        ((npu(1), npu(1)), {}, "containers c0, c1 ask for huawei.com/npu-core"),
        (({keys.NPU_CORE: "x"},), {}, "'x' is not a quantity"),
    ],
)
def test_requests_that_cannot_be_granted(
    limits: tuple[dict[str, str], ...], labels: dict[str, str], says: str
) -> None:
    problem = chips.problem_of("mindcluster", chips.pod_source(*limits, labels=labels))
    assert problem.code == reasons.INVALID_REQUEST
    assert says in f"{problem.place} {problem.message}"


def test_nothing_and_no_limit() -> None:
    assert NPU.requests(chips.pod_source({}, npu(0))) == ((), None)
    source = chips.pod_source({})
    container = source.containers[0]
    only_requested = source._replace(containers=[container._replace(requests=npu(1))])
    assert "must be a limit" in chips.problem_of("mindcluster", only_requested).message
    init = source._replace(init_containers=[container._replace(limits=npu(1))])
    assert "init container" in chips.problem_of("mindcluster", init).message


# ---- one chip


def free(*held: str) -> str:
    """What a chip has left, as cores/CPUs/engine."""
    state = MINDCLUSTER.state(CHIP, (), held) or (8, 7, ENGINE_FREE, 0)
    return f"{state[0]}/{state[1]}/{NAMES[state[2]]}"


@pytest.mark.parametrize(
    ("held", "left"),
    [
        ((), "8/7/yes"),
        (("vir01",), "7/6/null"),
        (("vir01", "vir01"), "6/5/null"),
        (("vir02_1c",), "6/6/null"),
        (("vir02",), "6/5/null"),
        (("vir04_3c",), "4/4/null"),
        (("vir04_4c_dvpp",), "4/3/no"),
        (("vir04_3c_ndvpp",), "4/4/yes"),
        (("vir04_4c_dvpp", "vir04_3c_ndvpp"), "0/0/no"),
    ],
)
def test_what_pieces_leave(held: tuple[str, ...], left: str) -> None:
    assert free(*held) == left
    assert free(*reversed(held)) == left


@pytest.mark.parametrize("held", [("",), ("vir02?",), ("vir99",), ("vir04",) * 3])
def test_chips_that_give_nothing(held: tuple[str, ...]) -> None:
    assert MINDCLUSTER.state(CHIP, (), held) == CLOSED
    assert not MINDCLUSTER.admits(CHIP, (), held, ("vir01",))
    assert not MINDCLUSTER.admits(CHIP, (), held, ("",))


def ask(*templates: str, cores: int = 8) -> DeviceRequest:
    return DeviceRequest("mindcluster", 0, "c", 1, 0, 0, cores, "Ascend310P", templates)


def given(held: tuple[str, ...], *templates: str, cores: int = 8) -> str | None:
    state = MINDCLUSTER.state(CHIP, (), held)
    piece = MINDCLUSTER.piece(CHIP, (), state, ask(*templates, cores=cores), "")
    if piece is None:
        return None
    name = MINDCLUSTER.name((), piece, held)
    assert MINDCLUSTER.admits(CHIP, (), held, (name,))
    assert piece.after == MINDCLUSTER.state(CHIP, (), (*held, name))
    return name


@pytest.mark.parametrize(
    ("held", "templates", "name"),
    [
        ((), ("vir02", "vir02_1c"), "vir02"),
        (("vir02", "vir02", "vir02"), ("vir02", "vir02_1c"), "vir02_1c"),
        (("vir04",), ("vir04", "vir04_3c"), "vir04_3c"),
        (("vir04",), ("vir04_4c_dvpp",), None),
        (("vir04_4c_dvpp",), ("vir01",), None),
        (("vir04_4c_dvpp",), ("vir04_3c_ndvpp",), "vir04_3c_ndvpp"),
        (("vir04_3c_ndvpp",), ("vir04_4c_dvpp",), "vir04_4c_dvpp"),
        (("vir01",) * 3, ("vir04_3c",), None),
        (("vir01",) * 3, ("vir02",), "vir02"),
        (("vir01",) * 4, ("vir02",), None),
        (("vir01",) * 4, ("vir01",), "vir01"),
        (("vir01",) * 7, ("vir01",), None),
        (("vir01",), (), None),
        ((), (), ""),
    ],
)
def test_which_piece_a_chip_gives(
    held: tuple[str, ...], templates: tuple[str, ...], name: str | None
) -> None:
    assert given(held, *templates) == name


def test_a_chip_of_another_size_is_not_asked_for_whole() -> None:
    assert given((), cores=10) is None


def test_groups_are_the_310p_s() -> None:
    other = CardFact("0", 0, "Ascend910B3", 6, 0, 20, True, "")
    state = MINDCLUSTER.state(other, (), ("vir01",) * 4)
    assert MINDCLUSTER.piece(other, (), state, ask("vir02", cores=2), "") is not None
    assert MINDCLUSTER.state(other, (), ("vir04_4c_dvpp",))[2] == ENGINE_TAKEN


def test_every_state_is_told_in_advance() -> None:
    known = set(MINDCLUSTER.states(CHIP, ()))
    assert len(known) < 64
    for name in ("vir01", "vir02", "vir04_4c_dvpp", "vir04_3c_ndvpp"):
        held: tuple[str, ...] = ()
        while MINDCLUSTER.admits(CHIP, (), held, (name,)):
            held = (*held, name)
            assert MINDCLUSTER.state(CHIP, (), held) in known


# ---- chips on nodes


def cluster(*sources: NodeSource, held: tuple[Holding, ...] = ()) -> ClusterState:
    nodes = [
        chips.node(f"n{number}", chips.inventory("mindcluster", source))
        for number, source in enumerate(sources, start=1)
    ]
    others = [
        build.pod(f"e{n}", PodRequest(), node="n1", phase="Running", holdings=(one,))
        for n, one in enumerate(held)
    ]
    return build.state_of(*nodes, *others)


def place(state: ClusterState, cores: int, **labels: str) -> list[str] | str:
    wanted = chips.request(
        "mindcluster",
        chips.pod_source(npu(cores), labels={f"vnpu-{k}": v for k, v in labels.items()}),
    )
    found = fits(state.nodes["n1"], wanted, Policy())
    if isinstance(found, str):
        return found
    return [f"{h.card}-{h.instance}" for h in found.chosen[0].holdings]


def held(card: str, template: str, cores: int) -> Holding:
    return Holding("mindcluster", 0, card, 0, cores, template)


def test_whole_chips_and_pieces() -> None:
    two = cluster(chips.npu_source(2))
    assert place(two, 16) == ["0-", "1-"]
    assert place(two, 24) == reasons.NOT_ENOUGH_GPUS_ON_NODE
    assert place(two, 1) == ["0-vir01"]
    cut = cluster(chips.npu_source(2), held=(held("0", "vir01", 1),))
    assert place(cut, 16) == reasons.NO_FITTING_INSTANCE
    assert place(cut, 8) == ["1-"]
    assert place(cut, 10) == reasons.NO_FITTING_INSTANCE


def test_templates_mix_on_a_node_and_the_fullest_chip_comes_first() -> None:
    state = cluster(chips.npu_source(3), held=(held("1", "vir02", 2), held("2", "vir04", 4)))
    assert place(state, 1) == ["2-vir01"]
    assert place(state, 4, level="high") == ["1-vir04"]


def test_a_chip_that_gives_what_was_asked_for_comes_before_a_fuller_one() -> None:
    state = cluster(chips.npu_source(2), held=(held("1", "vir04", 4), held("1", "vir02", 2)))
    assert place(state, 2, level="low") == ["1-vir02_1c"]
    assert place(state, 2, level="high") == ["0-vir02"]
    full = cluster(chips.npu_source(1), held=(held("0", "vir04", 4), held("0", "vir02", 2)))
    assert place(full, 2, level="high") == ["0-vir02_1c"]


def test_a_chip_with_an_unconfirmed_piece_is_passed_over() -> None:
    state = cluster(chips.npu_source(2), held=(held("0", "vir01?", 1),))
    assert place(state, 1) == ["1-vir01"]


def test_a_node_that_need_not_downgrade_is_better() -> None:
    busy = (held("0", "vir04", 4), held("0", "vir02", 2))
    state = cluster(chips.npu_source(1), chips.npu_source(1), held=busy)
    policy = Policy(device_weight=1, host_weight=0)
    for level, points in (("high", (0, 25)), ("low", (100, 25))):
        source = chips.pod_source(npu(2), labels={"vnpu-level": level})
        wanted = chips.request("mindcluster", source)
        found = []
        for name in ("n1", "n2"):
            fit = fits(state.nodes[name], wanted, policy)
            assert isinstance(fit, Fit)
            found.append(score(state.nodes[name], wanted, fit, policy).total_micro)
        assert tuple(found) == tuple(n * 1_000_000 for n in points)
        apply(state, build.pod("p", wanted, rv=99), 99)
        placement = run_cycle(state, ["p"], Board(state)).placements[0]
        assert placement.node == ("n2" if level == "high" else "n1")
        assert run_cycle(state, ["p"], Evaluator(state)).placements == (placement,)
        state.pods.pop("p")


# ---- annotations


def test_annotations_of_whole_chips_and_a_piece() -> None:
    whole = (held("1", "", 8), held("0", "", 8))
    assert NPU.annotations("n1", whole, 7, 9) == {
        keys.NPU_CORE: "0,1",
        keys.NPU_PREDICATE_TIME: "7000000000",
    }
    assert NPU.annotations("n1", (held("0", "vir02", 2),), 7, 9)[keys.NPU_CORE] == "0-vir02"


def test_what_bound_pods_hold() -> None:
    def holdings(text: str, cores: int, **others: str) -> Any:
        annotations = {keys.NPU_CORE: text, **others}
        return NPU.holdings(chips.pod_source({}, npu(cores), annotations=annotations))

    real = {keys.ASCEND_REAL: "Ascend310P-2c-100-0"}
    ours = {keys.LOG_SEQ: "17"}
    of_second = Holding("mindcluster", 1, "0", 0, 2, "vir02")
    assert holdings("0-vir02", 2, **real) == ((of_second,), ())
    assert holdings("0-vir02", 2, **ours) == ((of_second,), ())
    unconfirmed = Holding("mindcluster", 1, "0", 0, 2, "vir02?")
    assert holdings("0-vir02", 2) == ((unconfirmed,), ())
    whole = tuple(Holding("mindcluster", 1, chip, 0, 8) for chip in ("0", "1"))
    assert holdings("0,1", 16) == (whole, ())
    of_unknown_size = (Holding("mindcluster", 1, "0", 0, 0),)
    assert holdings("0", 3) == (of_unknown_size, ())
    nothing, (problem,) = holdings("0-vir99", 2)
    assert nothing == ()
    assert keys.NPU_CORE in problem.place
    assert NPU.holdings(chips.pod_source(npu(2))) == ((), ())
