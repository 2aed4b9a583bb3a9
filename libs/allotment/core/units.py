"""Amounts and durations: Kubernetes' and Go's spellings → exact integers, and integers → text.

Quantities: a decimal number, then a binary suffix (Ki Mi Gi Ti Pi Ei), a decimal one
(n u m k M G T P E) or an exponent (e3, E-2). Source: apimachinery `resource.Quantity`.
Durations: see `duration_ns`.
Texts for people: below. No floats, no clock, no locale.
"""

import re
from collections.abc import Iterable

_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DIGITS_MAX = 64
LIMIT = 1 << 62
"""Amounts beyond this are absurd (and would not fit the integer columns)."""
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # the micro sign
    "\u03bcs": 1_000,  # the Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_PART = re.compile(f"([0-9]+\\.?[0-9]*|\\.[0-9]+)({'|'.join(_UNITS_NS)})", re.ASCII)
_DURATION = re.compile(f"[-+]?(0|({_PART.pattern})+)", re.ASCII)
_DURATION_CHARS_MAX = 256
_DURATION_NS_MAX = (1 << 63) - 1
_NATURAL_DIGITS_MAX = 18
"""So many digits always fit 64 bits; Python itself refuses to read more than 4300."""


class QuantityError(ValueError):
    """Raised for text that is not a quantity, or not one that this resource can take."""


