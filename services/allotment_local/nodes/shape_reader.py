"""The reader of node shapes: every mistake with its line, its value, and what would be right."""

import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from allotment_local.apiserver.quantities import parse_quantity
from allotment_local.nodes.shapes import (
    CPU,
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    DEFAULT_MODE,
    DEFAULT_SLOTS,
    EFFECTS,
    KINDS,
    MODES,
    VGPU,
    WHOLE,
    WHOLE_RESOURCE,
    Cards,
    NodeShape,
)
from allotment_local.nodes.yaml_lines import Lines, NotYamlError, load_with_lines

NODES_MAX = 5000
CARDS_MAX = 64
MEMORY_MIB_MAX = 1 << 24
SLOTS_MAX = 1000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_./]{0,250})?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NODE_FIELDS = ("name", "prefix", "count", "kind", "gpus", "cpu", "memory", "labels", "taints")
_GPU_FIELDS = ("model", "count", "memory_mib", "slots", "mode", "resource")


class ShapesError(Exception):
    """Raised for a file that cannot be used; `problems` hold one line per mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def default_shapes() -> tuple[NodeShape, ...]:
    """The mixed cluster that local mode starts without `--nodes`."""
    file = resources.files("allotment_local").joinpath("clusters", "default.yaml")
    return parse_shapes(file.read_text(encoding="utf-8"), "clusters/default.yaml")


def read_shapes(path: Path) -> tuple[NodeShape, ...]:
    """The nodes of a file. Raises ShapesError, also when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ShapesError([f"{path}: cannot be read: {error}"]) from error
    return parse_shapes(text, str(path))


def parse_shapes(text: str, source: str) -> tuple[NodeShape, ...]:
    """The nodes of a text. Raises ShapesError with every mistake in it."""
    try:
        value, lines = load_with_lines(text)
    except NotYamlError as error:
        raise ShapesError([f"{source}{error}"]) from error
    reader = _Reader(source, lines)
    shapes = reader.nodes(value)
    if reader.problems:
        raise ShapesError(reader.problems)
    return tuple(shapes)


def shapes_in(
    value: Any, source: str, lines: Lines, place: tuple[str | int, ...]
) -> tuple[list[NodeShape], list[str]]:
    """The nodes that stand at `place` of a larger document, and every mistake in them."""
    reader = _Reader(source, lines)
    return reader.nodes(value, _Field(place)), reader.problems


class _Field(NamedTuple):
    """A place in the document, for messages."""

    path: tuple[str | int, ...]

    def __truediv__(self, step: str | int) -> "_Field":
        return _Field((*self.path, step))

    def __str__(self) -> str:
        shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.path)
        return shown.lstrip(".") or "the document"


_ROOT = _Field(())


