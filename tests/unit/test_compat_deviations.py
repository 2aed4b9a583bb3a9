"""Deviations are declared by what a vector exercises: each where it is, and nowhere else."""

import json
from typing import Any

import pytest
from msgspec import structs

from allotment_proto.volcano import keys
from tests.compat.deviations import DEVIATIONS, Deviation
from tests.compat.file import Vector
from tests.compat.verdicts import DEVIATES, MATCHED, MISMATCHED, judge

HAMI = "GPU-a,10,32768,NVIDIA-Tesla V100,true,hami-core:"
MIG = "GPU-a,7,40960,NVIDIA-NVIDIA A100-PCIE-40GB,true,mig:"
CONFIG = """
nvidia:
  knownMigGeometries:
  - models: [A100-PCIE-40GB]
    allowedGeometries:
    - group: group1
      geometries: [{name: 1g.5gb, memory: 5120, count: 7}]
    - group: group2
      geometries:
      - {name: 2g.10gb, memory: 10240, count: 3}
      - {name: 1g.5gb, memory: 5120, count: 1}
"""
CHIPS = """
vnpus:
- {commonWord: Ascend310P, memoryAllocatable: 21527, memoryCapacity: 24576, templates: []}
"""


def pod(name: str = "p", annotations: dict[str, str] | None = None, **limits: str) -> Any:
    """A pod of one container that asks for `number`, `memory`, `cores`, …"""
    asked = {f"volcano.sh/vgpu-{key.replace('_', '-')}": text for key, text in limits.items()}
    return {
        "name": name,
        "uid": name,
        "annotations": annotations or {},
        "containers": [{"limits": asked}] if asked else [],
    }


def holder(name: str, ids: str) -> Any:
    return pod(name, {keys.VGPU_IDS: ids})


def vector(
    register: str,
    *steps: tuple[str, Any],
    existing: tuple[Any, ...] = (),
    expected: dict[str, Any] | None = None,
    **given: Any,
) -> Vector:
    """A scenario on one node; nothing is expected unless it is said."""
    node = {
        "name": "node-1",
        "annotations": {keys.NODE_VGPU_REGISTER: register},
        "allocatable": {
            keys.VGPU_NUMBER: "20",
            keys.VGPU_MEMORY: "99999",
            keys.VGPU_CORES: "200",
        },
    }
    return Vector(
        id="v",
        kind="filter",
        function="scenario",
        input={
            "config": CONFIG,
            "policy": "",
            "node": node,
            "existing": list(existing),
            "steps": [{"op": operation, "pod": asked} for operation, asked in steps],
            **given,
        },
        expected=expected or {},
    )


def ascend(*steps: tuple[str, Any], health: bool = True, allocated: str = "") -> Vector:
    """A scenario on a node with one Ascend chip."""
    chip = {"id": "d", "count": 7, "devmem": 21527, "devcore": 8, "health": health}
    held = [pod("e", {"hami.io/Ascend310P-devices-allocated": allocated})] if allocated else []
    node = {
        "annotations": {"hami.io/node-register-Ascend310P": json.dumps([chip])},
        "allocatable": {"huawei.com/Ascend310P": "7"},
    }
    return Vector(
        id="v",
        kind="filter",
        function="scenario",
        input={
            "type": "Ascend310P",
            "config": CHIPS,
            "node": node,
            "existing": held,
            "steps": [{"op": operation, "pod": asked} for operation, asked in steps],
        },
        expected={},
    )


def _nameless() -> Any:
    return {"annotations": {"hami.io/node-register-Ascend310P": '[{"devmem": 1}]'}}


def chips(count: str, memory: str = "3072") -> Any:
    limits = {"huawei.com/Ascend310P": count, "huawei.com/Ascend310P-memory": memory}
    return {"name": "p", "uid": "p", "annotations": {}, "containers": [{"limits": limits}]}


