"""Every event of the log has a row in each table, or nothing starts."""

from typing import get_args

import pytest

from allotment_proto import subjects
from allotment_proto.events import Event, NodeGone
from allotment_proto.registry import BINDER, KIND, KINDS, TOPICS, check_complete


def test_each_event_has_one_row() -> None:
    assert {kind.struct for kind in KINDS} == set(get_args(Event))
    assert len(KINDS) == len(KIND)


def test_a_table_without_an_event_is_refused() -> None:
    short = [kind for kind in KIND if kind is not NodeGone]
    with pytest.raises(TypeError, match=r"a.table: no row for \['NodeGone'\]"):
        check_complete("a.table", short)


def test_a_table_with_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"what is no event: \['int'\]"):
        check_complete("a.table", [*KIND, int])


def test_the_binder_alone_appends_decisions_and_outcomes() -> None:
    of_binder = {topic.address for topic in TOPICS if topic.sender == BINDER}
    assert of_binder == {
        subjects.DECISION,
        subjects.OUTCOME,
        subjects.SEGMENT,
        subjects.CHECKPOINT,
    }
