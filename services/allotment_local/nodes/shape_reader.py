"""The reader of node shapes: every mistake with its line, its value, and what would be right."""

import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from allotment_local.nodes.shape_devices import RESOURCE, read_cards, read_npus
from allotment_local.nodes.shape_values import Field, Values
from allotment_local.nodes.shapes import (
    CPU,
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    EFFECTS,
    GPU_KINDS,
    KINDS,
    NPU_KINDS,
    VGPU,
    Cards,
    NodeShape,
    Npus,
)
from allotment_local.nodes.yaml_lines import NotYamlError, load_with_lines

NODES_MAX = 5000
ALLOCATE_MS_MAX = 600_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NODE_FIELDS = (
    "name",
    "prefix",
    "count",
    "kind",
    "gpus",
    "npus",
    "allocate_ms",
    "cpu",
    "memory",
    "labels",
    "taints",
)
_ROOT = Field(())


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
    values = Values(source, lines)
    shapes = shapes_in(values, value, _ROOT)
    if values.problems:
        raise ShapesError(values.problems)
    return tuple(shapes)


def shapes_in(values: Values, value: Any, root: Field) -> list[NodeShape]:
    """The nodes that stand at a place of a document."""
    for path, key in values.repeated:
        values.wrong(Field(path) / key, key, "each key once", "is repeated")
    if not isinstance(value, list) or not value:
        values.wrong(root, value, "a list of nodes: - name: gpu-0 …")
        return []
    shapes: list[NodeShape] = []
    names: set[str] = set()
    for index, item in enumerate(value):
        for shape in _group(values, root / index, item):
            if shape.name in names:
                values.wrong(root / index, shape.name, "a name for each node", "is taken")
            names.add(shape.name)
            shapes.append(shape)
    if len(shapes) > NODES_MAX:
        values.wrong(root, len(shapes), f"at most {NODES_MAX} nodes")
    return shapes


def _group(values: Values, field: Field, item: Any) -> list[NodeShape]:
    before = len(values.problems)
    node = values.mapping(field, item, _NODE_FIELDS)
    if node is None:
        return []
    if ("name" in node) == ("prefix" in node):
        values.wrong(field / "name", node.get("name"), "either name, or prefix with count")
        return []
    count = values.whole(field, node, "count", 1, NODES_MAX, default=1)
    if "name" in node and "count" in node:
        values.wrong(field / "count", node["count"], "prefix instead of name for several nodes")
    called = "name" if "name" in node else "prefix"
    base = values.text(field, node, called, _NAME.fullmatch, "lower case letters, digits, -")
    kind = values.choice(field, node, "kind", KINDS, default=VGPU if "gpus" in node else CPU)
    cards, npus = _devices(values, field, node, kind)
    shape = NodeShape(
        name=base,
        kind=kind,
        cards=cards,
        cpu=values.quantity(field, node, "cpu", DEFAULT_CPU),
        memory=values.quantity(field, node, "memory", DEFAULT_MEMORY),
        labels=_labels(values, field / "labels", node.get("labels")),
        taints=_taints(values, field / "taints", node.get("taints")),
        npus=npus,
        allocate_ms=(
            values.whole(field, node, "allocate_ms", 0, ALLOCATE_MS_MAX)
            if "allocate_ms" in node
            else None
        ),
    )
    if len(values.problems) > before:
        return []
    if called == "name":
        return [shape]
    return [msgspec.structs.replace(shape, name=f"{base}-{number}") for number in range(count)]


def _devices(
    values: Values, field: Field, node: Any, kind: str
) -> tuple[Cards | None, Npus | None]:
    cards = npus = None
    if "gpus" in node and kind not in NPU_KINDS:
        cards = read_cards(values, field / "gpus", node["gpus"], kind)
    if "npus" in node and kind in NPU_KINDS:
        npus = read_npus(values, field / "npus", node["npus"], kind)
    if kind in GPU_KINDS and "gpus" not in node:
        values.wrong(field / "gpus", None, f"the cards, as kind is {kind}")
    if kind in NPU_KINDS and "npus" not in node:
        values.wrong(field / "npus", None, f"the chips, as kind is {kind}")
    for part, kinds in (("gpus", GPU_KINDS), ("npus", NPU_KINDS)):
        if kind not in kinds and part in node:
            values.wrong(field / part, "…", f"no {part} on a node of kind {kind}")
    return cards, npus


def _labels(values: Values, field: Field, item: Any) -> tuple[tuple[str, str], ...]:
    labels = {} if item is None else values.mapping(field, item, None) or {}
    for key, value in labels.items():
        if not RESOURCE.fullmatch(key):
            values.wrong(field, key, "label keys like zone or example.com/zone")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            values.wrong(field / key, value, 'a text like "a", of letters, digits, -, _ and .')
    return tuple(labels.items())


def _taints(values: Values, field: Field, item: Any) -> tuple[tuple[str, str, str], ...]:
    if item is None:
        return ()
    if not isinstance(item, list):
        values.wrong(field, item, "a list of {key, value, effect}")
        return ()
    taints: list[tuple[str, str, str]] = []
    for index, given in enumerate(item):
        place = field / index
        taint = values.mapping(place, given, ("key", "value", "effect"))
        if taint is not None:
            key = values.text(place, taint, "key", RESOURCE.fullmatch, "a key like gpu")
            value = taint.get("value", "")
            if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
                values.wrong(place / "value", value, 'a text like "true"')
            effect = values.choice(place, taint, "effect", EFFECTS, default=EFFECTS[0])
            taints.append((key, str(value), effect))
    return tuple(taints)
