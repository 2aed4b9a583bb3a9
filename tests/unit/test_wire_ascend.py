"""Ascend through HAMi: registers, annotations, templates."""

import pytest

from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import ascend, device_config, keys
from allotment_proto.volcano.vgpu import Entry

WORD = "Ascend310P"
CHIP = device_config.default().ascend[0]


def test_register() -> None:
    text = (
        '[{"id": "a", "count": 4, "devmem": 65536, "devcore": 20, "type": "Ascend910B3", '
        '"health": true, "custominfo": {"NetworkID": 0}}, '
        '{"id": "b", "count": 7, "devmem": 21527, "devcore": 100, "health": false}, {"id": "c"}]'
    )
    register = ascend.decode_register(text, "Ascend910B3", soft=True)
    assert register.problems == ()
    assert [(c.id, c.index, c.slots, c.memory_mib, c.cores_pct) for c in register.cards] == [
        ("a", 0, 4, 65536, 20),
        ("b", 1, 7, 21527, 100),
        ("c", 2, 0, 0, 0),
    ]
    assert [(c.healthy, c.network) for c in register.cards] == [(True, 0), (False, -1), (True, -1)]
    assert {(c.model, c.mode) for c in register.cards} == {("Ascend910B3", "hami-core")}
    assert ascend.decode_register('[{"id": "a"}]', WORD).cards[0].mode == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("{}", "wanted: a JSON list"),
        ("[]", "holds no card"),
        ("[1]", "wanted: a mapping"),
        ("[{}]", "a card id"),
        ('[{"id": "a,b"}]', "without ','"),
        ('[{"id": "a"}, {"id": "a"}]', "occurs twice"),
        ('[{"id": "a", "count": "4"}]', "is '4'; wanted: a whole number"),
        ('[{"id": "a", "devmem": 1e400}]', "wanted: a whole number"),
        ('[{"id": "a", "health": "yes"}]', "true or false"),
        ('[{"id": "a", "custominfo": {"NetworkID": -2}}]', "wanted: a whole number"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_broken_registers(text: str, says: str) -> None:
    register = ascend.decode_register(text, WORD)
    assert register.cards == ()
    assert any(says in problem.message for problem in register.problems)
    assert all(p.place.startswith(f"annotation {keys.hami_register(WORD)}")
               for p in register.problems)  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "configured", "soft"),
    [({}, True, True), ({}, False, False), ({"hami-vnpu-core": "false"}, True, False),
     ({"hami-vnpu-core": "true"}, False, True), ({"hami-vnpu-core": "True"}, True, False)],
)  # fmt: skip
def test_soft_slicing(annotations: dict[str, str], configured: bool, soft: bool) -> None:
    assert ascend.slices_softly(annotations, configured) is soft


@pytest.mark.parametrize(
    ("asked", "gets"),
    [(0, (3072, "vir01")), (1, (3072, "vir01")), (3072, (3072, "vir01")), (3073, (6144, "vir02")),
     (12288, (12288, "vir04")), (12289, (21527, "")), (21527, (21527, "")), (24576, (21527, ""))],
)  # fmt: skip
def test_memory_is_trimmed_to_a_template(asked: int, gets: tuple[int, str]) -> None:
    assert ascend.trim_memory(CHIP, asked) == gets


def test_more_than_a_chip_is_refused() -> None:
    problem = ascend.trim_memory(CHIP, 24577)
    assert isinstance(problem, Problem)
    assert problem.code == "OverCapacity"
    assert problem.message == "is 24577; a Ascend310P has 24576 MiB"


def held(card: str, memory: int, cores: int, template: str, container: int = 0) -> Holding:
    return Holding("ascend", container, card, memory, cores, ascend.instance_name(WORD, template))


