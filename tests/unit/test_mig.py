"""MIG: which instance of which geometry a card hands out."""

import pytest

from allotment.core.ledger.partitions import UNPARTITIONED
from allotment.core.ledger.partitions.mig import CONTRADICTORY, LISTED, MIG
from allotment_proto.facts import CardFact, Geometry, Profile
from tests import build

A100 = (
    Geometry("group1", (Profile("1g.5gb", 5120, 7),)),
    Geometry("group2", (Profile("2g.10gb", 10240, 3), Profile("1g.5gb", 5120, 1))),
    Geometry("group3", (Profile("3g.20gb", 20480, 2),)),
    Geometry("group4", (Profile("7g.40gb", 40960, 1),)),
)
CARD = CardFact("GPU-a", 0, "NVIDIA-A100", 10, 40960, 100, True, "mig", 0)


def given(*held: str, memory_mib: int = 0, percent: int = 0, order: str = LISTED) -> str | None:
    wanted = build.wants(memory_mib, 0, memory_pct=percent)
    piece = MIG.piece(CARD, A100, MIG.state(CARD, A100, held), wanted, order)
    return None if piece is None else MIG.name(A100, piece, held)


@pytest.mark.parametrize(
    ("memory_mib", "instance"),
    [
        (1, "group1-0"),
        (5120, "group1-0"),
        (5121, "group2-0"),
        (10240, "group2-0"),
        (10241, "group3-0"),
        (20481, "group4-0"),
        (40960, "group4-0"),
        (40961, None),
    ],
)
def test_an_empty_card_in_listed_order(memory_mib: int, instance: str | None) -> None:
    assert given(memory_mib=memory_mib) == instance


@pytest.mark.parametrize(
    ("held", "memory_mib", "instance"),
    [
        (("group1-0",), 5000, "group1-1"),
        (("group1-0", "group1-2"), 5000, "group1-1"),
        (("group1-0",), 6000, None),
        (("group2-0",), 5000, "group2-3"),
        (("group2-0", "group2-3"), 5000, "group2-1"),
        (("group2-3",), 9000, "group2-0"),
        (("group3-1",), 1, "group3-0"),
        (("group4-0",), 1, None),
        (tuple(f"group1-{n}" for n in range(7)), 1, None),
    ],
)
def test_a_cut_card(held: tuple[str, ...], memory_mib: int, instance: str | None) -> None:
    assert given(*held, memory_mib=memory_mib) == instance


def test_every_profile_of_a_mixed_geometry_is_on_offer() -> None:
    """Upstream offers only profiles that are in use already (Q4)."""
    assert given("group2-3", memory_mib=10_000) == "group2-0"


def test_the_last_release_frees_the_geometry() -> None:
    """Upstream keeps it until the node changes (Q5)."""
    assert MIG.state(CARD, A100, ()) == UNPARTITIONED


def test_least_stranded_prefers_the_geometry_that_serves_most_of_the_like() -> None:
    assert given(memory_mib=5000, order="least-stranded") == "group1-0"
    assert given(memory_mib=9000, order="least-stranded") == "group2-0"
    table = (A100[3], A100[2], A100[0])  # listed order would take the whole card
    piece = MIG.piece(CARD, table, UNPARTITIONED, build.wants(5000, 0), "least-stranded")
    assert piece is not None
    assert MIG.name(table, piece, ()) == "group1-0"
    listed = MIG.piece(CARD, table, UNPARTITIONED, build.wants(5000, 0), LISTED)
    assert listed is not None
    assert MIG.name(table, listed, ()) == "group4-0"


def test_a_whole_card_is_its_largest_instance() -> None:
    """Upstream wants all memory that is registered, which no instance of an 80 GB card has (Q6)."""
    smaller = (A100[0], Geometry("group4", (Profile("7g.80gb", 80896, 1),)))
    card = CardFact("GPU-b", 0, "NVIDIA-A100-SXM4-80GB", 10, 81920, 100, True, "mig", 0)
    piece = MIG.piece(card, smaller, UNPARTITIONED, build.wants(0, 0, memory_pct=100), LISTED)
    assert piece is not None
    assert piece.memory_mib == 80896
    assert given(percent=100) == "group4-0"
    assert given("group1-0", percent=100) is None
    assert given(percent=25) == "group2-0"


@pytest.mark.parametrize(
    "held",
    [
        ("group1-0", "group2-0"),
        ("group9-0",),
        ("group1-7",),
        ("",),
        ("group1-x",),
        ("group1--1",),
    ],
)
def test_holders_that_contradict_the_table(held: tuple[str, ...]) -> None:
    assert MIG.state(CARD, A100, held) == CONTRADICTORY
    assert given(*held, memory_mib=1) is None


def test_what_the_books_admit() -> None:
    assert MIG.admits(CARD, A100, ["group1-0"], ["group1-1", "group1-2"])
    assert not MIG.admits(CARD, A100, ["group1-0"], ["group1-0"])
    assert not MIG.admits(CARD, A100, [], ["group1-0", "group1-0"])
    assert not MIG.admits(CARD, A100, ["group1-0"], ["group2-0"])


def test_what_is_charged() -> None:
    assert MIG.charged_mib(A100, "group2-3", 1000) == 5120
    assert MIG.charged_mib(A100, "group2-0", 1000) == 10240
    assert MIG.charged_mib(A100, "unheard-0", 1000) == 1000
