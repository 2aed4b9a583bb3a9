"""The part of JSONPath that printer columns use: fields, quoted fields, indexes, one filter form.

`.spec.minMember`, `.status.conditions[?(@.type=="Ready")].status`, `.spec.tasks[0].name`,
`.metadata.annotations.example\\.com/note`, `.items[*].name`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\]|\\.)+)
      | \[\s*(?P<quote>['"])(?P<quoted>(?:[^'"\\]|\\.)+)(?P=quote)\s*\]
      | \[\s*(?P<index>-?\d+)\s*\]
      | (?P<all>\[\*\]|\.\*)
      | \[\?\(\s*@\.(?P<key>[\w./-]+)\s*==\s*['"]?(?P<wanted>[^'")]*)['"]?\s*\)\]""",
    re.VERBOSE,
)
_Step = Callable[[Any], Iterator[Any]]


def _field(name: str) -> _Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(position: int) -> _Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= position < len(value):
            yield value[position]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _where(key: str, wanted: str) -> _Step:
    inner = compile_path(f".{key}")

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if str(next(inner(item), "")) == wanted)

    return step


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Any], Iterator[Any]]:
    """A function from an object to the values the path finds.

    ValueError on a path outside the subset.
    """
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and not text.startswith((".", "[")):
        text = "." + text
    steps: list[_Step] = []
    position = 0
    while position < len(text) and text != ".":
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"JSONPath {path!r} is not supported from {text[position:]!r} on")
        position = match.end()
        if (name := match["field"] or match["quoted"]) is not None and not match["all"]:
            steps.append(_every if name == "*" else _field(re.sub(r"\\(.)", r"\1", name)))
        elif match["index"] is not None:
            steps.append(_index(int(match["index"])))
        elif match["all"]:
            steps.append(_every)
        else:
            steps.append(_where(match["key"], match["wanted"]))

    def find(value: Any) -> Iterator[Any]:
        found: list[Any] = [value]
        for step in steps:
            found = [item for one in found for item in step(one)]
        return iter(found)

    return find
