"""Constructions in which English reads as if it was translated, and where text for people is found
in code.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ODD = re.compile(
    r"\b(?:nobody|somebody|whoever|whose one|anew|beside|in force|heed(?:s|ed)?|"
    r"(?:is|are|was|were|be|been|being|cannot be) told|told (?:so|of|that)|"
    r"(?:to|for|of|by|with|from|but|than|that) who \w+|"
    r"(?:is|are|was|were) (?:not )?so|what is so|as it is written|all the same|any more|"
    r"looks? after|lets? in|pass(?:es|ed)? over|has its turn|through with|had to go|"
    r"tried again|makes? again|made[- ]up|takes? for granted|says? no|believe[sd]?|"
    r"heard of|nothing heard|goes on|does not know it|that is there)\b|"
    r"(?:^|\. )Who (?:is|are|has|holds|needs|wants|asks|waits|reads|looks|comes)\b[^?.]*\.",
    re.IGNORECASE,
)
"""Name who does what instead, in the field's words."""
PARTS = ("libs", "proto", "services")


@cache
def modules() -> Mapping[Path, tuple[str, ast.Module]]:
    """All files of product code, each as text and parsed: once for all tests that read them."""
    paths = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def shown(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What people may get to see of a module, each with its line: string literals, with a gap where
    an f-string has a value, and docstrings of commands, which are their help.
    """
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            pieces = [each for each in node.values if isinstance(each, ast.Constant)]
            inner.update(map(id, pieces))
            yield node.lineno, " … ".join(str(piece.value) for piece in pieces)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def remarks(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _is_command(node: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(
        isinstance(each, ast.Attribute) and each.attr in ("command", "group") for each in decorators
    )
