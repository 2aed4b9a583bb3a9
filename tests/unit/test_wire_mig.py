"""MIG ids, positions and what a configured table must be."""

import json

import pytest

from allotment_proto.facts import Geometry, Problem, Profile
from allotment_proto.volcano import device_config, mig, mig_tables

MIXED = Geometry("group2", (Profile("2g.10gb", 10240, 3), Profile("1g.5gb", 5120, 1)))


def test_an_id_names_card_group_and_position() -> None:
    found = mig.parse_id("GPU-a[group2-3]", "here")
    assert found == mig.MigId("GPU-a", "group2", 3)
    assert isinstance(found, mig.MigId)
    assert found.instance == "group2-3"
    assert mig.encode_id(found.card, found.instance) == "GPU-a[group2-3]"
    assert mig.encode_id("GPU-a", "") == "GPU-a"


@pytest.mark.parametrize(
    "text",
    ["", "GPU-a", "GPU-a[]", "GPU-a[group2]", "GPU-a[2,3]", "GPU-a[my-group-1]", "[group2-1]",
     "GPU-a[group2-]", "GPU-a[group2--1]", "GPU-a[group2-01]", "GPU-a[group2-1", "GPU-a[group2-1]x",
     "GPU-a[group2-9999]", "GPU-a[group2-٣]", "GPU-a[g[group2-1]]"],
)  # fmt: skip
def test_other_ids_are_refused(text: str) -> None:
    problem = mig.parse_id(text, "annotation x")
    assert isinstance(problem, Problem)
    assert (problem.code, problem.place) == ("BrokenMigId", "annotation x")
    assert "<card>[<group>-<position>]" in problem.message


def test_positions_run_through_the_profiles() -> None:
    names = [mig.profile_at(MIXED, position) for position in range(5)]
    assert [profile and profile.name for profile in names] == [
        "2g.10gb",
        "2g.10gb",
        "2g.10gb",
        "1g.5gb",
        None,
    ]
    assert [mig.first_position(MIXED, index) for index in range(2)] == [0, 3]
    assert mig.instances(MIXED) == 4


def test_an_instance_has_a_profile_by_its_table() -> None:
    table = (Geometry("group1", (Profile("1g.5gb", 5120, 7),)), MIXED)
    assert mig.profile_of(table, "group2-3") == Profile("1g.5gb", 5120, 1)
    assert mig.profile_of(table, "group2-4") is None
    assert mig.profile_of(table, "group9-0") is None
    assert mig.profile_of(table, "junk") is None


@pytest.mark.parametrize(
    ("geometry", "place", "says"),
    [
        (Geometry("my-group", MIXED.profiles), "t[0].group", "no '-'"),
        (Geometry("", MIXED.profiles), "t[0].group", "wanted: letters"),
        (Geometry("g", ()), "t[0].geometries", "has no profiles"),
        (Geometry("g", (Profile("", 1, 1),)), "t[0].geometries[0].name", "is missing"),
        (Geometry("g", (Profile("1g", 0, 1),)), "t[0].geometries[0].memory", "is 0"),
        (Geometry("g", (Profile("1g", 1, 0),)), "t[0].geometries[0].count", "is 0"),
        (Geometry("g", (Profile("1g", 1, 65),)), "t[0].geometries", "at most 64"),
    ],
)
def test_faults_of_a_table(geometry: Geometry, place: str, says: str) -> None:
    (problem,) = mig.check_table((geometry,), "t")
    assert problem.place == place
    assert says in problem.message


def test_a_group_name_occurs_once() -> None:
    (problem,) = mig.check_table((MIXED, MIXED), "t")
    assert problem.place == "t[1].group"
    assert [p.place for p in mig.check_table((), "t")] == ["t"]


def many_profiles(number: int, each: int) -> str:
    geometries = [{"name": f"{n}g", "memory": 100 + n, "count": each} for n in range(number)]
    entry = {"models": ["X"], "allowedGeometries": [{"group": "g", "geometries": geometries}]}
    return json.dumps({"nvidia": {"knownMigGeometries": [entry]}})


