"""Kubernetes quantities → exact integers, without floats.

Grammar: a decimal number, then a binary suffix (Ki Mi Gi Ti Pi Ei), a decimal one
(n u m k M G T P E) or an exponent (e3, E-2). Source: apimachinery `resource.Quantity`.
"""

import re

_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DIGITS_MAX = 64
LIMIT = 1 << 62
"""Amounts beyond this are absurd (and would not fit the integer columns)."""


class QuantityError(ValueError):
    """Raised for text that is not a quantity, or not one that this resource can take."""


def parse(text: str) -> tuple[int, int]:
    """A quantity as an exact fraction (numerator ≥ 0, denominator > 0)."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _DIGITS_MAX else None
    if match is None:
        raise QuantityError(f"{text[:80]!r} is not a quantity (like 2, 500m, 16Gi)")
    sign, number, binary, decimal, exponent = match.groups()
    whole, _, fraction = number.partition(".")
    numerator, denominator = int(whole + fraction), 10 ** len(fraction)
    if sign == "-" and numerator:
        raise QuantityError(f"{text!r} is negative")
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


def _bounded(value: int, text: str) -> int:
    if value > LIMIT:
        raise QuantityError(f"{text!r} is absurdly large (at most {LIMIT})")
    return value
