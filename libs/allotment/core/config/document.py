"""A YAML text as values that know where they stand.

YAML is read as PyYAML does (1.1), and numbers with an exponent but no point count as numbers, as in
Go. A fraction stays a decimal. Aliases are followed; merge keys (``<<``) and tags of one's own are
not, and are said.
"""

import re
from decimal import Decimal
from typing import NamedTuple, TypeGuard

import yaml

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset(_TAG + name for name in ("str", "timestamp", "value"))
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SHOWN_MOST = 80


class Mark(NamedTuple):
    """A place in the text, both counted from 1."""

    line: int
    column: int


class Scalar(NamedTuple):
    """`text` is as written, without quotes."""

    mark: Mark
    value: bool | int | Decimal | str | None
    text: str


class Sequence(NamedTuple):
    mark: Mark
    items: "tuple[Value, ...]"


class Entry(NamedTuple):
    """`is_text` is false for a key that is no text, like ``1`` or ``yes``."""

    key: str
    mark: Mark
    value: "Value"
    is_text: bool = True


class Mapping(NamedTuple):
    """Every key once: of equal keys the last counts, see `Document.doubled`."""

    mark: Mark
    entries: tuple[Entry, ...]

    def get(self, key: str) -> "Value | None":
        return next((entry.value for entry in self.entries if entry.key == key), None)


Value = Scalar | Sequence | Mapping


class Doubled(NamedTuple):
    """A key that stands in its mapping again, at `mark`."""

    mark: Mark
    key: str
    first: Mark


class Document(NamedTuple):
    """`root` is None for a text without content."""

    root: Value | None
    doubled: tuple[Doubled, ...]


class DocumentError(Exception):
    """Raised for a text that is not YAML or not the YAML that is read here; `mark` if known."""

    def __init__(self, mark: Mark | None, message: str) -> None:
        super().__init__(message)
        self.mark = mark
        self.message = message


def load(text: str) -> Document:
    """Raises `DocumentError`, and nothing else, for a text that cannot be read."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return Document(None, ())
        converter = _Converter()
        root = converter.value(node)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise DocumentError(mark, f"not YAML: the character U+{error.character:04X}") from error
    except yaml.YAMLError as error:
        found = getattr(error, "problem_mark", None)
        place = Mark(found.line + 1, found.column + 1) if found else None
        raise DocumentError(place, f"not YAML: {getattr(error, 'problem', error)}") from error
    except RecursionError as error:  # brackets without end
        raise DocumentError(None, "cannot be read: nested too deeply") from error
    except (ValueError, OverflowError) as error:  # a character by a number that is none
        raise DocumentError(None, f"cannot be read: {error}") from error
    return Document(None if is_empty(root) else root, tuple(converter.doubled))


def is_empty(value: Value | None) -> bool:
    """Is nothing there: no entry at all, or a key with nothing behind it?"""
    return value is None or (isinstance(value, Scalar) and value.value is None)


def is_text(value: Value | None) -> TypeGuard[Scalar]:
    return isinstance(value, Scalar) and isinstance(value.value, str)


def show(value: Value) -> str:
    """The value as a message names it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence):
        return "a list"
    if value.value is None:
        return "empty"
    shown = repr(value.value) if isinstance(value.value, str) else value.text
    return shown if len(shown) <= _SHOWN_MOST else f"{shown[:_SHOWN_MOST]}…"


class _Converter:
    def __init__(self) -> None:
        self.doubled: list[Doubled] = []
        self._made: dict[int, Value] = {}
        self._open: set[int] = set()

    def value(self, node: yaml.Node) -> Value:
        """Each node once, so that a text of aliases of aliases costs no more than its length."""
        known = self._made.get(id(node))
        if known is not None:
            return known
        mark = _mark(node)
        if id(node) in self._open:
            raise DocumentError(mark, "cannot be read: an alias that contains itself")
        self._open.add(id(node))
        made: Value
        if isinstance(node, yaml.MappingNode):
            _has_tag(node, "map")
            made = Mapping(mark, self._entries(node))
        elif isinstance(node, yaml.SequenceNode):
            _has_tag(node, "seq")
            made = Sequence(mark, tuple(self.value(item) for item in node.value))
        else:
            assert isinstance(node, yaml.ScalarNode)
            made = _scalar(node)
        self._made[id(node)] = made
        return made

    def _entries(self, node: yaml.MappingNode) -> tuple[Entry, ...]:
        found: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                message = "cannot be read: merge keys (<<) are not followed; write the keys out"
                raise DocumentError(_mark(key_node), message)
            key = self.value(key_node)
            name = key.text if isinstance(key, Scalar) else show(key)
            if name in found:
                self.doubled.append(Doubled(key.mark, name, found[name].mark))
            found[name] = Entry(name, key.mark, self.value(value_node), is_text(key))
        return tuple(found.values())


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _has_tag(node: yaml.Node, name: str) -> None:
    if node.tag != _TAG + name:
        message = f"not YAML that is read here: the tag {show(_as_text(node.tag, _mark(node)))}"
        raise DocumentError(_mark(node), message)


def _as_text(text: str, mark: Mark) -> Scalar:
    return Scalar(mark, text, text)


def _scalar(node: yaml.ScalarNode) -> Scalar:
    text, mark = node.value, _mark(node)
    if _SURROGATE.search(text):
        raise DocumentError(mark, "not YAML that is read here: half of a surrogate pair")
    if node.tag in _TEXTS:
        is_number = node.style is None and _EXPONENT.fullmatch(text)
        return Scalar(mark, _decimal(text) if is_number else text, text)
    if node.tag == f"{_TAG}null":
        return Scalar(mark, None, text)
    if node.tag == f"{_TAG}bool" and text.lower() in yaml.SafeLoader.bool_values:
        return Scalar(mark, yaml.SafeLoader.bool_values[text.lower()], text)
    if node.tag == f"{_TAG}float":
        return Scalar(mark, _decimal(text), text)
    _has_tag(node, "int")
    return Scalar(mark, _integer(text), text)


def _integer(text: str) -> int | str:
    """A number of base 60 (``1:30``) or of thousands of digits stays a text."""
    plain = text.replace("_", "")
    digits = plain.lstrip("+-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    try:
        return int(plain, 8 if is_octal else 0)
    except ValueError:
        return text


def _decimal(text: str) -> Decimal | str:
    """Infinite and undefined ones too; a number of base 60 (``1:30.5``) stays a text."""
    plain = text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
    try:
        return Decimal(plain)
    except ArithmeticError:
        return text
