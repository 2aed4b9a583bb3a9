"""Amounts, durations and times as people read them. Integers in, text out; no clock, no locale."""

MIB = 1 << 20
_DAY_S = 86_400


def mib_text(mib: int) -> str:
    """``24.0 GiB``; below one GiB ``512 MiB``. Rounded half up to a tenth."""
    if abs(mib) < 1024:
        return f"{mib} MiB"
    sign, tenths = ("-" if mib < 0 else ""), (abs(mib) * 10 + 512) // 1024
    return f"{sign}{tenths // 10}.{tenths % 10} GiB"


def bytes_text(amount: int) -> str:
    """The same for bytes, rounded down to whole MiB first."""
    return mib_text(amount // MIB)


def cpu_text(milli: int) -> str:
    """``2`` cores, ``500m``: as Kubernetes writes CPU."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def points_text(micro: int) -> str:
    """Micro-points as points with one digit, rounded half up: ``87.5``."""
    sign, tenths = ("-" if micro < 0 else ""), (abs(micro) + 50_000) // 100_000
    return f"{sign}{tenths // 10}.{tenths % 10}"


def duration_text(ms: int) -> str:
    """``52 ms``, ``4.2 s``, ``41s``, ``12m41s``, ``3h05m``, ``2d03h``: at most two units."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms // 1000}.{ms % 1000 // 100} s"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < _DAY_S:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // _DAY_S}d{seconds % _DAY_S // 3600:02}h"


def age_text(seconds: int) -> str:
    """A span known to the second only: ``7s``, then as `duration_text`."""
    return f"{seconds}s" if seconds < 60 else duration_text(seconds * 1000)


def rfc3339(ms: int) -> str:
    """Unix milliseconds as RFC 3339 in UTC: ``2026-11-20T14:15:46.000Z``.

    Civil date from a day number, reckoned in years that begin in March so that the leap day comes
    last.
    """
    days, in_day_ms = divmod(ms, _DAY_S * 1000)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = era * 400 + year_of_era + (month <= 2)
    seconds, milli = divmod(in_day_ms, 1000)
    clock = f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}.{milli:03}"
    return f"{year:04}-{month:02}-{day:02}T{clock}Z"
