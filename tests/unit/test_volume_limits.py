"""A node has room for so many volumes of a driver, and a shared volume counts once."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core import reasons
from allotment.core.explain.causes.nodes import node_steps
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.snapshot import decode, encode
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck, run_cycle
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment.core.placement.rules.interpod import situated
from allotment_board.board import Board
from allotment_proto.events import Event, NodeObserved, PodGone, PodObserved
from allotment_proto.facts import Attachment, PluginUse
from tests import build


def limited(name: str = "n1", rv: int = 1, **limits: int) -> NodeObserved:
    return build.node(name, rv=rv, volume_limits=tuple(sorted(limits.items())))


def mounting(uid: str, *volumes: str, **changes: object) -> PodObserved:
    """A pod with volumes like ``ebs/data``: driver and claim."""
    parts = (volume.split("/", 1) for volume in sorted(volumes))
    found = tuple(Attachment(driver, claim) for driver, claim in parts)
    return build.pod(uid, build.request(build.wants(100, 1), attachments=found), **changes)


def running(uid: str, on: str, *volumes: str) -> PodObserved:
    return mounting(uid, *volumes, node=on, phase="Running")


def placed(state: ClusterState, board: Board | None = None) -> Outcome:
    """Both rankers must say the same."""
    batch = tuple(state.pending)
    plain = run_cycle(state, batch, Evaluator(state))
    assert run_cycle(state, batch, board or Board(state)) == plain
    return plain


def tell(state: ClusterState, *events: Event) -> None:
    for event in events:
        apply(state, event, state.seq + 1)
    assert check(state) == []


def where(state: ClusterState) -> dict[str, str]:
    return {p.uid: p.node for p in placed(state).placements}


def test_a_node_whose_limit_is_reached_takes_no_more() -> None:
    state = build.state_of(limited(ebs=2), running("x", "n1", "ebs/x1", "ebs/x2"))
    tell(state, mounting("a", "ebs/a"))
    (refusal,) = placed(state).refusals
    assert refusal.reasons == ((reasons.VOLUME_LIMIT_REACHED, 1),)
    tell(state, PodGone(uid="x", namespace="", name="", rv=9))
    assert where(state) == {"a": "n1"}


def test_pods_of_one_batch_count() -> None:
    state = build.state_of(limited(ebs=3), *(mounting(uid, f"ebs/{uid}") for uid in "abcd"))
    assert list(where(state)) == ["a", "b", "c"]
    twos = (mounting(uid, f"ebs/{uid}1", f"ebs/{uid}2") for uid in "ab")
    assert list(where(build.state_of(limited(ebs=3), *twos))) == ["a"]


def test_a_volume_that_is_there_counts_once() -> None:
    state = build.state_of(limited(ebs=1), running("x", "n1", "ebs/data"))
    tell(state, mounting("a", "ebs/data"), mounting("b", "ebs/data"), mounting("c", "ebs/c"))
    assert where(state) == {"a": "n1", "b": "n1"}
    tell(state, limited(rv=2, ebs=0))
    assert list(where(state)) == ["a", "b"], "nothing new is attached for them"


def test_other_drivers_and_nodes_that_name_no_limit_take_any_number() -> None:
    state = build.state_of(limited(ebs=0), limited("n2"), mounting("a", "ebs/a"))
    assert where(state) == {"a": "n2"}
    state = build.state_of(limited(ebs=0), mounting("a", "nfs/a", "nfs/b"))
    assert where(state) == {"a": "n1"}


def test_the_predicate_can_be_switched_off() -> None:
    off = PluginUse("predicates", arguments=(("predicate.NodeVolumeLimitsEnable", False),))
    loaded = build.policy(tiers=((off,),))
    state = build.state_of(loaded, limited(ebs=0), mounting("a", "ebs/a"))
    assert where(state) == {"a": "n1"}


def test_the_binder_asks_again() -> None:
    state = build.state_of(limited(ebs=1), mounting("a", "ebs/a"))
    (placement,) = placed(state).placements
    tell(state, running("x", "n1", "ebs/x"))
    assert recheck(state, Trial(state), placement) == reasons.VOLUME_LIMIT_REACHED


def test_pods_that_differ_in_their_own_claims_only_share_all_work() -> None:
    state = build.state_of(limited(ebs=9), *(mounting(uid, f"ebs/{uid}") for uid in "abc"))
    assert len({situated(pod.fact, state) for pod in state.pods.values()}) == 1
    tell(state, mounting("d", "ebs/a"))
    asked = situated(state.pods["a"].fact, state)
    assert asked.attachments == (Attachment("ebs", ["ebs", "a"][1]),), "it is shared now"


def test_every_step_is_told() -> None:
    state = build.state_of(limited(ebs=1), running("x", "n1", "ebs/x"), mounting("a", "ebs/a"))
    steps = node_steps(
        state, state.nodes["n1"], situated(state.pods["a"].fact, state), state.pods["a"].fact
    )
    (row,) = [step for step in steps.host if step.step == "volumes of ebs"]
    assert (row.verdict, row.detail) == (
        reasons.VOLUME_LIMIT_REACHED,
        "1 to attach, 1 of 1 attached",
    )
    assert steps.verdict == reasons.VOLUME_LIMIT_REACHED


VOLUMES = st.lists(st.sampled_from(("d/1", "d/2", "d/3", "e/1")), max_size=2, unique=True)
HAPPENINGS = st.lists(
    st.one_of(
        st.builds(
            lambda n, d, rv: limited(n, rv, d=d),
            NODE := st.sampled_from(("n1", "n2")),
            st.integers(0, 3),
            st.just(1),
        ),
        st.builds(lambda uid, v: mounting(uid, *v), st.sampled_from("abc"), VOLUMES),
        st.builds(lambda uid, n, v: running(uid, n, *v), st.sampled_from("abcxy"), NODE, VOLUMES),
        st.builds(
            lambda uid: PodGone(uid=uid, namespace="", name="", rv=1), st.sampled_from("abcxy")
        ),
    ),
    min_size=3,
    max_size=12,
)


@given(HAPPENINGS)
def test_board_and_oracle_agree_and_snapshots_keep_what_is_attached(events: list[Event]) -> None:
    state = build.state_of(limited(d=1), limited("n2", d=2, e=1))
    board = Board(state)
    for event in events:
        tell(state, event)
        placed(state, board)
    again = decode(encode(state))
    assert again.claimed == state.claimed
    for name, node in state.nodes.items():
        assert again.nodes[name].attached == node.attached
