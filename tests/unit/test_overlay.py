"""What is tried on copies of nodes can be rolled back, and never touches the state."""

from random import Random

from allotment.core.ledger import snapshot
from allotment.core.ledger.state import allocation_of
from allotment.core.queues.round.overlay import Overlay
from allotment.core.queues.statement import Statement
from tests import build


def free_pods(overlay: Overlay) -> dict[str, int]:
    return {node.name: node.pods_free for node in overlay.nodes()}


def charge(overlay: Overlay, name: str, uid: str) -> None:
    overlay.change(name).charge(allocation_of(build.placement(uid, name), 0))


def test_any_rollback_leads_to_what_was_there() -> None:
    """A long walk: charge somewhere, go back to some earlier checkpoint."""
    names = ("n1", "n2", "n3")
    state = build.state_of(*(build.node(name) for name in names))
    before = snapshot.encode(state)
    statement, random = Statement(), Random(5)
    overlay = Overlay(state, statement)
    marks: list[tuple[int, dict[str, int]]] = []
    undone = 0
    for step in range(600):
        match random.randrange(4):
            case 0:
                marks.append((statement.checkpoint(), free_pods(overlay)))
            case 1 if marks:
                del marks[random.randrange(len(marks)) + 1 :]
                mark, wanted = marks.pop()
                statement.rollback(mark)
                assert free_pods(overlay) == wanted
                undone += 1
            case _:
                charge(overlay, random.choice(names), f"p{step}")
    assert undone > 50
    statement.rollback()
    assert free_pods(overlay) == free_pods(Overlay(state, Statement()))
    assert snapshot.encode(state) == before


def test_a_node_is_copied_once_between_checkpoints() -> None:
    statement = Statement()
    overlay = Overlay(build.state_of(build.node("n1")), statement)
    first = overlay.change("n1")
    assert overlay.change("n1") is first
    statement.checkpoint()
    assert overlay.change("n1") is not first
    assert overlay.node("n1") is overlay.change("n1")


def test_a_copy_that_was_changed_elsewhere_can_be_laid_over() -> None:
    state = build.state_of(build.node("n1"))
    statement = Statement()
    overlay = Overlay(state, statement)
    mark = statement.checkpoint()
    tried = state.nodes["n1"].fork()
    overlay.put(tried)
    assert overlay.node("n1") is tried
    statement.rollback(mark)
    assert overlay.node("n1") is state.nodes["n1"]
    assert overlay.node("n9") is None
