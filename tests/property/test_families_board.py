"""On chips of every family the board answers as the evaluator that asks node by node."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.events import Event, MixLearned, PodGone, PolicyLoaded
from allotment_proto.facts import Inventory, Policy, Typical
from tests import chips
from tests.build import card, decided, pod

pytestmark = pytest.mark.usefixtures("scoring")

NODES = ("n1", "n2", "n3")
PODS = tuple("abcdefgh")
KINDS = (
    ("Ascend310P",) * 2,
    ("Ascend910B3",) * 3,
    ("Ascend910B3",) * 4,
    ("Ascend310P", "Ascend910B3", "Ascend910B3"),
)


@st.composite
def ascend(draw: st.DrawFn, name: str) -> Inventory:
    """Chips of one kind or two, on networks or not, on a node that slices softly or not."""
    networks = draw(st.sampled_from(((0, 0, 1, 1), (0, 1, 1, 2), (1, 0, 0, -1))))
    slots = draw(st.sampled_from((1, 3, 7)))
    ill = draw(st.integers(0, 9))
    entries = [
        chips.entry(f"{name}-{n}", word, networks[n], count=slots, health=n != ill)
        for n, word in enumerate(draw(st.sampled_from(KINDS)))
    ]
    soft = {"hami-vnpu-core": draw(st.sampled_from(("true", "false")))}
    return chips.inventory("ascend", chips.ascend_source(*entries, annotations=soft))


@st.composite
def npus(draw: st.DrawFn) -> Inventory:
    unhealthy = draw(st.sampled_from(((), (), (0,))))
    source = chips.npu_source(draw(st.integers(2, 4)), draw(st.sampled_from((8, 8, 10))), unhealthy)
    return chips.inventory("mindcluster", source)


def gpus(name: str) -> Inventory:
    return Inventory("vgpu", "hami-core", (card(0, id=f"{name}-g"),))


@st.composite
def nodes(draw: st.DrawFn, name: str, rv: int) -> Any:
    kind = draw(st.sampled_from(("npus", "ascend", "npus, ascend", "npus, ascend, gpus", "gpus")))
    inventories = [draw(npus())] if "npus" in kind else []
    if "ascend" in kind:
        inventories.append(draw(ascend(name)))
    if "gpus" in kind:
        inventories.append(gpus(name))
    return chips.node(name, *inventories, rv=rv)


def limits() -> st.SearchStrategy[dict[str, str]]:
    return st.builds(
        lambda word, number, memory, core: chips.asks(
            word, number, **({"memory": memory} if memory and number == 1 else {}), core=core
        ),
        st.sampled_from(tuple(chips.SIZES)),
        st.sampled_from((1, 1, 2, 3)),
        st.sampled_from((0, 3_000, 3_000, 6_000, 12_000)),
        st.sampled_from((0, 0, 0, 2, 8, 50, 100)),
    )


def npu_pods() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda cores, level, dvpp: chips.request(
            "mindcluster",
            chips.pod_source(chips.npu(cores), labels={"vnpu-level": level, "vnpu-dvpp": dvpp}),
        ),
        st.sampled_from((1, 2, 2, 2, 4, 4, 8, 16)),
        st.sampled_from(("low", "high")),
        st.sampled_from(("null", "yes", "no")),
    )


def ascend_pods() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda containers, annotations: chips.request(
            "ascend", chips.pod_source(*containers, annotations=annotations)
        ),
        st.lists(limits(), min_size=1, max_size=3),
        st.sampled_from(({}, {}, chips.SOFT)),
    )


requests = st.one_of(ascend_pods(), npu_pods())
mixes = st.lists(
    st.builds(
        Typical,
        requests.filter(lambda r: len(r.devices) == 1),
        st.integers(0, 1_000_000),
        st.integers(0, 8_000),
    ),
    max_size=2,
).map(tuple)
policies = st.builds(
    Policy,
    device_policy=st.sampled_from(("binpack", "spread", "none", *POLICY_NUMBERS)),
    host_policy=st.sampled_from(("binpack", "none")),
    mix=mixes,
)


@settings(max_examples=max(25, settings().max_examples // 4))
@given(policies, st.data())
def test_same_outcome(policy: Policy, data: st.DataObject) -> None:
    state, seq = ClusterState(), 0

    def append(event: Event) -> None:
        nonlocal seq
        seq += 1
        apply(state, event, seq)

    append(PolicyLoaded(policy=policy, source="test", text_sha256=""))
    append(MixLearned(policy=policy.device_policy, mix=policy.mix, pods=1))
    for name in NODES:
        append(data.draw(nodes(name, 1)))
    board = Board(state)
    for turn in range(data.draw(st.integers(2, 5))):
        for uid in data.draw(st.lists(st.sampled_from(PODS), unique=True, min_size=3)):
            append(PodGone(uid=uid, namespace="", name="", rv=turn))
            append(pod(uid, data.draw(requests), rv=turn))
        if data.draw(st.integers(0, 2)) == 0:
            append(data.draw(nodes(data.draw(st.sampled_from(NODES)), turn + 2)))
        batch = data.draw(st.permutations(PODS))
        wanted = run_cycle(state, batch, Evaluator(state))
        assert run_cycle(state, batch, board) == wanted
        assert run_cycle(state, batch, board) == wanted, "what was assumed was not given back"
        for uid in PODS[:3]:
            if uid in state.pods:
                request = state.pods[uid].fact.request
                board.begin()
                fresh = Evaluator(state)
                fresh.begin()
                many = fresh.holds_at_most(request, 99), board.holds_at_most(request, 99)
                assert many[0] == many[1]
                board.end()
        append(decided(*wanted.placements))
        assert check(state) == []
