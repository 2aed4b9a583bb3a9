"""What `allot bench replay` asks of the log that it made before it measures anything."""

from allotment_lab.bench.replay import without_place
from tests.build import decided, node, placement, pod, state_of

PODS = node(), pod("a"), pod("b")


def test_all_that_were_placed_hold_their_places() -> None:
    both = decided(placement("a"), placement("b"))
    assert without_place(state_of(*PODS, both), 2) == []
    assert without_place(state_of(*PODS, both), 3) == [
        "the log that was made gives places to 3 pods that have not ended; folded, it has "
        "2 pods, and 2 of them hold a place"
    ]


def test_who_waits_behind_a_void_placement_is_not_counted_as_one() -> None:
    void = decided(placement("a", "n9"), batch=("a", "b"))
    state = state_of(*PODS, void)
    assert len(state.voided) == 2
    assert "2 pods, and 0 of them hold a place" in without_place(state, 2)[0]
    again = decided(placement("a"))
    assert "2 pods, and 1 of them hold a place" in without_place(state_of(*PODS, void, again), 2)[0]


def test_a_place_that_did_not_stand_at_first_and_does_now_is_nothing_wrong() -> None:
    """`b` waits for another try, which it does not need once it was placed."""
    void = decided(placement("a", "n9"), batch=("a", "b"))
    both = decided(placement("a"), placement("b"))
    assert without_place(state_of(*PODS, void, both), 2) == []
