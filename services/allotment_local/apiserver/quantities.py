"""Kubernetes quantities ("500m", "3Gi", 2): parsed exactly, for validation on pods and nodes."""

import re
from fractions import Fraction
from functools import lru_cache

_PATTERN = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,3}|)"
)
_SCALES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}
MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction | None:
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    sign, digits, suffix = match.groups()
    scale = _SCALES.get(suffix)
    if scale is None:  # an exponent; "E" alone is exa and was found above
        scale = Fraction(10) ** int(suffix[1:])
    return Fraction(f"{sign}{digits.rstrip('.')}") * scale


def canonical(value: str | int | float) -> str:
    """As the server shows it: numbers become strings (0.5 is "500m"), strings stay."""
    if isinstance(value, str):
        return value
    amount = parse_quantity(value)
    if amount is None or amount.denominator == 1:
        return str(value if amount is None else int(amount))
    return f"{-(-amount.numerator * 1000 // amount.denominator)}m"


def parse_quantity(value: object) -> Fraction | None:
    """The exact amount, or None when `value` is not a quantity. Numbers count as their text."""
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, float):
        return _parse(repr(value))
    return None
