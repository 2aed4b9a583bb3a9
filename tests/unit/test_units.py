"""Kubernetes quantities become exact integers, or are refused with the text that was given."""

import pytest

from allotment.core import units


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("1Gi", "1Gi"),
        ("1024Mi", "1Gi"),
        ("256Mi", "256Mi"),
        ("1.5Gi", "1536Mi"),
        ("1025Ki", "1025Ki"),
        ("0.5Ki", "512"),
        ("1073741824", "1073741824"),
        ("1000M", "1G"),
        ("2500m", "2500m"),
        ("8000", "8k"),
        ("1500", "1500"),
        ("0", "0"),
        ("0Gi", "0"),
        ("4Ei", "4Ei"),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(given: str, canonical: str) -> None:
    milli = units.parse(given)[0] * 1000 // units.parse(given)[1]
    binary = units.is_binary(given)
    assert units.canonical_text(milli, binary=binary) == canonical


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("power", range(0, 60, 7))
@pytest.mark.parametrize("factor", [1, 3, 999, 1000, 1024, 1025, 1536])
def test_what_is_written_is_read_again(factor: int, power: int, binary: bool) -> None:
    milli = (factor << power) * 1000
    if milli // 1000 < units.LIMIT // 1000:
        assert units.milli(units.canonical_text(milli, binary=binary)) == milli


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
    assert units.milli(text) == milli


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("100M", 10**8),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("1m", 1),
    ],
)
def test_whole_up(text: str, whole: int) -> None:
    assert units.whole_up(text) == whole


@pytest.mark.parametrize(("text", "things"), [("2", 2), ("2000m", 2), ("0.5k", 500), ("1e1", 10)])
def test_count(text: str, things: int) -> None:
    assert units.count(text) == things


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "abc", "1KiB", "--1", "1e", "e3", "1i", "0x10", "٣", "1_0", "9" * 65, "1\n"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(units.QuantityError, match="not a quantity"):
        units.parse(text)


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (units.count, "1500m", "not a whole number"),
        (units.count, "-1", "negative"),
        (units.whole_up, "-0.5", "negative"),
        (units.milli, "-1n", "negative"),
        (units.count, "1e999", "absurdly large"),
        (units.whole_up, "99999E", "absurdly large"),
    ],
)
def test_amounts_that_nothing_can_have(read: object, text: str, why: str) -> None:
    assert callable(read)
    with pytest.raises(units.QuantityError, match=why):
        read(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("5s", 5 * 10**9),
        ("30s", 30 * 10**9),
        ("1478s", 1478 * 10**9),
        ("-5s", -5 * 10**9),
        ("+5s", 5 * 10**9),
        ("-0", 0),
        ("+0", 0),
        ("5.0s", 5 * 10**9),
        ("5.6s", 56 * 10**8),
        ("5.s", 5 * 10**9),
        (".5s", 5 * 10**8),
        ("1.0s", 10**9),
        ("1.00s", 10**9),
        ("1.004s", 1004 * 10**6),
        ("100.00100s", 100_001 * 10**6),
        ("10ns", 10),
        ("11us", 11_000),
        ("12\u00b5s", 12_000),
        ("12\u03bcs", 12_000),
        ("13ms", 13 * 10**6),
        ("14s", 14 * 10**9),
        ("15m", 900 * 10**9),
        ("16h", 57_600 * 10**9),
        ("3h30m", 12_600 * 10**9),
        ("10.5s4m", 250_500 * 10**6),
        ("-2m3.4s", -123_400 * 10**6),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("39h9m14.425s", 140_954_425 * 10**6),
        ("52763797000ns", 52_763_797_000),
        ("0.3333333333333333333h", 1_199_999_999_999),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("0.100000000000000000000h", 360 * 10**9),
        (".5h", 1_800 * 10**9),
        ("1.h", 3_600 * 10**9),
    ],
)
def test_durations_are_those_of_go(text: str, ns: int) -> None:
    assert units.duration_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "1H", "5 s", "--5s", "1s-2s"),
        *("3000000h", "9223372036854775808ns", "9" * 300 + "s", "\u0665s", "1e3s", "\ud85f"),
    ],
)
def test_other_texts_are_no_durations(text: str) -> None:
    assert units.duration_ns(text) is None
    assert units.duration_ms(text) is None


def test_days_where_they_are_allowed() -> None:
    texts = ("2d", "1d12h", ".5d", "36h", "d", "1d-1h", "106752d")
    hours = (48, 36, 12, 36, None, None, None)
    found = [units.duration_ns(text, days=True) for text in texts]
    assert found == [None if h is None else h * 3600 * 10**9 for h in hours]


def test_milliseconds_are_rounded_up() -> None:
    texts = ("1ns", "1500us", "1ms", "1.0005s", "0", "-1500us")
    assert [units.duration_ms(text) for text in texts] == [1, 2, 1, 1001, 0, -1]
