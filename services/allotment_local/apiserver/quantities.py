"""Kubernetes quantities ("500m", "3Gi", 2) as the API server takes them: numbers too, and below 0,
which validation refuses with words of its own. How a text is read says `core.units`."""

from fractions import Fraction
from functools import lru_cache

from allotment.core import units

MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction | None:
    try:
        return Fraction(*units.parse(text, signed=True))
    except units.QuantityError:
        return None


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
