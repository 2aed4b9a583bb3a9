"""`--at` and `--since`: a sequence, the one before it, a clock time, an age, or RFC 3339."""

from datetime import datetime

from allotment.adapters.service import moments
from allotment.adapters.service.moments import (
    FORMS,
    At,
    AtSequence,
    AtTime,
    MomentError,
    local_day_text,
    local_text,
    moment_text,
    zone_text,
)
from allotment.core.units import age_text
from allotment_cli.show.errors import CliError

__all__ = [
    "FORMS",
    "At",
    "AtSequence",
    "AtTime",
    "local_day_text",
    "local_text",
    "moment_text",
    "parse",
    "since_text",
    "zone_text",
]


def parse(text: str, now_ms: int, option: str = "--at") -> At:
    """Read one moment, as `allotment.adapters.service.moments.parse` does.

    Raises `CliError` naming the option, the text and the forms that are right.
    """
    try:
        return moments.parse(text, now_ms)
    except MomentError as error:
        raise CliError(f"{option} {error}", f"give {FORMS}") from None


def since_text(since: str, now_ms: int) -> str:
    """An RFC 3339 moment as a person reads it, and how long ago it was."""
    at_ms = int(datetime.fromisoformat(since).timestamp() * 1000)
    return f"{moment_text(at_ms)} ({age_text(max(now_ms - at_ms, 0) // 1000)})"
