"""The rooms of the core have doors: what others may import of each. All else is inner.

A door is a module that the docstring of its room lists under "What others may use:". A name of a
room that is used outside is a *door name*. `python -m tests.unit.test_room_doors` counts them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from allotment.core import __path__ as CORE_PATH

CORE = "allotment.core"
ROOT = Path(__file__).parents[2]
SOURCES = ("libs", "services", "proto")
LIST = re.compile(r"^What others may use:\n\n((?:[* ] .*\n)+)", re.MULTILINE)


class Use(NamedTuple):
    """A name of a module of the core, used in another module."""

    user: str
    module: str
    name: str


@cache
def modules(*sources: str) -> Mapping[str, Path]:
    """Every module of the product by its name, or of these folders."""
    found = {}
    for source in sources or SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            parts = path.relative_to(ROOT / source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str | None:
    """``allotment.core.queues.round.rounds`` → ``queues``; None outside the core."""
    return module.split(".")[2] if module.startswith(f"{CORE}.") else None


def doors_of(docstring: str) -> list[str]:
    """What a room's docstring lists: every name in backquotes before a colon."""
    listed = LIST.search(docstring + "\n")
    if listed is None:
        return []
    entries = re.findall(r"((?:`[\w.]+`(?:,\s+)?)+):", listed[1])
    return [name for entry in entries for name in re.findall(r"`([\w.]+)`", entry)]


def uses_in(user: str, source: str, known: Iterable[str]) -> Iterator[Use]:
    """What a module uses of others: names that it imports, and attributes of modules that it
    imports."""
    nodes = list(ast.walk(ast.parse(source)))
    bound = {}
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(origin)):
                for alias in node.names:
                    full = f"{origin}.{alias.name}"
                    if full in known:
                        bound[alias.asname or alias.name] = full
                        yield Use(user, full, "")
                    elif origin in known:
                        yield Use(user, origin, alias.name)
            case ast.Import():
                for alias in node.names:
                    if alias.name in known:
                        bound[alias.asname or alias.name] = alias.name
                        yield Use(user, alias.name, "")
            case _:
                pass
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in bound:
                yield Use(user, bound[name], attribute)
            case _:
                pass


@cache
def uses_from_outside() -> frozenset[Use]:
    """Names of rooms that are used outside their room."""
    known = modules()
    return frozenset(
        use
        for user, path in known.items()
        for use in uses_in(user, path.read_text(encoding="utf-8"), known)
        if room_of(use.module) not in (None, room_of(user))
    )


@cache
def doors() -> Mapping[str, frozenset[str]]:
    """The doors of every room that is a package, by the room. A module of its own is its door.

    A list may name a function of a door: `pod.explain` is the door `pod`.
    """
    known = modules()
    found = {}
    for path in sorted(Path(CORE_PATH[0]).glob("*/__init__.py")):
        room = path.parent.name
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        named = [f"{CORE}.{room}.{name}" for name in doors_of(text)]
        found[room] = frozenset(
            name if name in known else name.rpartition(".")[0] for name in named
        )
    return found


def door_names() -> dict[str, set[tuple[str, str]]]:
    """Module and name of what is used from outside, by the room."""
    found = defaultdict(set)
    for use in uses_from_outside():
        room = room_of(use.module)
        if room and use.name:
            found[room].add((use.module, use.name))
    return found


def shown_in(source: str) -> set[str]:
    """Names at the top of a module that have no underscore. A type does not count if an annotation
    in the module names it: whoever calls what is annotated so may want to see it."""
    tree = ast.parse(source)
    names, types = set(), set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                types.add(name)
            case ast.Assign(targets=targets, value=value):
                found = {
                    t.id for goal in targets for t in ast.walk(goal) if isinstance(t, ast.Name)
                }
                (types if isinstance(value, ast.Subscript | ast.BinOp) else names).update(found)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return {name for name in names | (types - annotated_in(tree)) if not name.startswith("_")}


def annotated_in(tree: ast.AST) -> set[str]:
    """Names in the annotations of a module, and in the types that it puts together."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=note) | ast.AsyncFunctionDef(returns=note):
                pass
            case ast.arg(annotation=note) | ast.AnnAssign(annotation=note):
                pass
            case ast.Assign(value=ast.Subscript() | ast.BinOp() as note):
                pass
            case _:
                continue
        found.update(re.findall(r"\w+", ast.unparse(note)) if note else ())
    return found


def test_what_no_other_module_uses_has_an_underscore() -> None:
    known, tests = modules(), modules("tests")
    used = {
        (use.module, use.name)
        for user, path in [*known.items(), *tests.items()]
        for use in uses_in(user, path.read_text(encoding="utf-8"), known)
    }
    unused = sorted(
        f"{module}.{name}"
        for module, path in known.items()
        if room_of(module)
        for name in shown_in(path.read_text(encoding="utf-8"))
        if (module, name) not in used
    )
    assert not unused, "used in their own modules only:\n" + "\n".join(unused)


def test_other_rooms_and_packages_come_in_by_the_doors() -> None:
    listed = {module for names in doors().values() for module in names}
    wrong = sorted(
        f"{use.user} uses {use.module}.{use.name}"
        for use in uses_from_outside()
        if use.module not in listed and room_of(use.module) in doors()
    )
    assert not wrong, "no door, in the docstring of the room:\n" + "\n".join(wrong)


def test_a_door_is_a_module_that_somebody_outside_uses() -> None:
    listed = {module for names in doors().values() for module in names}
    assert sorted(listed - modules().keys()) == [], "no such module"
    assert sorted(listed - {use.module for use in uses_from_outside()}) == [], "used by nobody"
    assert all(doors().values()), "a room without doors"


def test_uses_are_found_however_a_name_is_imported() -> None:
    known = [f"{CORE}.ledger", f"{CORE}.ledger.pods"]
    source = (
        "from allotment.core.ledger.pods import observed as seen, gone\n"
        "from allotment.core.ledger import pods as p\n"
        "import allotment.core.ledger.pods\n"
        "def f():\n    return p.corrected(seen)\n"
    )
    found = {use.name for use in uses_in("x", source, known) if use.module == known[1]}
    assert found == {"observed", "gone", "corrected", ""}


def test_doors_are_read_from_a_docstring() -> None:
    listed = "* `a`, `b.c`: this. `d`: see\n  `e`,\n  `f`: that.\n"
    text = f"Room.\n\nWhat others may use:\n\n{listed}\nInner: `g`: no"
    assert doors_of(text) == ["a", "b.c", "d", "e", "f"]


def main() -> None:
    """Print how many names each room shows, and how many modules."""
    counts = {
        room: (len(names), len({module for module, _ in names}))
        for room, names in door_names().items()
    }
    for room, (names, used) in sorted(counts.items()):
        print(f"{room:16} {names:4} names of {used:3} modules")
    print(f"{'all':16} {sum(names for names, _ in counts.values()):4} names")


if __name__ == "__main__":
    main()
