"""Order, due, tried in vain: a thousand hopeless pods cost nothing and block nobody."""

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_filter.batches import Round, next_round
from allotment_filter.feasibility import FeasibilityCache
from allotment_proto.events import BindFailed, Decided, Event, PodObserved
from allotment_proto.facts import DeviceRequest, Problem
from tests.build import decided, node, placement, pod, policy, request, wants

HUGE = request(wants(memory_mib=1_000_000))


class Scene:
    """A state that grows by events, and a filter's memory of it."""

    def __init__(self, *events: Event) -> None:
        self.state = ClusterState()
        self.evaluator = Evaluator(self.state)
        self.feasibility = FeasibilityCache(self.state, self.evaluator)
        self.tried: dict[str, int] = {}
        self.held_back: dict[str, float] = {}
        self.add(policy(), *events)

    def add(self, *events: Event) -> None:
        for event in events:
            apply(self.state, event, self.state.seq + 1)

    def round(self, batch_max: int = 256) -> Round:
        turn = next_round(self.feasibility, self.tried, self.held_back, batch_max)
        for uid in turn.in_vain:
            self.tried[uid] = turn.batch.basis
        return turn

    def decide(self, turn: Round) -> None:
        """What the scorer and the binder would make of a batch; as the filter remembers it."""
        outcome = run_cycle(self.state, turn.batch.uids, Evaluator(self.state))
        if outcome.placements or outcome.refusals:
            self.add(
                Decided(
                    cycle="c",
                    basis=turn.batch.basis,
                    checked=self.state.seq,
                    policy=0,
                    batch=turn.batch.uids,
                    placements=outcome.placements,
                    refusals=outcome.refusals,
                )
            )
        for uid in turn.batch.uids:
            self.tried[uid] = turn.batch.basis

    def settle(self) -> int:
        """Cycle until nothing is due; how many rounds that took."""
        for rounds in range(100):
            turn = self.round()
            if turn.batch.uids:
                self.decide(turn)
            elif not turn.in_vain:
                return rounds
        raise AssertionError("it never comes to rest")


def hopeless(number: int, **changes: object) -> PodObserved:
    return pod(f"h{number:04d}", HUGE, **changes)


def test_priority_then_age_then_name() -> None:
    scene = Scene(
        node(),
        pod("late", created_ms=2_000),
        pod("b", created_ms=1_000),
        pod("a", created_ms=1_000),
        pod("urgent", created_ms=9_000, priority=10),
    )
    assert scene.round().batch.uids == ("urgent", "a", "b", "late")
    assert scene.round(batch_max=2).batch.uids == ("urgent", "a")


def test_what_is_not_ours_to_place_now_is_left_out() -> None:
    scene = Scene(
        node(),
        pod("gated", gated=True),
        pod("deleting", deleting=True),
        pod("theirs", scheduler="default-scheduler"),
        pod("bound", node="n1"),
        pod("ended", phase="Failed"),
        pod("backing-off"),
        pod("ours"),
    )
    scene.held_back["backing-off"] = 1e9
    assert scene.round().batch.uids == ("ours",)


def test_classes_are_told_once_with_a_sample_and_counts() -> None:
    scene = Scene(node("n1"), node("n2", cards=0), pod("a"), hopeless(1), pod("z"))
    batch = scene.round().batch
    by_sample = {batch.uids[found.sample]: found for found in batch.classes}
    assert set(by_sample) == {"a", "h0001"}
    assert by_sample["a"].feasible == 1
    assert by_sample["a"].reasons == ()  # counted for those that fit nowhere only
    assert by_sample["h0001"].feasible == 0
    assert by_sample["h0001"].nodes == 2
    assert batch.basis == scene.state.seq


def test_a_pod_refused_in_the_same_words_gets_no_second_cycle() -> None:
    scene = Scene(node(), hopeless(1))
    scene.decide(scene.round())
    assert scene.round().in_vain == ()
    assert scene.round().batch.uids == ()
    scene.add(node("n1", rv=2, unschedulable=False))  # room may have appeared
    turn = scene.round()
    assert (turn.batch.uids, turn.in_vain) == ((), ("h0001",))
    assert scene.round().in_vain == ()
    scene.add(node("n2"))  # now there are two nodes to be refused by: news
    assert scene.round().batch.uids == ("h0001",)


