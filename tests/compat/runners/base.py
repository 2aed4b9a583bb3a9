"""What every runner speaks: fields with what was expected and what came out."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.compat.file import Vector

Fields = dict[str, tuple[Any, Any]]
"""Field → (expected, got)."""
Runner = Callable[[Vector], Fields]


class CannotRun(Exception):
    """Raised with the reason when a vector cannot be asked of the product."""


def compared(expected: Mapping[str, Any], got: Mapping[str, Any], place: str = "") -> Fields:
    """Every expected field next to what came out. Raises `CannotRun` for one nobody knows."""
    unknown = sorted(set(expected) - set(got))
    if unknown:
        raise CannotRun(f"expects {place}{', '.join(unknown)}, of which nothing is known")
    return {f"{place}{field}": (value, got[field]) for field, value in expected.items()}
