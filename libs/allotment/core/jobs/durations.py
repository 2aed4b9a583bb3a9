"""Durations as Go writes them ("1h30m", "500ms") ⇄ whole milliseconds."""

import re

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"(\d{1,15})(?:\.(\d{0,9}))?(ns|us|µs|ms|s|m|h)", re.ASCII)


def parse_ms(text: str) -> int | None:
    """The duration in milliseconds, rounded up; None for text that is not one, or negative."""
    if text == "0":
        return 0
    total_ns, position = 0, 0
    for part in _PART.finditer(text):
        if part.start() != position:
            return None
        whole, fraction, unit = part.groups()
        digits = fraction or ""
        total_ns += int(whole + digits) * _UNITS_NS[unit] // 10 ** len(digits)
        position = part.end()
    return -(-total_ns // 1_000_000) if position and position == len(text) else None


def show_s(duration_s: int) -> str:
    """Whole seconds as Go prints them: "1h2m3s"."""
    minutes, seconds = divmod(max(0, duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
