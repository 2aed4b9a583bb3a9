"""Where log and API server differ, and who is wrong."""

from typing import Any

import msgspec
import pytest

from allotment.core.explain.doctor import ERROR, WARNING, Finding, findings, of_drift
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import Bound, PodObserved
from tests import build

NODES = {"n1": "uid-n1"}
HELD = (build.holding(),)


def placed(**changes: Any) -> tuple[ClusterState, PodObserved]:
    """A pod of ours, decided and bound on n1 with a card; and as the log has it."""
    asks = build.pod("a")
    runs = msgspec.structs.replace(
        asks,
        rv=2,
        **{"node": "n1", "phase": "Running", "holdings": HELD, "bind_phase": "success", **changes},
    )
    decided = build.decided(build.placement("a", "n1", *HELD))
    bound = Bound(uid="a", namespace="default", name="pod-a", node="n1", decision=3)
    return build.state_of(build.node("n1"), asks, decided, bound, runs), runs


def differing(**changes: Any) -> Finding:
    """The one difference where the API server has the pod with these changes."""
    state, runs = placed()
    (found,) = of_drift(state, [msgspec.structs.replace(runs, rv=9, **changes)], NODES)
    return found


def test_the_same_is_no_difference() -> None:
    state, runs = placed()
    assert of_drift(state, [runs], NODES) == []
    later = msgspec.structs.replace(runs, rv=9, labels=(("a", "b"),))
    assert of_drift(state, [later], NODES) == []


def test_a_pod_that_only_the_log_has() -> None:
    state, _ = placed()
    (found,) = of_drift(state, [], NODES)
    assert (found.severity, found.code, found.subject) == (
        ERROR,
        "PodNotInCluster",
        "pod default/pod-a",
    )
    assert found.message.endswith("no pod with uid a; it still holds its place on n1")
    assert (found.blame, found.remedy.partition(":")[0]) == ("log", "run allot doctor --fix")
    assert of_drift(state, [], NODES, unread={"a"}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "it is not scheduled"),
        ({"node": "n1", "holdings": HELD, "scheduler": "other"}, "its cards count as free"),
        ({"scheduler": "other"}, ""),
        ({"phase": "Failed"}, ""),
    ],
)
def test_a_pod_that_only_the_api_server_has(changes: dict[str, Any], said: str) -> None:
    found = of_drift(build.state_of(build.node("n1")), [build.pod("b", **changes)], NODES)
    assert [one.code for one in found] == (["PodNotInLog"] if said else [])
    assert all(said in one.message for one in found)


def test_a_pod_that_somebody_else_bound() -> None:
    asks = build.pod("a")
    decided = build.decided(build.placement("a", "n1", *HELD))
    state = build.state_of(build.node("n1"), asks, decided)
    (found,) = of_drift(state, [msgspec.structs.replace(asks, rv=2, node="n2")], NODES)
    assert found.code == "NodeDiffers"
    assert found.message == (
        "is bound to n2 in the API server, but not bound in the log, where it holds a place on n1: "
        "another client bound it"
    )


def test_an_end_and_an_answer_that_the_log_has_not_heard_of() -> None:
    assert differing(phase="Succeeded").code == "EndNotInLog"
    answer = differing(bind_phase="failed")
    assert (answer.severity, answer.code) == (WARNING, "AnswerNotInLog")
    assert "is failed by its device plugin in the API server, but success" in answer.message


def test_who_is_wrong_is_said() -> None:
    found = differing(annotated=(build.holding("GPU-1"),))
    assert (found.code, found.blame) == ("AnnotationDiffers", "annotation")
    assert "claim GPU-1" in found.message
    assert "the books go by that" in found.message
    state, _ = placed(annotated=(build.holding("GPU-1"),))
    (claim,) = findings(state, 0)
    assert (claim.code, claim.blame) == ("ClaimMismatch", "annotation")
    assert of_drift(state, [state.pods["a"].fact], NODES) == []  # it is said already


def test_nodes() -> None:
    state, runs = placed()
    codes = [one.code for one in of_drift(state, [runs], {"n2": "uid-n2"})]
    assert codes == ["NodeNotInCluster", "NodeNotInLog"]
    (anew,) = of_drift(state, [runs], {"n1": "another"})
    assert anew.code == "NodeNotInCluster"
