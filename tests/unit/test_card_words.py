"""A word for a card model means the models that have it whole; a part of a name only where none
has."""

from typing import Any

import msgspec
import pytest

from allotment.core.config.policy import built_in
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.pod import explain
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.devices.choosing import is_called
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_proto.events import Envelope, NodeGone, PodObserved, PolicyLoaded
from allotment_proto.facts import Policy, Selection
from tests import build

WHOLE = built_in(("allotment",))
NODES = {"big": "NVIDIA H200", "small": "NVIDIA H20", "old": "NVIDIA-A100-PCIE-40GB"}


def cluster(*names: str, policy: Policy = WHOLE) -> ClusterState:
    state = build.state_of(PolicyLoaded(policy=policy, source="c", text_sha256=""))
    for name in names:
        cards = [build.card(n, model=NODES[name], id=f"{name}-{n}") for n in range(2)]
        apply(state, build.node(name, cards), state.seq + 1)
    return state


def asking(**selection: Any) -> PodObserved:
    wanted = build.request(build.wants(1_000, 0))
    return build.pod("a", msgspec.structs.replace(wanted, selection=Selection(**selection)))


def placed(state: ClusterState, fact: PodObserved) -> set[str]:
    """The nodes on which the pod would be placed, by every road, one after the other."""
    apply(state, fact, state.seq + 1)
    outcome = Rounds(state).run([fact.uid], Board(state))
    assert outcome == Rounds(state).run([fact.uid], Evaluator(state))
    return {placement.node for placement in outcome.placements}


@pytest.mark.parametrize(
    ("there", "word", "node"),
    [
        (("big", "small"), "H20", "small"),
        (("big", "small"), "H200", "big"),
        (("big", "small"), "h20", "small"),
        (("big",), "H20", "big"),
        (("old",), "A10", "old"),
        (("old",), "A100", "old"),
        (("old",), "A100-PCIE", "old"),
        (("old",), "40", "old"),
    ],
)
def test_a_whole_word_comes_before_parts(there: tuple[str, ...], word: str, node: str) -> None:
    assert placed(cluster(*there), asking(use_types=(word,))) == {node}


def test_a_pod_waits_for_the_model_that_it_names_whole() -> None:
    """H20 cards are full, and H200 cards are none of them."""
    state = cluster("big", "small")
    for number in range(2):
        full = build.request(build.wants(0, 100, memory_pct=100))
        fact = build.pod(f"f{number}", full, name=f"f{number}", node="small", phase="Running")
        held = build.holding(f"small-{number}", 16_000, 100)
        apply(state, msgspec.structs.replace(fact, holdings=(held,)), state.seq + 1)
    waits = asking(use_types=("H20",))
    assert placed(state, waits) == set()
    small = state.nodes["small"].fact
    assert small is not None
    before = state.room_seq
    apply(state, NodeGone(name="small", uid=small.uid, rv=99), state.seq + 1)
    assert state.room_seq > before, "the pod is tried again: no model is called H20 any more"
    assert placed(state, waits) == {"big"}


def test_what_is_excluded_is_meant_whole_too() -> None:
    assert placed(cluster("big", "small"), asking(nouse_types=("H20",))) == {"big"}
    assert placed(cluster("big"), asking(nouse_types=("H20",))) == set()


def test_a_request_that_no_word_tells_apart_stays_the_very_same() -> None:
    state, fact = cluster("big", "old"), asking(use_types=("H20", "A100"))
    apply(state, fact, state.seq + 1)
    assert situated(fact, state) is fact.request


def test_that_a_part_of_a_name_will_do_is_said() -> None:
    state, fact = cluster("big", "old"), asking(use_types=("H20",))
    apply(state, fact, state.seq + 1)
    story = PodStory("default", "pod-a")
    seen = Envelope(v=1, at_ms=0, by="t", events=(fact,))
    story.follow(state.seq, 0, seen, lambda: state)
    texts = explain(state, story, 0).status.notes
    assert (
        "no card model is called H20: it stands for models with it as a part of their name "
        "(NVIDIA H200)"
    ) in texts


@pytest.mark.parametrize(
    ("model", "word", "whole"),
    [
        ("NVIDIA H20", "H20", True),
        ("NVIDIA H20-3e", "h20", True),
        ("NVIDIA H200", "H20", False),
        ("H200 H20", "H20", True),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE", True),
        ("Ascend910B3", "Ascend910B", False),
    ],
)
def test_whole_words(model: str, word: str, whole: bool) -> None:
    assert is_called(model, word, whole=True) is whole
    assert is_called(model, word, whole=False)
