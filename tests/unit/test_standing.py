"""What a running pod stands on: open problems of its node, card, plugin and claim, with source and
since when, on its own screen and in the doctor's report.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment.core.explain.doctor import Began, Moment, Open, of_pod
from allotment_cli.main import main
from allotment_proto.events import NodeGone, NodeObserved
from allotment_proto.facts import Problem
from allotment_proto.subjects import node as node_subject
from tests import build
from tests.recording import Recorder, vgpu

NAMED = "annotation volcano.sh/gpu-unhealthy-ids"


@pytest.fixture
def log() -> Recorder:
    """A pod that runs on the first of a node's two cards."""
    recorder = Recorder()
    recorder.node("n1")
    uid = recorder.pod("runs", vgpu())
    recorder.decide(uid)
    recorder.bind(uid)
    return recorder


def tell(log: Recorder, **changes: Any) -> int:
    """The watcher sees the node with these changes."""
    fact = log.state.nodes["n1"].fact
    assert fact is not None
    new = msgspec.structs.replace(fact, rv=fact.rv + log.seq + 1, **changes)
    return log.append(node_subject("n1"), "watcher/0", new)


def ill(log: Recorder, *indexes: int, by: str = "") -> int:
    fact = log.state.nodes["n1"].fact
    assert fact is not None
    cards = tuple(
        msgspec.structs.replace(card, healthy=card.index not in indexes, unhealthy_by=by)
        for card in fact.inventories[0].cards
    )
    return tell(log, inventories=(msgspec.structs.replace(fact.inventories[0], cards=cards),))


def allot(log: Recorder, tmp_path: Path, *words: str) -> str:
    path = log.write(tmp_path / "log.jsonl")
    return CliRunner().invoke(main, [*words, "--file", str(path)]).stdout


def problems(log: Recorder, tmp_path: Path) -> list[dict[str, Any]]:
    explained = json.loads(allot(log, tmp_path, "explain", "pod", "runs", "-o", "json"))
    return list(explained.get("problems", ()))


def card_of(log: Recorder) -> int:
    """The index of the card that the pod holds."""
    (pod,) = log.state.pods.values()
    assert pod.allocation is not None
    (holding,) = pod.allocation.holdings
    return log.state.nodes["n1"].ledgers["vgpu"].by_id[holding.card].fact.index


def test_a_pod_on_a_healthy_node_has_none(log: Recorder, tmp_path: Path) -> None:
    assert problems(log, tmp_path) == []
    assert "Problem" not in allot(log, tmp_path, "explain", "pod", "runs")


@pytest.mark.parametrize(
    ("by", "said"),
    [("", "registered as unhealthy by its device plugin"), (NAMED, f"unhealthy by {NAMED}")],
)
def test_its_card_became_unhealthy(log: Recorder, tmp_path: Path, by: str, said: str) -> None:
    began = ill(log, card_of(log), by=by)
    since = log.now_ms
    tell(log, labels=(("another", "label"),))
    (found,) = problems(log, tmp_path)
    assert (found["code"], found["seq"]) == ("CardUnhealthy", began)
    assert said in found["message"]
    assert found["since"].startswith(f"2026-11-20T14:00:0{(since % 60_000) // 1000}")
    text = allot(log, tmp_path, "explain", "pod", "runs")
    assert "open problems: CardUnhealthy" in text
    assert "Problem    CardUnhealthy: node n1: GPU-" in text
    (same,) = json.loads(allot(log, tmp_path, "doctor", "-o", "json"))["findings"]
    assert {key: same[key] for key in ("code", "message", "since", "seq")} == {
        key: found[key] for key in ("code", "message", "since", "seq")
    }


def test_another_card_of_its_node_is_not_its_problem(log: Recorder, tmp_path: Path) -> None:
    ill(log, 1 - card_of(log))
    assert problems(log, tmp_path) == []


def test_its_node_is_gone_not_ready_or_reports_no_cards(log: Recorder, tmp_path: Path) -> None:
    began = tell(log, ready=False)
    tell(log, ready=False, labels=(("another", "label"),))
    (found,) = problems(log, tmp_path)
    assert (found["code"], found["seq"]) == ("NodeNotReady", began)
    began = tell(log, ready=True, problems=(Problem("NotAllocatable", "status.allocatable", "x"),))
    (found,) = problems(log, tmp_path)
    assert (found["code"], found["seq"]) == ("NotAllocatable", began)
    fact = log.state.nodes["n1"].fact
    assert fact is not None
    gone = NodeGone(name="n1", uid=fact.uid, rv=fact.rv + 1)
    began = log.append(node_subject("n1"), "watcher/0", gone)
    codes = {one["code"]: one.get("seq") for one in problems(log, tmp_path)}
    assert codes["NodeGone"] == began
    assert "NodeGone" in allot(log, tmp_path, "explain", "pod", "runs").splitlines()[1]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"bind_phase": "failed", "phase": "Pending"}, "DevicesNotAssigned"),
        ({"bind_phase": "allocating", "phase": "Pending"}, "NotAcknowledged"),
        ({"annotated": (build.holding("GPU-1"),), "bind_phase": "success"}, "ClaimMismatch"),
    ],
)
def test_its_device_plugin_and_its_claim(changes: dict[str, Any], code: str) -> None:
    held = (build.holding("GPU-0"),)
    pod = build.pod("a", **{"node": "n1", "phase": "Running", "holdings": held, **changes})
    other = build.pod("b", node="n1", phase="Pending", holdings=held, bind_phase="failed")
    state = build.state_of(build.node("n1", 2), pod, other)
    assert [one.code for one in of_pod(state, state.pods["a"], 1_060_000)] == [code]


def fact(*codes: str) -> NodeObserved:
    return build.node("n1", 0, problems=tuple(Problem(code, "here", "x") for code in codes))


def test_a_problem_began_where_the_records_have_it_without_a_gap() -> None:
    asked = Began([Open("n1", "a", "here"), Open("n1", "b", "here"), Open("n2", "a", "here")])
    for seq, codes in ((9, "ab"), (7, "ab"), (5, "b"), (3, "ab")):
        asked.back(seq, seq * 1000, fact(*codes))
    assert asked.known(is_whole=False) == {Open("n1", "a", "here"): Moment(7, 7000)}
    assert asked.known(is_whole=True)[Open("n1", "b", "here")] == Moment(3, 3000)
    assert set(asked.sought) == {"n1", "n2"}


def test_a_node_is_asked_as_the_decision_of_a_running_pod_saw_it(
    log: Recorder, tmp_path: Path
) -> None:
    """It was asked for a second copy of the pod, today: the pod's own card was in its way."""
    whole = vgpu(memory_mib=40_960, cores_pct=100)
    first, second = log.pod("first", whole), log.pod("second", vgpu(memory_mib=20_000))
    decision = log.decide(first, second)
    log.bind(second)
    asked = ("explain", "pod", "second", "--node", "n1")
    steps = json.loads(allot(log, tmp_path, *asked, "-o", "json"))["nodeSteps"]
    assert (steps["verdict"], steps["decision"]) == ("fits", decision)
    cards = {card["verdict"]: card for card in steps["cards"]}
    assert cards["fits"]["chosen"]
    assert [holder["name"] for holder in cards["fits"]["holders"]] == ["runs"]
    other = next(card for card in steps["cards"] if card["verdict"] != "fits")
    assert [holder["name"] for holder in other["holders"]] == ["first"], "placed before it"
    text = allot(log, tmp_path, *asked)
    assert f"On node n1 at its decision (seq {decision})" in text
    assert "fits, chosen" in text
