"""Moments of a log as people write and read them: a sequence, the one before it, a clock time, an
age, or RFC 3339. Clock times are those of the machine.
"""

import re
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from allotment.core.units import age_text, duration_ns

FORMS = "a sequence (184203), the one before it (184203~1), 14:03, -15m or 2026-11-20T14:03:00Z"

_SEQUENCE = re.compile(r"(\d{1,18})(?:~(\d{1,18})?)?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_END_MS = 253_370_764_800_000  # 9999-01-01: whatever the zone, a day has a name until then


class AtSequence(NamedTuple):
    seq: int


class AtTime(NamedTuple):
    """Unix milliseconds."""

    ms: int


At = AtSequence | AtTime


class MomentError(ValueError):
    """Raised for a text that is not a moment; `FORMS` says what would be."""


_reader_zone: ContextVar[tzinfo | None] = ContextVar("reader_zone", default=None)
"""The zone of the person who reads, where it is known; else that of this process."""


def parse(text: str, now_ms: int) -> At:
    """Read one moment; clock times are local, of today, or of yesterday if still to come.

    Raises `MomentError`.
    """
    if match := _SEQUENCE.fullmatch(text):
        back = 0 if "~" not in text else int(match[2] or 1)
        return AtSequence(max(int(match[1]) - back, 0))
    if text.startswith("-") and (age_ns := duration_ns(text, days=True)) is not None:
        return _within(text, now_ms + age_ns // 1_000_000)
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
    if match := _CLOCK.fullmatch(text):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return AtTime(_ms(then - timedelta(days=1) if then > now else then))
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        raise MomentError(f"{text!r} is not a moment") from None
    try:
        return _within(text, _ms(then if then.tzinfo is not None else then.astimezone()))
    except (OverflowError, ValueError):  # the first and last days of datetime in some zones
        raise MomentError(_out_of_reach(text)) from None


def _within(text: str, ms: int) -> AtTime:
    if not 0 <= ms < _END_MS:
        raise MomentError(_out_of_reach(text))
    return AtTime(ms)


def _out_of_reach(text: str) -> str:
    return f"{text!r} is not a moment of any log: it is before 1970 or after 9998"


def offset_minutes(ms: int) -> int:
    """How far the local zone is ahead of UTC at that moment."""
    ahead = _local(ms).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds()) // 60


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def local_text(ms: int, *, millis: bool = False) -> str:
    """Local time on screen: ``14:03:05`` (or with ``.570``)."""
    text = _local(ms).strftime("%H:%M:%S")
    return f"{text}.{ms % 1000:03}" if millis else text


def local_day_text(ms: int) -> str:
    """Local day and time on screen: ``2026-11-20 14:03:05``."""
    return _local(ms).strftime("%Y-%m-%d %H:%M:%S")


def moment_text(ms: int) -> str:
    """A moment that stands alone on screen: ``2026-11-20 14:03:05 CET``."""
    return f"{local_day_text(ms)} {zone_text(ms)}"


def silence_text(since_ms: int) -> str:
    """What heads everything that is shown while NATS brings no news."""
    return f"No news from NATS since {local_text(since_ms)}; this is the state of then"


def zone_text(ms: int) -> str:
    """The zone of the local times of that moment: ``CET``, ``UTC``, ``+07``."""
    return _local(ms).tzname() or ""


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(_reader_zone.get())


def show_in_zone(minutes: int) -> None:
    """Show local times in a zone this many minutes ahead of UTC, in this context."""
    _reader_zone.set(timezone(timedelta(minutes=minutes)))


def since_text(since: str, now_ms: int) -> str:
    """An RFC 3339 moment as a person reads it, and how long ago it was."""
    at_ms = int(datetime.fromisoformat(since).timestamp() * 1000)
    return f"{moment_text(at_ms)} ({age_text(max(now_ms - at_ms, 0) // 1000)})"
