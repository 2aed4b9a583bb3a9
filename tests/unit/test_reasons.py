"""The table of reason codes: complete, in order, and with words for each."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.core import reasons
from allotment.core.placement.rules.predicates import HOST_CHECKS
from allotment.core.reasons import REASONS, STEPS, TABLE, Reason
from tests.plain_english import ROOT
from tests.plain_english import modules as sources

TEXT_CHARS_MAX = 110
RAISING = {"Problem": 0, "NodeProblem": 0, "No": 0, "Dropped": 1, "Admission": 1}
"""What carries a code, and at which place; a keyword `code` counts for all of them."""
WITH_KEYWORD = {*RAISING, "Short", "BindFailed", "EvictionFailed", "Corrected"}
OTHERS = {"allotment_local", "jobs"}
"""The cluster for trials and the admission of Jobs: what they refuse is not a matter of reasons."""


def test_every_code_stands_once() -> None:
    assert [code for code, times in Counter(r.code for r in TABLE).items() if times > 1] == []


def test_every_constant_has_a_row() -> None:
    tree = ast.parse(Path(reasons.__file__).read_text(encoding="utf-8"))
    constants = {
        statement.target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }
    assert len(constants) > 50
    assert {n for n, code in constants.items() if code not in REASONS} == {"UNSCHEDULABLE"}


@pytest.mark.parametrize("reason", TABLE, ids=lambda reason: reason.code)
def test_every_code_has_words(reason: Reason) -> None:
    for words in (reason.text, reason.advice):
        assert 10 <= len(words) <= TEXT_CHARS_MAX
        assert words[0].islower()
        assert not words.endswith(".")
    assert reason.text != reason.advice


def test_rows_of_nodes_are_in_the_order_of_the_steps() -> None:
    keys = [step.key for step in STEPS]
    of_nodes = [reason.step for reason in TABLE if reason.step]
    assert of_nodes == sorted(of_nodes, key=keys.index)
    assert [reason.step for reason in TABLE[: len(of_nodes)]] == of_nodes
    assert set(of_nodes) == set(keys)


def test_what_stands_in_the_table_decides_how_codes_are_sorted() -> None:
    assert (
        frozenset(reasons.REFUSAL_ORDER)
        - {
            reasons.GPU_NOT_SELECTED,
            reasons.CARD_FAILING,
            reasons.GPU_MODEL_MISMATCH,
            reasons.GPU_UNHEALTHY,
        }
        == reasons.BUSY
    )
    assert reasons.LASTING.isdisjoint(reasons.CURED_BY_ROOM | reasons.KEPT_BACK)
    assert reasons.EXCLUDED_BY_POD | reasons.BEFORE_THE_POD < reasons.LASTING
    assert {r.code for r in TABLE if r.distance != reasons.FAR} <= reasons.STEP_NUMBER.keys()


def test_codes_used_anywhere_have_a_row() -> None:
    used = dict(_used())
    assert len(used) > 50
    assert {code: where for code, where in used.items() if code not in REASONS} == {}


def test_each_check_of_the_host_has_a_name_of_its_own_or_that_of_a_step() -> None:
    assert set(HOST_CHECKS) - {step.key for step in STEPS} == {"pods", "cpu", "memory"}


def _used() -> Iterator[tuple[str, str]]:
    """The codes that product code raises, each with a place."""
    parts = ("libs/allotment/", "libs/allotment_lab/", "proto/allotment_proto/", "services/")
    modules = {
        _module(path): tree
        for path, (_, tree) in sources().items()
        if str(path.relative_to(ROOT)).startswith(parts) and not OTHERS.intersection(path.parts)
    }
    texts = {name: _constants(tree) for name, tree in modules.items()}
    for name, tree in modules.items():
        known, aliases = dict(texts[name]), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    own = alias.asname or alias.name
                    if alias.name in texts.get(node.module, {}):
                        known[own] = texts[node.module][alias.name]
                    aliases[own] = texts.get(f"{node.module}.{alias.name}", {})
        for node in ast.walk(tree):
            for value in _codes(node):
                match value:
                    case ast.Constant(value=str(code)) if code:
                        yield code, f"{name}:{value.lineno}"
                    case ast.Name(id=constant) if constant in known:
                        yield known[constant], f"{name}:{value.lineno}"
                    case ast.Attribute(value=ast.Name(id=module), attr=constant):
                        if constant in aliases.get(module, {}):
                            yield aliases[module][constant], f"{name}:{value.lineno}"
                    case _:
                        pass


def _codes(node: ast.AST) -> Iterator[ast.expr]:
    """The codes that a call passes on."""
    if not isinstance(node, ast.Call):
        return
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in RAISING and len(node.args) > RAISING[name]:
        yield node.args[RAISING[name]]
    if name in WITH_KEYWORD:
        yield from (word.value for word in node.keywords if word.arg == "code")


def _constants(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text)))
            ):
                found[name] = text
            case _:
                pass
    return found


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
