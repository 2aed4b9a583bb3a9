"""Single values of a YAML file, each checked; every mistake with its line, value and remedy."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from allotment.core.config.report import hint
from allotment_local.apiserver.quantities import parse_quantity
from allotment_local.nodes.yaml_lines import Lines


class Field(NamedTuple):
    """A place in the document, for messages."""

    path: tuple[str | int, ...]

    def __truediv__(self, step: str | int) -> "Field":
        return Field((*self.path, step))

    def __str__(self) -> str:
        shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.path)
        return shown.lstrip(".") or "the document"


class Values:
    """Reads values out of mappings. What is wrong goes into `problems`, a harmless value out."""

    def __init__(self, source: str, lines: Lines) -> None:
        self._source = source
        self._lines = lines
        self.problems: list[str] = []

    @property
    def repeated(self) -> list[tuple[tuple[str | int, ...], str]]:
        return self._lines.repeated

    def mapping(
        self, field: Field, item: Any, allowed: tuple[str, ...] | None
    ) -> Mapping[str, Any] | None:
        if not isinstance(item, dict) or not all(isinstance(key, str) for key in item):
            self.wrong(field, item, "a mapping of names to values")
            return None
        for key in item:
            if allowed is not None and key not in allowed:
                self._problem(field / key, f" is not known; {hint(key, allowed)}")
        return item

    def text(
        self,
        field: Field,
        given: Mapping[str, Any],
        key: str,
        accepts: Callable[[str], object],
        wanted: str,
    ) -> str:
        value = given.get(key)
        if not isinstance(value, str) or not accepts(value):
            self.wrong(field / key, value, wanted)
            return ""
        return value

    def choice(
        self,
        field: Field,
        given: Mapping[str, Any],
        key: str,
        choices: tuple[str, ...],
        *,
        default: str,
    ) -> str:
        value = given.get(key, default)
        if value not in choices:
            self.wrong(field / key, value, f"one of {', '.join(choices)}")
            return default
        return str(value)

    def whole(
        self,
        field: Field,
        given: Mapping[str, Any],
        key: str,
        least: int,
        most: int,
        *,
        default: int | None = None,
    ) -> int:
        value = given.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.wrong(field / key, value, f"a whole number from {least} to {most}")
            return least
        return value

    def switch(self, field: Field, given: Mapping[str, Any], key: str) -> bool:
        value = given.get(key, False)
        if not isinstance(value, bool):
            self.wrong(field / key, value, "true or false")
            return False
        return value

    def quantity(self, field: Field, given: Mapping[str, Any], key: str, default: str) -> str:
        value = given.get(key, default)
        amount = parse_quantity(value)
        if amount is None or amount <= 0:
            wanted = "cores like 64 or 500m" if key == "cpu" else "bytes like 256Gi"
            self.wrong(field / key, value, wanted)
            return default
        return str(value)

    def wrong(self, field: Field, value: Any, wanted: str, what: str = "") -> None:
        shown = f": {value!r} {what}" if what else f" is {value!r}"
        if value is None:
            shown = " is missing"
        if len(shown) > 80:
            shown = shown[:77] + "..."
        self._problem(field, f"{shown}; wanted: {wanted}")

    def _problem(self, field: Field, what: str) -> None:
        line = self._lines.of(field.path)
        self.problems.append(f"{self._source}:{line}: {field}{what}")