def test_a_restarted_filter_remembers_refusals_through_the_log() -> None:
    scene = Scene(node(), hopeless(1))
    scene.decide(scene.round())
    scene.tried.clear()
    assert scene.round().in_vain == ()
    assert scene.round().batch.uids == ()


def test_a_thousand_hopeless_pods_do_not_block_one_that_fits_and_cause_no_growth() -> None:
    scene = Scene(node("n1"), node("n2"), *(hopeless(n, priority=100) for n in range(1000)))
    assert scene.settle() == 4  # four batches, each pod refused once
    seq, asked = scene.state.seq, scene.evaluator.asked
    assert scene.settle() == 0
    assert (scene.state.seq, scene.evaluator.asked) == (seq, asked)

    scene.add(pod("fits"))
    turn = scene.round()
    assert (turn.batch.uids, turn.in_vain) == (("fits",), ())
    scene.decide(turn)
    placed = scene.state.seq
    assert "fits" in scene.state.reserved

    scene.add(pod("fits", rv=2, node="n1", phase="Succeeded"))  # room: every pod is due again
    turn = scene.round()
    assert turn.batch.uids == ()
    assert len(turn.in_vain) == 1000
    assert scene.state.seq == placed + 1  # not one record more
    assert scene.evaluator.asked - asked <= 2 + 3  # one class, the nodes that were touched


def test_pods_of_many_classes_are_each_asked_once_a_node() -> None:
    nodes = [node(f"n{number}") for number in range(10)]
    pods = [pod(f"p{n:03d}", request(wants(memory_mib=20_000 + n))) for n in range(100)]
    scene = Scene(*nodes, *pods)
    scene.settle()
    assert scene.evaluator.asked == 10 * 100


def test_an_invalid_pod_is_told_once_and_again_when_it_changed() -> None:
    problem = Problem(reasons.INVALID_REQUEST, "here", "wrong")
    scene = Scene(node(), pod("bad", problem=problem), pod("good"))
    first = scene.round()
    assert first.batch.uids == ("bad", "good")
    assert [found.sample for found in first.batch.classes] == [1]
    scene.decide(first)
    assert scene.round().batch.uids == ()
    scene.add(node("n9"))
    assert scene.round().batch.uids == ()  # no node will ever cure it
    other = Problem(reasons.INVALID_REQUEST, "here", "still wrong")
    scene.add(pod("bad", rv=2, problem=other))
    assert scene.round().batch.uids == ("bad",)


def test_a_placement_that_did_not_stand_is_due_again() -> None:
    scene = Scene(node(), pod("a"))
    turn = scene.round()
    stale = placement("a", "n1", cpu_milli=999_999)
    scene.add(decided(stale, basis=turn.batch.basis))
    scene.tried["a"] = turn.batch.basis
    assert scene.round().batch.uids == ("a",)


def test_a_failed_binding_is_due_again_once_its_time_has_come() -> None:
    scene = Scene(node(), pod("a"))
    scene.decide(scene.round())
    failed = BindFailed(
        uid="a",
        namespace="default",
        name="pod-a",
        node="n1",
        decision=scene.state.seq,
        code=reasons.API_ERROR,
        message="",
    )
    scene.add(failed)
    scene.held_back["a"] = 1e9
    assert scene.round().batch.uids == ()
    scene.held_back.clear()
    assert scene.round().batch.uids == ("a",)


def test_refused_pods_that_ask_for_an_unknown_family_are_refused_too() -> None:
    scene = Scene(node(), pod("a", request(DeviceRequest("quantum", 0, "c0", 1, 1, 0, 0))))
    turn = scene.round()
    assert turn.batch.classes[0].reasons == ((reasons.NO_GPU, 1),)