def pieces(*steps: tuple[str, str, int], outcomes: tuple[dict[str, Any], ...] = ()) -> Vector:
    """A scenario on a node of MindCluster's."""
    return Vector(
        id="v",
        kind="filter",
        function="mindcluster_scenario",
        input={
            "server_type": "Ascend310P-8",
            "chips": 2,
            "per_chip": {"aicore": 8, "aicpu": 7, "free_dvpp": "yes"},
            "steps": [{"op": op, "pod": name, "cores": cores} for op, name, cores in steps],
        },
        expected={"steps": list(outcomes)},
    )


def random(one: Vector) -> Vector:
    return structs.replace(one, nondeterministic=True)


ASKS = ("filter", pod(number="1", memory="1000"))
GIVES = ("allocate", pod(number="1", memory="1000"))
HELD = "GPU-a[group1-0],NVIDIA,1000,0:"
PLAIN = (
    vector(HAMI, ASKS),
    vector(MIG, ASKS, existing=(holder("e", HELD),)),
    ascend(("filter", chips("1")), allocated="d,Ascend310P,3072,0:;"),
    pieces(("allocate", "a", 2), ("allocate", "b", 2)),
)
EXERCISES: dict[str, list[Vector]] = {
    "Q3": [
        vector(MIG, GIVES),
        vector(MIG, existing=(holder("e", HELD), holder("f", HELD))),
    ],
    "Q4": [vector(MIG, ASKS, existing=(holder("e", "GPU-a[group2-0],NVIDIA,8000,0:"),))],
    "Q5": [vector(MIG, ("sub", holder("e", HELD)), existing=(holder("e", HELD),))],
    "Q6": [
        vector(MIG, existing=(holder("e", "GPU-a[group1-9],NVIDIA,1000,0:"),)),
        vector(MIG, ("filter", pod(number="1"))),
        vector(MIG, ("filter", pod(number="1", memory="5", memory_percentage="100"))),
    ],
    "Q7": [vector(HAMI, ("filter", pod(number="1")), policy="spread")],
    "Q8": [vector(HAMI, ("allocate", pod(number="1")), ("release", pod()))],
    "Q9": [
        Vector(
            id="v",
            kind="decode",
            function="ascend_add_pod_usage",
            input={"times": 2},
            expected={},
        )
    ],
    "Q11": [
        vector(HAMI, existing=(holder("e", "GPU-a,NVIDIA,1,0:;GPU-a,NVIDIA,1,0:"),)),
        ascend(allocated="d,Ascend310P,3072,0:;d,Ascend310P,3072,0:;"),
    ],
    "Q12": [vector(HAMI, ("filter", pod(number="0"))), ascend(("filter", chips("0")))],
    "Q15": [
        vector(HAMI.replace("true", "false"), ("filter", pod(number="1"))),
        ascend(("filter", chips("1")), health=False),
    ],
    "Q17": [random(vector(HAMI, GIVES)), random(vector(HAMI, GIVES, ASKS))],
    "Q19": [vector(HAMI, existing=({**holder("e", HELD), "deletionTimestamp": "2026"},))],
    "Q21": [vector(f"{HAMI}:{HAMI.replace('GPU-a', 'GPU-b')}", ("filter", pod(number="1")))],
    "Q22": [
        vector(HAMI, ("filter", pod("p", {keys.USE_GPUTYPE: "A10, V100"}, number="1"))),
        vector(HAMI, existing=(holder("e", "GPU-aaa,NVIDIA,1,0:"),)),
    ],
    "Q23": [ascend(("filter", chips("1", "99999")))],
    "Q24": [
        pieces(
            ("allocate", "a", 2),
            ("filter", "b", 2),
            outcomes=({"op": "allocate", "npu-core": "0-vir02"}, {"op": "filter", "code": 0}),
        ),
        pieces(("filter", "a", 3)),
        pieces(("allocate", "a", 1), ("filter", "b", 2)),
        pieces(("allocate", "a", 8), ("filter", "b", 2)),
    ],
    "Q25": [vector(MIG, config=None)],
    "Q28": [
        vector(HAMI, ("add", holder("e", HELD)), existing=(holder("e", HELD),)),
        vector(HAMI, GIVES, expected={"steps": [{"op": "allocate", "metrics": {}}]}),
    ],
    "Q29": [vector(MIG, GIVES, expected={"steps": [{"op": "allocate", "error": "no"}]})],
    "finished pods": [vector(HAMI, existing=({**holder("e", HELD), "phase": "Failed"},))],
    "mode mps": [vector(HAMI.replace("hami-core", "mps"), ("filter", pod(number="1")))],
    "bad input is refused": [
        vector(HAMI, ("filter", pod(memory="1000"))),
        vector(HAMI, ("filter", pod(number="1500m"))),
        vector(
            HAMI, ("filter", {**pod(number="1"), "initContainers": pod(number="1")["containers"]})
        ),
        vector(HAMI, ("filter", pod("p", {keys.NOUSE_GPUTYPE: ""}, number="1"))),
        vector(HAMI.replace("32768", "much")),
        vector(HAMI + HAMI),
        vector(MIG + HAMI.replace("GPU-a", "GPU-b")),
        vector(HAMI, existing=(holder("e", "GPU-a,NVIDIA,x,0:"),)),
        structs.replace(ascend(), input={**ascend().input, "node": _nameless()}),
        ascend(("filter", {"containers": [{"limits": {"huawei.com/Ascend310P-core": "1"}}]})),
    ],
}