class _Reader:
    def __init__(self, source: str, lines: Lines) -> None:
        self._source = source
        self._lines = lines
        self.problems: list[str] = []

    def nodes(self, value: Any, root: _Field = _ROOT) -> list[NodeShape]:
        for path, key in self._lines.repeated:
            self._wrong(_Field(path) / key, key, "each key once", "is repeated")
        if not isinstance(value, list) or not value:
            self._wrong(root, value, "a list of nodes: - name: gpu-0 …")
            return []
        shapes: list[NodeShape] = []
        names: set[str] = set()
        for index, item in enumerate(value):
            for shape in self._group(root / index, item):
                if shape.name in names:
                    self._wrong(root / index, shape.name, "a name for each node", "is taken")
                names.add(shape.name)
                shapes.append(shape)
        if len(shapes) > NODES_MAX:
            self._wrong(root, len(shapes), f"at most {NODES_MAX} nodes")
        return shapes

    def _group(self, field: _Field, item: Any) -> list[NodeShape]:
        before = len(self.problems)
        node = self._mapping(field, item, _NODE_FIELDS)
        if node is None:
            return []
        if ("name" in node) == ("prefix" in node):
            self._wrong(field, node.get("name"), "either name, or prefix with count")
            return []
        count = self._whole(field, node, "count", 1, NODES_MAX, default=1)
        if "name" in node and "count" in node:
            self._wrong(field / "count", node["count"], "prefix instead of name for several nodes")
        called = "name" if "name" in node else "prefix"
        base = self._text(field, node, called, _NAME.fullmatch, "lower case letters, digits, -")
        kind = self._choice(field, node, "kind", KINDS, default=VGPU if "gpus" in node else CPU)
        cards = self._cards(field / "gpus", node["gpus"], kind) if "gpus" in node else None
        if kind != CPU and "gpus" not in node:
            self._wrong(field / "gpus", None, f"the cards, as kind is {kind}")
        if kind == CPU and "gpus" in node:
            self._wrong(field / "gpus", "…", "no gpus on a node of kind cpu")
        shape = NodeShape(
            name=base,
            kind=kind,
            cards=cards,
            cpu=self._quantity(field, node, "cpu", DEFAULT_CPU),
            memory=self._quantity(field, node, "memory", DEFAULT_MEMORY),
            labels=self._labels(field / "labels", node.get("labels")),
            taints=self._taints(field / "taints", node.get("taints")),
        )
        if len(self.problems) > before:
            return []
        if called == "name":
            return [shape]
        return [msgspec.structs.replace(shape, name=f"{base}-{number}") for number in range(count)]

    def _cards(self, field: _Field, item: Any, kind: str) -> Cards | None:
        gpus = self._mapping(field, item, _GPU_FIELDS)
        if gpus is None:
            return None
        resource = WHOLE_RESOURCE
        if "resource" in gpus:
            wanted = "a resource like nvidia.com/gpu, with kind whole"
            check = _LABEL.fullmatch if kind == WHOLE else _never
            resource = self._text(field, gpus, "resource", check, wanted)
            if kind == WHOLE and "/" not in resource:
                self._wrong(field / "resource", resource, wanted)
        model = self._text(field, gpus, "model", _is_model, "a card's name, without , : or ;")
        return Cards(
            model=model.removeprefix("NVIDIA-"),
            count=self._whole(field, gpus, "count", 1, CARDS_MAX),
            memory_mib=self._whole(field, gpus, "memory_mib", 1, MEMORY_MIB_MAX),
            slots=self._whole(field, gpus, "slots", 1, SLOTS_MAX, default=DEFAULT_SLOTS),
            mode=self._choice(field, gpus, "mode", MODES, default=DEFAULT_MODE),
            resource=resource,
        )

    def _labels(self, field: _Field, item: Any) -> tuple[tuple[str, str], ...]:
        labels = {} if item is None else self._mapping(field, item, None) or {}
        for key, value in labels.items():
            if not _LABEL.fullmatch(key):
                self._wrong(field, key, "label keys like zone or example.com/zone")
            if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                self._wrong(field / key, value, 'a text like "a", of letters, digits, -, _ and .')
        return tuple(labels.items())

    def _taints(self, field: _Field, item: Any) -> tuple[tuple[str, str, str], ...]:
        if item is None:
            return ()
        if not isinstance(item, list):
            self._wrong(field, item, "a list of {key, value, effect}")
            return ()
        taints: list[tuple[str, str, str]] = []
        for index, given in enumerate(item):
            place = field / index
            taint = self._mapping(place, given, ("key", "value", "effect"))
            if taint is not None:
                key = self._text(place, taint, "key", _LABEL.fullmatch, "a key like gpu")
                value = taint.get("value", "")
                if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                    self._wrong(place / "value", value, 'a text like "true"')
                effect = self._choice(place, taint, "effect", EFFECTS, default=EFFECTS[0])
                taints.append((key, str(value), effect))
        return tuple(taints)

    # One value each

    def _mapping(
        self, field: _Field, item: Any, allowed: tuple[str, ...] | None
    ) -> Mapping[str, Any] | None:
        if not isinstance(item, dict) or not all(isinstance(key, str) for key in item):
            self._wrong(field, item, "a mapping of names to values")
            return None
        for key in item:
            if allowed is not None and key not in allowed:
                self._wrong(field / key, key, f"one of {', '.join(allowed)}", "is not known")
        return item

    def _text(
        self,
        field: _Field,
        given: Mapping[str, Any],
        key: str,
        accepts: Callable[[str], object],
        wanted: str,
    ) -> str:
        value = given.get(key)
        if not isinstance(value, str) or not accepts(value):
            self._wrong(field / key, value, wanted)
            return ""
        return value

    def _choice(
        self,
        field: _Field,
        given: Mapping[str, Any],
        key: str,
        choices: tuple[str, ...],
        *,
        default: str,
    ) -> str:
        value = given.get(key, default)
        if value not in choices:
            self._wrong(field / key, value, f"one of {', '.join(choices)}")
            return default
        return str(value)

    def _whole(
        self,
        field: _Field,
        given: Mapping[str, Any],
        key: str,
        least: int,
        most: int,
        *,
        default: int | None = None,
    ) -> int:
        value = given.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self._wrong(field / key, value, f"a whole number from {least} to {most}")
            return least
        return value

    def _quantity(self, field: _Field, given: Mapping[str, Any], key: str, default: str) -> str:
        value = given.get(key, default)
        amount = parse_quantity(value)
        if amount is None or amount <= 0:
            wanted = "cores like 64 or 500m" if key == "cpu" else "bytes like 256Gi"
            self._wrong(field / key, value, wanted)
            return default
        return str(value)

    def _wrong(self, field: _Field, value: Any, wanted: str, what: str = "") -> None:
        line = self._lines.of(field.path)
        shown = "is missing" if value is None else f"{value!r} {what}".rstrip()
        if len(shown) > 80:
            shown = shown[:77] + "..."
        self.problems.append(f"{self._source}:{line}: {field}: {shown}; wanted: {wanted}")


def _is_model(text: str) -> bool:
    return bool(text.strip()) and not set(text) & set(",:;")


def _never(_text: str) -> None:
    return None
