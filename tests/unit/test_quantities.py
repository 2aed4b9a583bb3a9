"""Kubernetes quantities become exact integers, or are refused with the text that was given."""

import pytest

from allotment.core import quantities


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("0", 0),
        ("1", 1_000),
        ("0.5", 500),
        ("500m", 500),
        (".5", 500),
        ("2.", 2_000),
        ("1k", 1_000_000),
        ("1e3", 1_000_000),
        ("1E-3", 1),
        ("1n", 1),
        ("+3", 3_000),
        ("-0", 0),
        ("1001u", 2),
    ],
)
def test_milli(text: str, milli: int) -> None:
    assert quantities.milli(text) == milli


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("100M", 10**8),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("1m", 1),
    ],
)
def test_whole_up(text: str, units: int) -> None:
    assert quantities.whole_up(text) == units


@pytest.mark.parametrize(("text", "things"), [("2", 2), ("2000m", 2), ("0.5k", 500), ("1e1", 10)])
def test_count(text: str, things: int) -> None:
    assert quantities.count(text) == things


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "abc", "1KiB", "--1", "1e", "e3", "1i", "0x10", "٣", "1_0", "9" * 65, "1\n"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(quantities.QuantityError, match="not a quantity"):
        quantities.parse(text)


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (quantities.count, "1500m", "not a whole number"),
        (quantities.count, "-1", "negative"),
        (quantities.whole_up, "-0.5", "negative"),
        (quantities.milli, "-1n", "negative"),
        (quantities.count, "1e999", "absurdly large"),
        (quantities.whole_up, "99999E", "absurdly large"),
    ],
)
def test_amounts_that_nothing_can_have(read: object, text: str, why: str) -> None:
    assert callable(read)
    with pytest.raises(quantities.QuantityError, match=why):
        read(text)
