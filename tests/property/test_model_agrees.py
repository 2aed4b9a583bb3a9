"""The dumb list of shares and the fold end in the same books, whatever the log says."""

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis.stateful import invariant

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment_lab.bench.worlds.long_log import LongLog
from allotment_proto.codec import decode_envelope
from allotment_proto.events import BindFailed, Bound, Event
from tests import build
from tests.metering import Metered
from tests.model import Model
from tests.picture import picture_of
from tests.property.fold_machine import Fold


class Books(Fold):
    """Every step of the stateful fold test: what is free is compared too, and what was used."""

    def __init__(self) -> None:
        super().__init__()
        self.metered = Metered(self.state)

    def append(self, *events: Any) -> None:
        super().append(*events)
        self.metered.took(self.records[-1].seq)

    @invariant()
    def the_books_are_the_same(self) -> None:
        assert self.auditor.model.picture() == picture_of(self.state)

    def teardown(self) -> None:
        """What the base class does here is its own test's."""
        self.metered.check()


Books.TestCase.settings = settings(max_examples=max(60, settings().max_examples // 5))
TestBooks = Books.TestCase


def test_a_long_log_ends_in_the_same_books_and_everything_in_it_was_upheld() -> None:
    made = LongLog(30, 300, Random(3))
    state, model = ClusterState(), Model()
    metered = Metered(state)
    for seq, entry in enumerate(made.entries(4_000), start=1):
        events = decode_envelope(entry.payload).events
        apply_all(state, events, seq)
        for event in events:
            model.observe(event, seq)
        metered.took(seq)
    metered.check()
    assert made.gone > 300
    assert not state.voided
    assert len(model.shares) == made.placed - made.gone
    assert model.picture() == picture_of(state)


def model_of(*events: Event) -> Model:
    """The model of a log of these events; the fold's books are the same."""
    model = Model()
    for seq, event in enumerate(events, start=1):
        model.observe(event, seq)
    assert model.picture() == picture_of(build.state_of(*events))
    return model


def test_a_binding_that_is_known_to_have_happened_is_not_given_back() -> None:
    of: Any = {"uid": "a", "namespace": "", "name": "", "node": "n1", "decision": 3}
    log: list[Event] = [build.node(), build.pod(), build.decided(build.placement())]
    bound, failed = Bound(**of), BindFailed(**of, code="", message="")
    assert model_of(*log, bound, failed).picture().holders.keys() == {"a"}
    assert not model_of(*log, failed).picture().holders


def test_a_container_that_names_one_card_twice_is_booked_once() -> None:
    twice = (build.holding("GPU-0", 1_000), build.holding("GPU-0", 2_000))
    strange = build.pod("s", node="n1", holdings=twice, phase="Running")
    model = model_of(build.node(), strange)
    assert model.used(("n1", "vgpu", "GPU-0"))[:2] == (1, 1_000)
