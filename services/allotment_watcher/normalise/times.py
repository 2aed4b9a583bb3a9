"""Moments as Kubernetes writes them."""

from datetime import datetime


def time_ms(text: str | None) -> int:
    """Milliseconds since 1970, to the second; 0 if there is none or it cannot be read."""
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) * 1000
    except ValueError:
        return 0
