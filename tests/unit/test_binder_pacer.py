"""The pacer says what the plain look at everything says, and pays only for what changed."""

from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.explain.rows.acknowledgement import Place
from allotment.core.ledger.state import apply
from allotment_binder.bindings import Target, failed
from allotment_binder.pacer import Pacer, Wait
from allotment_proto.events import Bound, NodeGone, PodGone, TimePassed
from tests.build import card, decided, holding, node, placement, pod, policy, state_of
from tests.pacing import bindable


class _Told(NamedTuple):
    """A record of the log in the property below: something that happens to one pod."""

    what: str
    pod: int


HAPPENINGS = st.lists(
    st.builds(
        _Told,
        st.sampled_from(
            [
                "decided",
                "bind",
                "bound",
                "failed",
                "seen",
                "acked",
                "late",
                "gone",
                "block",
                "plugin",
            ]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(HAPPENINGS, st.booleans())
def test_the_pacer_says_at_every_step_what_looking_at_everything_says(
    story: list[_Told], swap_equal: bool
) -> None:
    """Six pods on one node's two cards; whatever happens, the queue and the plain look agree."""
    cards = [card(index, slots=100, memory_mib=10**6, cores_pct=10**4) for index in range(2)]
    state = state_of(policy(), node("n1", cards), *(pod(str(n)) for n in range(6)))
    pacer = Pacer(state, swap_equal=swap_equal)
    blocked: set[Place] = set()
    for rv, (what, number) in enumerate(story, 2):
        uid = str(number)
        held = state.pods[uid].allocation if uid in state.pods else None
        fact = pod(uid, rv=rv, node="n1", holdings=held.holdings) if held else pod(uid, rv=rv)
        match what:
            case "decided" if uid in state.pending:
                share = holding(f"GPU-{number % 2}")
                apply(state, decided(placement(uid, "n1", share, stamp_s=rv)), state.seq + 1)
            case "bind":
                plain = [a.uid for a in bindable(state, pacer.sent, blocked, swap_equal=swap_equal)]
                assert [a.uid for a in pacer.ready(blocked)] == plain
            case "bound" if held is not None and uid in pacer.sent:
                ending = Bound(uid=uid, namespace="default", name=uid, node="n1", decision=held.seq)
                pacer.ended(uid)
                apply(state, ending, state.seq + 1)
            case "failed" if held is not None and uid in pacer.sent:
                target = Target("default", uid, held)
                pacer.ended(uid)
                apply(state, failed(target, "APIError", ""), state.seq + 1)
            case "seen" if held is not None and uid in pacer.sent:
                apply(state, fact, state.seq + 1)
            case "acked" if held is not None and uid in pacer.sent:
                apply(state, msgspec.structs.replace(fact, bind_phase="success"), state.seq + 1)
            case "late" if held is not None and uid in pacer.sent:
                apply(state, msgspec.structs.replace(fact, bind_phase="allocating"), state.seq + 1)
                apply(state, TimePassed(at_ms=rv, unserved=(uid,)), state.seq + 1)
                pacer.look_node("n1")
            case "gone":
                apply(state, PodGone(uid=uid, namespace="default", name=uid, rv=rv), state.seq + 1)
            case "plugin":
                there = 0 if state.nodes["n1"].ledgers else cards
                apply(state, node("n1", there, rv=rv), state.seq + 1)
                pacer.look_node("n1")
            case "block":
                blocked ^= {("n1", ("vgpu", "devices", 1))}
            case _:
                pass
        pacer.look(uid)
        fresh = Pacer(state, swap_equal=swap_equal).ready()
        assert fresh == bindable(state, (), swap_equal=swap_equal)


def test_what_a_record_did_not_change_is_not_looked_at() -> None:
    """A hundred pods wait on one node for one acknowledgement."""
    cards = [card(index, slots=1000, memory_mib=10**9, cores_pct=10**6) for index in range(2)]
    shares = [(str(n), "n1", (holding(f"GPU-{n % 2}", memory_mib=n + 1),)) for n in range(100)]
    state = state_of(policy(), node("n1", cards), *(pod(uid) for uid, _, _ in shares))
    placements = [placement(uid, on, *held, stamp_s=n) for n, (uid, on, held) in enumerate(shares)]
    apply(state, decided(*placements), state.seq + 1)
    pacer = Pacer(state)
    assert [a.uid for a in pacer.ready()] == ["0"]
    for uid in ("50", "99"):
        apply(state, pod(uid, rv=2), state.seq + 1)
        pacer.look(uid)
    assert pacer.ready() == []
    fact = pod("0", rv=2, node="n1", holdings=shares[0][2], bind_phase="success")
    apply(state, fact, state.seq + 1)
    pacer.look("0")
    assert [a.uid for a in pacer.ready()] == ["1"]


def test_who_waits_for_whom_and_how_many_are_not_acknowledged() -> None:
    shares = [(uid, holding(f"GPU-{number}")) for number, uid in enumerate("abc")]
    state = state_of(policy(), node("n1", 3), *(pod(uid) for uid, _ in shares))
    apply(state, decided(*(placement(uid, "n1", held) for uid, held in shares)), state.seq + 1)
    pacer = Pacer(state)
    assert [a.uid for a in pacer.ready()] == ["a"]
    assert list(pacer.waits()) == []  # the Binding is under way
    assert pacer.unacknowledged() == {}
    apply(state, pod("a", rv=2, node="n1", holdings=(shares[0][1],)), state.seq + 1)
    pacer.ended("a")
    place = ("n1", ("vgpu", "devices", 1))
    assert set(pacer.waits()) == {Wait("b", "a", place), Wait("c", "a", place)}
    assert pacer.unacknowledged() == {"n1": 1}
    apply(state, node("n1", 0, rv=2), state.seq + 1)
    pacer.look_node("n1")
    assert list(pacer.waits()) == []
    assert pacer.unacknowledged() == {}
    assert [a.uid for a in pacer.ready()] == ["b"]


def test_a_pod_that_goes_after_its_node_leaves_nothing_to_wait_for() -> None:
    """One record can say of both: the node is forgotten before anybody looks at the pod."""
    state = state_of(policy(), node("n1"), pod("a"))
    apply(state, decided(placement("a", "n1", holding("GPU-0"))), state.seq + 1)
    pacer = Pacer(state)
    assert [a.uid for a in pacer.ready()] == ["a"]
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=9), state.seq + 1)
    apply(state, PodGone(uid="a", namespace="default", name="a", rv=9), state.seq + 1)
    assert "n1" not in state.nodes
    assert pacer.served_before("a") == frozenset()
