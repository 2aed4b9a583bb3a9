"""Reads a foreign document field by field, and says of every fault where it is and what is right.

For configuration files and JSON annotations: whatever is in them, nothing crashes, and a message
never repeats more than a little of what it found.
"""

import re
import reprlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeGuard

from allotment_proto.facts import Problem

INT_MAX = (1 << 31) - 1
"""Volcano reads these numbers into 32 bits."""
MILLI_MAX = 1_000_000
SHOWN_MAX = 120
_HALF = re.compile("[\ud800-\udfff]")


def shown(value: object) -> str:
    """A value for a message, shortened."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python does not print numbers of thousands of digits
        return "a number without end"
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def is_text(value: object) -> TypeGuard[str]:
    """Whether this is text that can be written: JSON and YAML can name halves of characters."""
    return isinstance(value, str) and not _HALF.search(value)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60
        self.maxdict = self.maxlist = 3
        self.maxlevel = 2


_SHORT = _Short()


class Reading:
    """Collects the problems and warnings of one document."""

    def __init__(self, source: str, code: str) -> None:
        self.source = source
        self.code = code
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def at(self, place: str) -> str:
        """A key path with the document's name in front."""
        return f"{self.source}: {place}" if place else self.source

    def fail(self, place: str, value: object, wanted: str) -> None:
        self.say(place, f"is {shown(value)}; wanted: {wanted}")

    def say(self, place: str, message: str) -> None:
        self.problems.append(Problem(self.code, self.at(place), message))

    def warn(self, code: str, place: str, message: str) -> None:
        self.warnings.append(Problem(code, self.at(place), message))

    def mapping(self, value: Any, place: str) -> Mapping[str, Any]:
        """A mapping, without keys that are no text; nothing counts as an empty one."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(place, value, "a mapping")
            return {}
        for key in value:
            if not is_text(key):
                self.warn("UnknownKey", place, f"has the key {shown(key)}, which is no text")
        return {key: item for key, item in value.items() if is_text(key)}

    def items(self, value: Any, place: str) -> list[Any]:
        """A list; nothing counts as an empty one."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.fail(place, value, "a list")
            return []
        return value

    def known(self, mapping: Mapping[str, Any], place: str, known: Iterable[str]) -> None:
        """Warns of every key that is not among the known ones."""
        names = sorted(known)
        for key in sorted(set(mapping) - set(names)):
            spot = f"{place}.{key}" if place else key
            self.warn("UnknownKey", spot, f"is not known; known are {', '.join(names)}")

    def text(self, mapping: Mapping[str, Any], place: str, key: str, default: str = "") -> str:
        value = mapping.get(key)
        if value is None:
            return default
        if not is_text(value):
            self.fail(f"{place}.{key}", value, "a text")
            return default
        return value

    def boolean(self, mapping: Mapping[str, Any], place: str, key: str) -> bool:
        value = mapping.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fail(f"{place}.{key}", value, "true or false")
        return False

    def whole(
        self,
        mapping: Mapping[str, Any],
        place: str,
        key: str,
        default: int = 0,
        most: int = INT_MAX,
        least: int = 0,
    ) -> int:
        """A whole number within bounds (a fraction without a remainder counts as one)."""
        value = mapping.get(key)
        if value is None:
            return default
        number = int(value) if isinstance(value, (float, Decimal)) and _is_whole(value) else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            self.fail(f"{place}.{key}", value, f"a whole number from {least} to {most}")
            return default
        return number

    def milli(self, mapping: Mapping[str, Any], place: str, key: str, default: int) -> int:
        """A number of at least 0 in thousandths, what is below them cut off."""
        value = mapping.get(key)
        if value is None:
            return default
        if not isinstance(value, bool) and isinstance(value, (int, float, Decimal)):
            try:
                thousandths = Decimal(str(value)) * 1000
                if 0 <= thousandths <= MILLI_MAX:
                    return int(thousandths)
            except (ArithmeticError, ValueError):  # not a number, or too long a one
                pass
        self.fail(f"{place}.{key}", value, f"a number from 0 to {MILLI_MAX // 1000}")
        return default


def _is_whole(value: float | Decimal) -> bool:
    number = Decimal(value)
    if not number.is_finite() or number.copy_abs() > INT_MAX:
        return False
    return number == number.to_integral_value()
