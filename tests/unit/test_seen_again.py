"""What is seen of a placed pod mostly changes nothing in the books: then it costs little."""

from typing import Any

import pytest

from allotment.core.ledger import pods
from allotment.core.ledger.check import check
from allotment.core.ledger.model import BOUND, RESERVED, Allocation
from allotment_proto.events import PodObserved
from tests import build

HELD = (build.holding("GPU-0"),)
ASKED = build.request(build.wants(4_000, 25), cpu_milli=500)
PLACED = build.decided(build.placement("a", "n1", *HELD, cpu_milli=500))


def seen(rv: int, **changes: Any) -> PodObserved:
    return build.pod("a", changes.pop("request", ASKED), rv=rv, node="n1", **changes)


def test_a_pod_that_holds_what_it_was_given_is_not_booked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Allocation] = []
    adopted = pods.adopted

    def counted(fact: PodObserved) -> Allocation:
        made.append(adopted(fact))
        return made[-1]

    monkeypatch.setattr(pods, "adopted", counted)
    state = build.state_of(
        build.node("n1"),
        build.pod("a", ASKED),
        PLACED,
        seen(2, holdings=HELD, bind_phase="allocating"),
        seen(3, holdings=HELD, bind_phase="success"),
        seen(4, holdings=HELD, bind_phase="success", phase="Running"),
    )
    held = state.pods["a"].allocation
    assert held is not None
    assert (held.phase, held.holdings, held.acknowledged) == (BOUND, HELD, True)
    assert not made
    assert "a" not in state.reserved
    assert check(state) == []


def test_a_pod_that_claims_something_else_stays_reserved() -> None:
    state = build.state_of(build.node("n1"), build.pod("a", ASKED), PLACED, seen(2))
    held = state.pods["a"].allocation
    assert held is not None
    assert (held.phase, held.holdings) == (RESERVED, HELD)
    assert check(state) == []


def test_a_pod_that_is_resized_in_place_is_booked_again() -> None:
    larger = build.request(build.wants(4_000, 25), cpu_milli=700)
    events = build.node("n1"), build.pod("a", ASKED), PLACED, seen(2, holdings=HELD)
    before = build.state_of(*events).nodes["n1"].cpu_milli_free
    state = build.state_of(*events, seen(3, holdings=HELD, request=larger))
    held = state.pods["a"].allocation
    assert held is not None
    assert (held.phase, held.holdings, held.cpu_milli) == (BOUND, HELD, 700)
    assert state.nodes["n1"].cpu_milli_free == before - 200
    assert check(state) == []