@pytest.mark.parametrize(
    ("quirk", "exercising"), [(quirk, one) for quirk, each in EXERCISES.items() for one in each]
)
def test_a_vector_that_exercises_a_quirk_is_covered(quirk: str, exercising: Vector) -> None:
    assert quirk in {deviation.quirk for deviation in DEVIATIONS if deviation.applies(exercising)}


def test_every_declared_deviation_is_exercised() -> None:
    known = [*EXERCISES.values(), [_binding()]]
    idle = [d.why for d in DEVIATIONS if not any(d.applies(v) for each in known for v in each)]
    assert idle == []


def _binding() -> Vector:
    return Vector(id="v", kind="encode", function="binding_object", input={}, expected={})


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda d: f"{d.quirk}: {d.why[:40]}")
@pytest.mark.parametrize("plain", PLAIN, ids=("hami-core", "mig", "ascend", "mindcluster"))
def test_a_plain_vector_is_covered_by_nothing(deviation: Deviation, plain: Vector) -> None:
    assert not deviation.applies(plain)


def test_a_difference_that_is_declared_deviates_and_names_the_quirk() -> None:
    """Volcano finds the small instances of a mixed geometry only once one of them is used."""
    mixed = EXERCISES["Q4"][0]
    wanted = {"op": "filter", "code": 0, "wouldAllocate": "GPU-a[group2-1],NVIDIA,1000,0:"}
    verdict = judge(_expecting(mixed, wanted))
    assert verdict.outcome == DEVIATES
    assert [reason.quirk for reason in verdict.reasons] == ["Q4"]
    assert [found.got for found in verdict.differences] == ["GPU-a[group2-3],NVIDIA,1000,0:"]


def test_the_same_answer_matches_whatever_the_vector_exercises() -> None:
    mixed = EXERCISES["Q4"][0]
    wanted = {"op": "filter", "code": 0, "wouldAllocate": "GPU-a[group2-3],NVIDIA,1000,0:"}
    assert judge(_expecting(mixed, wanted)).outcome == MATCHED


def test_a_difference_that_is_not_declared_is_a_mismatch_beside_one_that_is() -> None:
    spread = EXERCISES["Q7"][0]
    wanted = {"op": "filter", "score": 0, "wouldAllocate": "GPU-z,NVIDIA,1,0:"}
    verdict = judge(_expecting(spread, wanted))
    assert verdict.outcome == MISMATCHED
    assert {found.field: found.quirk for found in verdict.differences} == {
        "steps[0].score": "Q7",
        "steps[0].wouldAllocate": "",
    }


def _expecting(one: Vector, step: dict[str, Any]) -> Vector:
    return structs.replace(one, expected={"steps": [step]})