@pytest.mark.parametrize(("number", "each"), [(64, 1), (16, 4), (7, 9)])
def test_a_table_that_could_be_cut_in_millions_of_ways_is_refused(number: int, each: int) -> None:
    parsed = device_config.parse(many_profiles(number, each), "cm")
    assert parsed.config is None
    assert "InvalidDeviceConfig" not in {p.code for p in parsed.problems}
    assert any("states" in p.message for p in parsed.problems)


def test_a_table_like_that_of_any_real_card_is_taken() -> None:
    assert device_config.parse(many_profiles(7, 1), "cm").config is not None
    assert device_config.parse(many_profiles(1, 64), "cm").config is not None


def test_the_built_in_tables_can_be_made() -> None:
    """What NVIDIA's guide allows: 7 (or 4) compute slices, 8 (or 4) memory slices."""
    for model in mig_tables.DEFAULT:
        assert mig.check_table(model.geometries, "t") == ()
        largest = max(p.memory_mib for g in model.geometries for p in g.profiles)
        sizes = {p.name: p.memory_mib for g in model.geometries for p in g.profiles}
        assert len(set(sizes.values())) == len(sizes)
        for geometry in model.geometries:
            slices = [(int(p.name[0]), p.count) for p in geometry.profiles]
            assert slices == sorted(slices, reverse=True), "larger ones have lower numbers"
            assert sum(size * count for size, count in slices) <= 7
            assert sum(p.memory_mib * p.count for p in geometry.profiles) <= largest


@pytest.mark.parametrize(
    ("model", "smallest", "largest"),
    [
        ("NVIDIA-NVIDIA A30", ("1g.6gb", 6144), ("4g.24gb", 24576)),
        ("NVIDIA-NVIDIA A100-SXM4-40GB", ("1g.5gb", 5120), ("7g.40gb", 40960)),
        ("NVIDIA-NVIDIA A100-PCIE-40GB", ("1g.5gb", 5120), ("7g.40gb", 40960)),
        ("NVIDIA-NVIDIA A100-SXM4-80GB", ("1g.10gb", 9728), ("7g.80gb", 80896)),
        ("NVIDIA-NVIDIA A100 80GB PCIe", ("1g.10gb", 9728), ("7g.80gb", 80896)),
        ("NVIDIA-NVIDIA H100 80GB HBM3", ("1g.10gb", 9984), ("7g.80gb", 81152)),
        ("NVIDIA-NVIDIA H100 PCIe", ("1g.10gb", 9984), ("7g.80gb", 81152)),
        ("NVIDIA-NVIDIA H100 NVL", ("1g.12gb", 10880), ("7g.94gb", 94848)),
        ("NVIDIA-NVIDIA GH200 480GB", ("1g.12gb", 11264), ("7g.96gb", 95232)),
        ("NVIDIA-NVIDIA H200", ("1g.18gb", 16384), ("7g.141gb", 143104)),
        ("NVIDIA-NVIDIA H200 NVL", ("1g.18gb", 16384), ("7g.141gb", 143104)),
        ("NVIDIA-NVIDIA H20", ("1g.12gb", 12032), ("7g.96gb", 96256)),
        ("NVIDIA-NVIDIA H20-3e", ("1g.18gb", 16384), ("7g.141gb", 143104)),
        ("NVIDIA-NVIDIA B200", ("1g.23gb", 20992), ("7g.180gb", 181248)),
        (
            "NVIDIA-NVIDIA RTX PRO 6000 Blackwell Server Edition",
            ("1g.24gb", 23680),
            ("4g.96gb", 95616),
        ),
    ],
)
def test_products_have_their_tables(
    model: str, smallest: tuple[str, int], largest: tuple[str, int]
) -> None:
    table = device_config.geometries_for(device_config.default(), model)
    sizes = sorted(
        ((p.name, p.memory_mib) for geometry in table for p in geometry.profiles),
        key=lambda pair: pair[1],
    )
    assert (sizes[0], sizes[-1]) == (smallest, largest)


def test_products_that_cannot_be_cut_have_none() -> None:
    for model in ("NVIDIA-Tesla V100-SXM2-32GB", "NVIDIA-NVIDIA GB200", "NVIDIA-NVIDIA L40S", ""):
        assert device_config.geometries_for(device_config.default(), model) == ()
