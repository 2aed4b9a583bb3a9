"""Explanations word what the queues answer: they ask at the door and open nothing themselves."""

import ast
from pathlib import Path

from allotment.core import explain

DOORS = {
    ("allotment.core.queues.round.verdict", "*"),
    ("allotment.core.queues.round.quota", "*"),
    ("allotment.core.queues.answers", "No"),
    ("allotment.core.queues.round.guaranteed", "*"),
    ("allotment.core.queues.reservations", "Hold"),
}
"""What `explain` may import of the queues: the questions, what is guaranteed, what queues may have,
and two types of answers."""

QUEUES = "allotment.core.queues"


def test_explanations_ask_the_queues_only_at_their_door() -> None:
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(Path(explain.__path__[0]).rglob("*.py"))
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(QUEUES)
        for alias in node.names
    }
    modules = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    assert ("allotment.core.queues.round.verdict", "verdict") in names
    assert {name for name in names if not {name, (name[0], "*")} & DOORS} == set()
    assert not any(module.startswith(QUEUES) for module in modules)
