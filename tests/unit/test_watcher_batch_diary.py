"""Of groups, queues and classes only news is told, and what is not there any more as gone."""

from typing import Any

from allotment.core.ledger.state import ClusterState, apply
from allotment_proto.events import (
    GroupGone,
    GroupObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_watcher.batch_diary import (
    BatchFact,
    Told,
    classes_of,
    groups_of,
    key_of,
    queues_of,
)
from tests.build import pod


def group(rv: int = 1, uid: str = "u", name: str = "g", **fields: Any) -> GroupObserved:
    return GroupObserved(uid=uid, namespace="ns", name=name, rv=rv, **fields)


def queue(name: str, rv: int = 1, **fields: Any) -> QueueObserved:
    return QueueObserved(uid=f"uid-{name}", name=name, rv=rv, **fields)


def told(*facts: GroupObserved | QueueObserved) -> Told:
    return Told({key_of(fact): fact for fact in facts})


def test_the_same_content_is_told_once() -> None:
    diary = told()
    assert diary.seen(group(1)) == [group(1)]
    assert diary.seen(group(2)) == []
    changed = group(3, min_member=4)
    assert diary.seen(changed) == [changed]
    assert diary.seen(group(2)) == [], "an older version that comes late"


def test_made_anew_under_its_name() -> None:
    diary = told(group(9, uid="old"))
    reborn = group(2, uid="new")
    assert diary.seen(reborn) == [reborn]
    assert diary.gone("ns/g", "old") == []
    assert diary.gone("ns/g", "new") == [GroupGone(uid="new", namespace="ns", name="g", rv=2)]
    assert diary.gone("ns/g", "new") == []


def test_what_a_list_lacks_is_gone() -> None:
    diary = told(queue("a"), queue("b", 7), queue("c"))
    assert diary.only(["a", "c", "d"]) == [QueueGone(uid="uid-b", name="b", rv=7)]
    assert diary.only(["a", "c"]) == []


def folded(*facts: BatchFact) -> ClusterState:
    state = ClusterState()
    for seq, fact in enumerate(facts, start=1):
        apply(state, fact, seq)
    return state


def test_it_begins_with_what_the_log_believes_and_ends_that_class_by_class() -> None:
    high = PriorityClassObserved(uid="p", name="high", rv=3, value=9)
    state = folded(group(), queue("a"), high)
    apply(state, pod("x", group="ns/unseen"), 4)
    assert groups_of(state) == {"ns/g": group()}
    assert Told(groups_of(state)).seen(group(5)) == []
    assert Told(queues_of(state)).only([]) == [QueueGone(uid="uid-a", name="a", rv=1)]
    assert Told(classes_of(state)).only([]) == [PriorityClassGone(uid="p", name="high", rv=3)]


def test_what_landed_late_is_set_right() -> None:
    diary = told(queue("a"), queue("b"))
    again = QueueObserved(uid="other", name="b", rv=9)
    believed = queues_of(folded(again, queue("late", 5)))
    assert diary.corrections(believed) == [
        queue("a"),
        queue("b"),
        QueueGone(uid="uid-late", name="late", rv=5),
    ]
    assert diary.corrections(queues_of(folded(queue("a"), queue("b", 8)))) == []
