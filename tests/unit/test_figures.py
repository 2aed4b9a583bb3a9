"""Amounts and times as text, against the standard library where it has an opinion."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.units import (
    age_text,
    bytes_text,
    cpu_text,
    duration_text,
    mib_text,
    points_text,
    rfc3339,
)


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (0, "0 MiB"),
        (1023, "1023 MiB"),
        (1024, "1.0 GiB"),
        (3000, "2.9 GiB"),
        (24564, "24.0 GiB"),
        (-2048, "-2.0 GiB"),
    ],
)
def test_memory(mib: int, text: str) -> None:
    assert mib_text(mib) == text
    assert bytes_text(mib * 1024 * 1024) == text


def test_less_than_a_mib_is_not_none() -> None:
    assert [bytes_text(n) for n in (0, 500, 18_625, (1 << 20) - 1, 1 << 20)] == [
        *("0 MiB", "500 bytes", "18 KiB", "1023 KiB", "1 MiB"),
    ]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (4250, "4.2 s"),
        (41_000, "41s"),
        (761_000, "12m41s"),
        (11_100_000, "3h05m"),
        (183_600_000, "2d03h"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration_text(ms) == text


def test_ages_cpu_and_points() -> None:
    assert [age_text(0), age_text(59), age_text(61)] == ["0s", "59s", "1m01s"]
    assert [cpu_text(2000), cpu_text(500)] == ["2", "500m"]
    assert [points_text(87_450_000), points_text(-50_000)] == ["87.5", "-0.1"]


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_rfc3339_is_what_the_standard_library_says(ms: int) -> None:
    seconds, rest = divmod(ms, 1000)
    wanted = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert rfc3339(ms) == f"{wanted.zfill(19)}.{rest:03}Z"