@pytest.mark.parametrize(
    ("holding", "entry", "detail"),
    [
        (held("d2", 3072, 0, "vir01"), "d2,Ascend310P,3072,0:;", '[{"UUID":"d2","temp":"vir01"}]'),
        (held("d1", 21527, 0, ""), "d1,Ascend310P,21527,0:;", '[{"UUID":"d1"}]'),
        (
            held("d1", 4096, 50, ascend.SOFT),
            "d1,Ascend310P,4096,50:;",
            '[{"UUID":"d1","memory":4096,"core":50}]',
        ),
        (
            held("d1", 4096, 0, ascend.SOFT),
            "d1,Ascend310P,4096,0:;",
            '[{"UUID":"d1","memory":4096}]',
        ),
    ],
)
def test_binding_annotations(holding: Holding, entry: str, detail: str) -> None:
    assert ascend.binding_annotations("node-1", (holding,), 100, 99) == {
        "hami.io/Ascend310P-devices-allocated": entry,
        "hami.io/Ascend310P-devices-to-allocate": entry,
        "huawei.com/Ascend310P": detail,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "99",
        "hami.io/vgpu-node": "node-1",
        "hami.io/vgpu-time": "100",
        "predicate-time": "100",
    }


def test_two_kinds_of_chips_have_their_own_annotations() -> None:
    other = Holding("ascend", 1, "x", 16384, 0, "Ascend910B3/vir05_1c_16g")
    out = ascend.binding_annotations("n", (held("d1", 3072, 0, "vir01"), other), 1, 1)
    assert out["hami.io/Ascend310P-devices-allocated"] == "d1,Ascend310P,3072,0:;"
    assert out["hami.io/Ascend910B3-devices-allocated"] == "x,Ascend910B3,16384,0:;"


def test_every_container_is_charged() -> None:
    annotations = {
        "hami.io/Ascend310P-devices-allocated": "d1,Ascend310P,3072,1:;d2,Ascend310P,6144,2:;",
        "huawei.com/Ascend310P": '[{"UUID":"d1","temp":"vir01"},{"UUID":"d2","temp":"vir02"}]',
    }
    holdings, problems = ascend.decode_holdings(annotations, WORD, (1, 3))
    assert problems == ()
    assert holdings == (held("d1", 3072, 1, "vir01", 1), held("d2", 6144, 2, "vir02", 3))


@pytest.mark.parametrize(
    ("text", "groups", "problems"),
    [
        ("device-1,Ascend910,8000,25", [[("device-1", 8000, 25)]], 0),
        (
            "device-1,Ascend910,4000,10:device-2,Ascend910,4000,10",
            [[("device-1", 4000, 10), ("device-2", 4000, 10)]],
            0,
        ),
        (";d,A,1,0:;", [[], [("d", 1, 0)]], 0),
        ("invalid format", [[]], 1),
        ("d1,Ascend310P:;", [[]], 1),
        ("d,A,-1,0:;", [[]], 1),
        ("", [[]], 0),
    ],
)
def test_assignments_of_others(
    text: str, groups: list[list[tuple[str, int, int]]], problems: int
) -> None:
    found, said = ascend.decode_assignment(text, WORD)
    assert [[(e.card, e.memory_mib, e.cores_pct) for e in group] for group in found] == groups
    assert len(said) == problems
    assert all(isinstance(e, Entry) for group in found for e in group)


@pytest.mark.parametrize(
    ("detail", "problems"), [(None, 0), ("[]", 0), ("{", 1), ('[{"UUID":"other","temp":"v"}]', 0)]
)
def test_without_its_templates_a_pod_is_charged_all_the_same(
    detail: str | None, problems: int
) -> None:
    annotations = {"hami.io/Ascend310P-devices-allocated": "d1,Ascend310P,3072,0:;"}
    if detail is not None:
        annotations["huawei.com/Ascend310P"] = detail
    holdings, said = ascend.decode_holdings(annotations, WORD, ())
    assert holdings == (held("d1", 3072, 0, ""),)
    assert len(said) == problems
    assert ascend.decode_holdings({}, WORD, (0,)) == ((), ())