def parse(text: str, *, signed: bool = False) -> tuple[int, int]:
    """A quantity as an exact fraction (numerator ≥ 0 unless `signed`, denominator > 0)."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _DIGITS_MAX else None
    if match is None:
        raise QuantityError(f"{text[:80]!r} is not a quantity (like 2, 500m, 16Gi)")
    sign, number, binary, decimal, exponent = match.groups()
    whole, _, fraction = number.partition(".")
    numerator, denominator = int(whole + fraction), 10 ** len(fraction)
    if sign == "-" and numerator:
        if not signed:
            raise QuantityError(f"{text!r} is negative")
        numerator = -numerator
    power = _DECIMAL[decimal] if decimal else int(exponent) if exponent else 0
    if binary:
        numerator <<= _BINARY[binary]
    elif power >= 0:
        numerator *= 10**power
    else:
        denominator *= 10**-power
    return numerator, denominator


def milli(text: str) -> int:
    """Thousandths, rounded up as Kubernetes does: ``"0.5"`` and ``"500m"`` are 500."""
    numerator, denominator = parse(text)
    return _bounded(-(-numerator * 1000 // denominator), text)


def milli_text(value: int) -> str:
    """Thousandths as a quantity."""
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def is_binary(text: str) -> bool:
    """Whether a quantity is written with a binary suffix, as memory mostly is."""
    return text[-2:] in _BINARY


def canonical_text(value: int, *, binary: bool) -> str:
    """Thousandths as Kubernetes writes a computed quantity: a whole number with the largest suffix
    that it has, such as 1536Mi, 2k or 500m. Below 1024 also a binary one is written in decimal.
    """
    if binary and value >= 1024 * 1000:
        return _with_suffix(-(-value // 1000), 1024, ("", *_BINARY))
    if value % 1000:
        return f"{value}m"
    return _with_suffix(value // 1000, 1000, ("", "k", "M", "G", "T", "P", "E"))


def _with_suffix(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while number and number % base == 0 and power < len(suffixes) - 1:
        number //= base
        power += 1
    return f"{number}{suffixes[power]}"


def whole_up(text: str) -> int:
    """Units (bytes for memory), rounded up as Kubernetes does."""
    numerator, denominator = parse(text)
    return _bounded(-(-numerator // denominator), text)


def count(text: str) -> int:
    """A whole number of things, as extended resources must be; a fraction is refused."""
    numerator, denominator = parse(text)
    if numerator % denominator:
        raise QuantityError(f"{text!r} is not a whole number")
    return _bounded(numerator // denominator, text)


def natural(text: str) -> int | None:
    """A whole number from 0 on as Kubernetes writes one: ASCII digits, few enough for 64 bits.

    None for everything else. `str.isdigit` alone says yes to ``"²"``, which `int` cannot read.
    """
    is_natural = len(text) <= _NATURAL_DIGITS_MAX and text.isascii() and text.isdigit()
    return int(text) if is_natural else None


def _bounded(value: int, text: str) -> int:
    if value > LIMIT:
        raise QuantityError(f"{text!r} is absurdly large (at most {LIMIT})")
    return value


def duration_ns(text: str, *, days: bool = False) -> int | None:
    """Nanoseconds of a duration that Go's `time.ParseDuration` takes, None for other texts.

    One or more numbers, each with a unit (ns us ms s m h) and perhaps a fraction, with one sign in
    front: ``1h30m``, ``.5h``, ``+5s``; or ``0``. What is finer than a nanosecond is cut off. With
    `days` there is one more unit, ``d`` for 24 hours, which Go lacks.
    """
    if len(text) > _DURATION_CHARS_MAX or not _DURATION.fullmatch(text):
        return None
    if not days and "d" in text:
        return None
    total_ns = 0
    for number, unit in _PART.findall(text):
        whole, _, fraction = number.partition(".")
        total_ns += int(whole + fraction) * _UNITS_NS[unit] // 10 ** len(fraction)
    if total_ns > _DURATION_NS_MAX:
        return None
    return -total_ns if text.startswith("-") else total_ns


def duration_ms(text: str) -> int | None:
    """The same in milliseconds, rounded up, so that a time above 0 never becomes none."""
    duration = duration_ns(text)
    return None if duration is None else -(-duration // 1_000_000)


_MIB = 1 << 20
_DAY_S = 86_400


def mib_text(mib: int) -> str:
    """``24.0 GiB``; below one GiB ``512 MiB``, from 10 TiB on ``375.0 TiB``. Rounded half up to a
    tenth."""
    if abs(mib) < 1024:
        return f"{mib} MiB"
    unit, word = (1024, "GiB") if abs(mib) < 10 << 20 else (1 << 20, "TiB")
    sign, tenths = ("-" if mib < 0 else ""), (abs(mib) * 10 + unit // 2) // unit
    return f"{sign}{tenths // 10}.{tenths % 10} {word}"


def bytes_text(amount: int) -> str:
    """The same for bytes, in whole MiB, rounded down; below one ``18 KiB`` or ``123 bytes``."""
    if 0 < amount < _MIB:
        return f"{amount >> 10} KiB" if amount >= 1024 else f"{amount} bytes"
    return mib_text(amount // _MIB)


def cpu_text(milli: int) -> str:
    """``2`` cores, ``500m``: as Kubernetes writes CPU."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def resource_text(name: str, amount: int, unit_bytes: int = 0) -> str:
    """An amount of Volcano's as people write it: `cpu` comes in milli-cores, `memory` in bytes,
    `pods` as they are, everything else in thousandths. `unit_bytes` is what one of a resource
    stands for that is memory; 0 if it is not.
    """
    if name == "memory":
        return bytes_text(amount)
    if name == "cpu":
        return cpu_text(amount)
    if name == "pods":
        return str(amount)
    if unit_bytes or name == "ephemeral-storage":
        return bytes_text(amount * (unit_bytes or 1) // 1000)
    whole, rest = divmod(amount, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def cut(text: str, most: int) -> str:
    """A text of at most so many characters; one that was longer ends with ``…``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


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


_HOUR_MS = 3_600_000
_HOUR_DIGITS = {1: 1000, 2: 10, 3: 1}
"""Digits after the point → tenths of an hour from which on so many are enough."""


def hours_column(amounts_ms: Iterable[int], unit: int = 1) -> list[str]:
    """A column of hours, rounded half up, in integers: with as many digits after the point as its
    largest needs to be read, and nothing that was held shown as none.
    """
    amounts, hour = list(amounts_ms), _HOUR_MS * unit
    largest = max(amounts, default=0)
    digits = next((d for d, least in _HOUR_DIGITS.items() if largest * 10 >= least * hour), 4)
    scale = 10**digits
    cells = []
    for amount in amounts:
        scaled = (amount * scale + hour // 2) // hour
        shown = f"{scaled // scale:,}.{scaled % scale:0{digits}}"
        cells.append(shown if scaled or not amount else f"<{1 / scale:.{digits}f}")
    return cells
