"""No device family is named outside its own packages: whoever needs one asks `FAMILIES`."""

import ast
import re
from collections.abc import Iterator

import pytest

from allotment.core.placement.devices import FAMILIES
from tests.plain_english import ROOT, modules

ROOTS = ("libs/", "services/")
AT_HOME = (
    "libs/allotment/core/placement/devices",
    "libs/allotment/core/ledger/partitions",
    "libs/allotment_lab",
    "services/allotment_local",
)
"""Where families are made, and what plays their cards and pods."""
NAMED = re.compile(
    rf"(?<![a-z])({'|'.join(FAMILIES)}|hami(?!.core))(?![a-z])",
    re.IGNORECASE,
)
"""``hami-core`` is a mode, which pods and nodes have."""


def named_in(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and text of whatever names a family: identifiers, imports and texts. Docstrings and
    comments may."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return sorted(
        (line, text)
        for node in ast.walk(tree)
        if id(node) not in prose
        for line, text in texts_of(node)
        if NAMED.search(_words(text))
    )


def texts_of(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Constant(value=str(text)):
            yield node.lineno, text
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
            yield node.lineno, text
        case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text) | ast.ClassDef(name=text):
            yield node.lineno, text
        case ast.keyword(arg=str(text)):
            yield node.value.lineno, text
        case ast.ImportFrom(module=str(text)):
            yield node.lineno, text
        case ast.alias(name=text):
            yield node.lineno, text
        case _:
            pass


def _words(text: str) -> str:
    """``VgpuRecord`` → ``Vgpu Record``, ``VGPUEnable`` → ``VGPU Enable``: a name is found in any
    style."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)


def test_no_family_is_named_outside_its_packages() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path, (_, tree) in modules().items()
        if str(path.relative_to(ROOT)).startswith(ROOTS)
        if not str(path.relative_to(ROOT)).startswith(AT_HOME)
        for line, text in named_in(tree)
    ]
    assert not found, "ask Family for it:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        'if held.family == "vgpu": pass',
        "if held.family == vgpu.FAMILY: pass",
        "from allotment_proto.volcano import keys, mindcluster",
        "from allotment_proto.volcano.ascend import FAMILY",
        "import allotment_proto.volcano.gpushare",
        "key = keys.LOCK_VGPU",
        "chips = config.ascend",
        "kind = policy.gpushare_kind",
        "policy = Policy(gpushare_kind=kind)",
        'switch = "deviceshare.VGPUEnable"',
        'prefix = f"volcano_vgpu_device_{name}"',
        "family = Mindcluster()",
        "class AscendWatch: pass",
        "key = keys.hami_allocated(word)",
    ],
)
def test_a_planted_name_is_found(planted: str) -> None:
    assert named_in(ast.parse(planted))


@pytest.mark.parametrize(
    "fine",
    [
        '"""The vGPU plugin goes by annotations alone."""',
        "def f():\n    # as the Ascend plugin does\n    return 1",
        "rows.sort(key=ascending)",
        'text = "cards in descending order"',
        'mode = "hami-core"',
        "for family in FAMILIES.values(): family.lock_key(held)",
    ],
)
def test_prose_and_other_words_are_none(fine: str) -> None:
    assert not named_in(ast.parse(fine))
