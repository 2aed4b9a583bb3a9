"""The core answers by its arguments alone: no clock, no dice, no order of hashes, no floats."""

import ast
import sys
import types
from pathlib import Path

import pytest

from tests.recorded import A_FEW
from tests.strict.__main__ import differing, digests
from tests.strict.digests import lines
from tests.strict.traps import ImpureError, trapped

ROOT = Path(__file__).parents[2]
DECIDING = (
    *(ROOT / "libs/allotment/core" / room for room in ("jobs", "ledger", "placement", "queues")),
    ROOT / "proto/allotment_proto",
)
"""Where every number is an integer or a fraction."""
ALLOWED = {
    ("unserved.py", "0.75"),  # how alike two words are, for a suggestion
    ("messages.py", "0.5"),  # how long a service waits for an answer
    ("resources.py", "share"),  # of fractions
}
INTEGER_MATHS = frozenset(("ceil", "comb", "floor", "gcd", "isqrt", "lcm", "prod"))


def _floats(tree: ast.AST) -> list[str]:
    """What makes floats of integers, each as it is allowed."""
    found = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=float() as value):
                found.append(str(value))
            case ast.Call(func=ast.Name(id="float" | "round" as name)):
                found.append(name)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name not in INTEGER_MATHS:
                found.append(f"math.{name}")
            case _:
                pass
    return found


def test_no_number_that_decides_is_a_float() -> None:
    found = {
        (path.name, what)
        for room in DECIDING
        for path in room.rglob("*.py")
        if path.parent.name != "schema"
        for what in _floats(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED


def test_under_another_hash_seed_everything_comes_to_the_same() -> None:
    here = list(lines(A_FEW, 3))
    there = dict(line.split() for line in digests(sys.executable, "random", 3))
    assert [line for line in here if there[line.split()[0]] != line.split()[1]] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.time_ns()",
        "import random; random.random()",
        "import datetime; datetime.datetime.now()",
        "import uuid; uuid.uuid4()",
        "id(object())",
    ],
)
def test_a_core_that_asks_the_world_is_caught(source: str) -> None:
    code = compile(source, "planted", "exec")
    planted = types.ModuleType("allotment.core.placement.planted")
    with trapped():
        exec(code, {"__name__": "tests.elsewhere"})
        with pytest.raises(ImpureError):
            exec(code, planted.__dict__)
    exec(code, planted.__dict__)


def test_a_difference_is_named() -> None:
    runs = [("a", ["busy 1", "mig 2"]), ("b", ["busy 1", "mig 3"])]
    assert differing(runs) == ["b: 'mig 3' is 'mig 2' under a"]
