"""A vector file → vectors, with the place of every mistake.

A vector file is a JSON array. Each element says what was asked of one function of Volcano's
(`function`, `input`) and what that answered (`expected`). An element with the id ``_constants``
holds longer texts, which others name as ``$NAME``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from allotment.core.errors import AllotError

CONSTANTS = "_constants"
BUILT_IN = "BUILTIN_DEFAULT"
"""A constant that stands for no text: no ConfigMap is there, defaults apply."""
NOT_A_FILE_OF_VECTORS = "give a JSON array of vectors with id, kind, function, input and expected"


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its answer. `nondeterministic`: the answer was one of several."""

    id: str
    kind: str
    function: str
    input: dict[str, Any]
    expected: dict[str, Any]
    nondeterministic: bool = False
    constants: dict[str, str] = {}
    """All constants of the file, for vectors that tell of them in words."""


def read(path: Path) -> tuple[Vector, ...]:
    """The vectors of a file, constants put in. Raises `AllotError` for what is no such file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise AllotError(f"{path} cannot be read: {error}") from error
    return parse(content, str(path))


def parse(content: bytes, source: str) -> tuple[Vector, ...]:
    """The vectors of a text, constants put in. Raises `AllotError` for what is no such text."""
    try:
        elements = msgspec.json.decode(content, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise AllotError(f"{source} is no vector file: {error}", NOT_A_FILE_OF_VECTORS) from error
    constants: dict[str, str] = {}
    vectors: list[Vector] = []
    for number, element in enumerate(elements):
        vector = _vector(element, f"{source}: element {number}")
        if vector.id == CONSTANTS:
            constants.update(_texts(vector, f"{source}: element {number} ({CONSTANTS})"))
        else:
            vectors.append(vector)
    if not vectors:
        raise AllotError(f"{source} holds no vectors", NOT_A_FILE_OF_VECTORS)
    seen: set[str] = set()
    for vector in vectors:
        if vector.id in seen:
            raise AllotError(
                f"{source}: the id {vector.id!r} occurs twice", "give each vector its own"
            )
        seen.add(vector.id)
    return tuple(_with_constants(vector, constants, source) for vector in vectors)


def _vector(element: dict[str, Any], place: str) -> Vector:
    try:
        return msgspec.convert(element, Vector)
    except msgspec.ValidationError as error:
        name = element.get("id")
        shown = f"{place} ({name})" if isinstance(name, str) else place
        raise AllotError(f"{shown}: {error}", NOT_A_FILE_OF_VECTORS) from error


def _texts(vector: Vector, place: str) -> dict[str, str]:
    wrong = sorted(name for name, text in vector.input.items() if not isinstance(text, str))
    if wrong:
        raise AllotError(f"{place}: {', '.join(wrong)} is not a text", "constants are texts")
    return vector.input


def _with_constants(vector: Vector, constants: Mapping[str, str], source: str) -> Vector:
    config = vector.input.get("config")
    name = config[1:] if isinstance(config, str) and config.startswith("$") else BUILT_IN
    if name not in constants and name != BUILT_IN:
        raise AllotError(
            f"{source}: vector {vector.id} names ${name}, which is no constant of the file",
            f"known are {', '.join(sorted(constants)) or 'none'}",
        )
    filled = {name: _filled(value, constants) for name, value in vector.input.items()}
    return msgspec.structs.replace(vector, input=filled, constants=dict(constants))


def _filled(value: Any, constants: Mapping[str, str]) -> Any:
    """The value with every text that is exactly the name of a constant replaced."""
    match value:
        case str() if value == f"${BUILT_IN}":
            return None
        case str() if value.startswith("$"):
            return constants.get(value[1:], value)
        case dict():
            return {key: _filled(item, constants) for key, item in value.items()}
        case list():
            return [_filled(item, constants) for item in value]
        case _:
            return value
