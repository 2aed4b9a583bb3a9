"""YAML with the line of every value, so that a message can say where to look."""

from typing import Any, NamedTuple

import yaml

Path = tuple[str | int, ...]


class Lines(NamedTuple):
    """Line numbers from 1, by path of keys and indexes."""

    by_path: dict[Path, int]
    repeated: list[tuple[Path, str]]
    """Keys that a mapping has twice: the mapping's path, and the key."""

    def of(self, path: Path) -> int:
        """The line of a value, or of what it should have been in."""
        while path and path not in self.by_path:
            path = path[:-1]
        return self.by_path.get(path, 1)


class NotYamlError(Exception):
    """Raised for a text that is not YAML. As text: ``:<line>: not valid YAML: …``, to be put behind
    the name of the file.
    """


def load_with_lines(text: str) -> tuple[Any, Lines]:
    """The document as plain values, and where they stood. Raises NotYamlError."""
    lines = Lines({}, [])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _walk(root, (), lines)
        return yaml.safe_load(text), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise NotYamlError(f"{line}: not valid YAML: {what}") from error
    except (ValueError, RecursionError) as error:  # a date that is none; brackets without end
        raise NotYamlError(f": not valid YAML: {error}") from error


def _walk(node: yaml.Node, path: Path, lines: Lines) -> None:
    lines.by_path[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                lines.repeated.append((path, name))
            seen.add(name)
            _walk(value, (*path, name), lines)
            lines.by_path[(*path, name)] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines)
