"""Amounts compare as quotas need it: missing means nothing, or no limit; only what is named."""

from fractions import Fraction
from itertools import product

import pytest

from allotment.core.queues.resources import (
    NOTHING,
    Resources,
    Tally,
    is_at_most,
    largest_share,
    share,
    total_of,
)

A = Resources({"cpu": 2000, "gpu": 1000})


def test_missing_is_nothing() -> None:
    limit = Resources({"cpu": 2000})
    assert A.exceeding(limit) == ("gpu",)
    assert not A.is_within(limit)
    assert A.is_within(A)


def test_only_the_names_asked_for() -> None:
    asked = Resources({"gpu": 1000, "cpu": 0})
    assert asked.named == ("gpu",)
    assert A.exceeding(Resources({"gpu": 1000}), asked.named) == ()
    assert A.exceeding(NOTHING, asked.named) == ("gpu",)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (10, 10, True),
        (11, 10, False),
        (Fraction(1009, 100), 10, True),
        (Fraction(101, 10), 10, False),
        (3667, Fraction(11000, 3), False),
        (3666, Fraction(11000, 3), True),
    ],
)
def test_the_tolerance_is_below_a_tenth(left: Fraction, right: Fraction, expected: bool) -> None:
    assert is_at_most(left, right) == expected


def test_arithmetic() -> None:
    b = Resources({"gpu": 3000, "x": 5})
    assert A.plus(b) == {"cpu": 2000, "gpu": 4000, "x": 5}
    assert A.minus(b) == {"cpu": 2000, "gpu": -2000, "x": -5}
    assert A.beyond(b) == {"cpu": 2000, "gpu": 0}
    assert A.capped(b) == {"cpu": 2000, "gpu": 1000}
    assert A.raised(b) == {"cpu": 2000, "gpu": 3000, "x": 5}
    assert total_of([A, A, b]) == {"cpu": 4000, "gpu": 5000, "x": 5}
    assert hash(A) == hash(Resources({"gpu": 1000, "cpu": 2000}))


def test_share_of_nothing() -> None:
    assert share(0, 0) == 0
    assert share(1, 0) == 1
    assert share(1, 4) == Fraction(1, 4)
    assert largest_share(A, Resources({"gpu": 4000, "cpu": 2000})) == 1
    assert largest_share(A, NOTHING) == 0


def test_a_part_that_is_swapped_counts_as_one_that_left_and_one_that_came() -> None:
    names = ("cpu", "memory", "pods", "x")
    parts = [Resources({name: at + 1 for at, name in enumerate(names[:n])}) for n in range(5)]
    for before, now in product(parts, repeat=2):
        swapped, one_by_one = Tally(), Tally()
        for tally in (swapped, one_by_one):
            tally.add(Resources({"cpu": 7, "y": 0}))
            tally.add(before)
        swapped.swap(before, now)
        one_by_one.add(before, -1)
        one_by_one.add(now)
        assert swapped.amounts() == one_by_one.amounts()
