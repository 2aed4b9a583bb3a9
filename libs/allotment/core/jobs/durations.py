"""Durations of Jobs as Go writes them ("1h30m", "500ms") ⇄ whole numbers."""

from allotment.core.units import duration_ms


def parse_ms(text: str) -> int | None:
    """The duration in milliseconds, rounded up; None for text that is not one, or negative."""
    duration = duration_ms(text)
    return None if duration is None or duration < 0 else duration


def show_s(duration_s: int) -> str:
    """Whole seconds as Go prints them: "1h2m3s"."""
    minutes, seconds = divmod(max(0, duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
