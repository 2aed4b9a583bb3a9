"""`--at` in all its forms, and what is said about text that has none of them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from allotment.adapters.service.moments import AtSequence, AtTime, local_day_text, local_text
from allotment.answers.moments import parse
from allotment.core.errors import AllotError
from allotment_cli.main import main
from tests.recording import Recorder

NOW_MS = 1_795_183_200_000  # 2026-11-20T14:00:00Z
MINUTE_MS = 60_000


@pytest.fixture(autouse=True, params=["UTC", "Europe/Berlin"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seq"), [("184203", 184203), ("184203~1", 184202), ("9~", 8), ("3~9", 0), ("0", 0)]
)
def test_sequences(text: str, seq: int) -> None:
    assert parse(text, NOW_MS) == AtSequence(seq)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("-15m", NOW_MS - 15 * MINUTE_MS),
        ("-2h", NOW_MS - 120 * MINUTE_MS),
        ("-90s", NOW_MS - 90_000),
        ("-1d", NOW_MS - 24 * 60 * MINUTE_MS),
        ("2026-11-20T13:59:00Z", NOW_MS - MINUTE_MS),
        ("2026-11-20T14:59:00+01:00", NOW_MS - MINUTE_MS),
    ],
)
def test_times_that_no_zone_changes(text: str, ms: int) -> None:
    assert parse(text, NOW_MS) == AtTime(ms)


def test_clock_times_are_local_and_never_to_come(zone: str) -> None:
    ahead_ms = 0 if zone == "UTC" else 60 * MINUTE_MS
    assert parse("13:30", NOW_MS) == AtTime(NOW_MS - 30 * MINUTE_MS - ahead_ms)
    assert parse("13:30:15", NOW_MS) == AtTime(NOW_MS - 30 * MINUTE_MS - ahead_ms + 15_000)
    evening = parse("23:00", NOW_MS)
    assert isinstance(evening, AtTime)
    assert NOW_MS - 24 * 60 * MINUTE_MS < evening.ms < NOW_MS


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "-15", "-15w", "1~x", "2026-13-40"])
def test_anything_else_is_named_with_what_would_be_right(text: str, tmp_path: Path) -> None:
    log_file = Recorder().write(tmp_path / "log.jsonl")
    with pytest.raises(AllotError, match="--since") as error:
        parse(text, NOW_MS, "--since")
    assert repr(text) in error.value.message
    assert "14:03" in error.value.remedy
    asked = CliRunner().invoke(main, ["ledger", f"--at={text}", "--file", str(log_file)])
    assert asked.exit_code == 2
    assert asked.stderr.startswith(f"allot: --at {text!r}")


@pytest.mark.parametrize(
    "text",
    [
        *("0001-01-01", "0001-01-01T00:00:00+14:00", "1969-12-31T00:00:00Z", "-100000d"),
        *("9999-12-31", "9999-12-31T23:59:59-12:00"),
    ],
)
def test_a_moment_of_no_log_is_said(text: str) -> None:
    with pytest.raises(AllotError, match="before 1970 or after 9998") as error:
        parse(text, NOW_MS)
    assert repr(text) in error.value.message
    assert "14:03" in error.value.remedy


@pytest.mark.parametrize("text", ["99999-01-01", "1e30s", "-1e30s", "-1", "\uff11", "-99999999d"])
def test_odd_texts_are_no_moments(text: str) -> None:
    with pytest.raises(AllotError, match="is not a moment"):
        parse(text, NOW_MS)


def test_local_time_on_screen(zone: str) -> None:
    hour = "14" if zone == "UTC" else "15"
    assert local_text(NOW_MS + 250, millis=True) == f"{hour}:00:00.250"
    assert local_day_text(NOW_MS) == f"2026-11-20 {hour}:00:00"
