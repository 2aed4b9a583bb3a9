"""How preemptors are called, and what the list says of placed pods."""

import pytest

from allotment.core.explain.rows.pod_views import evicted_text, pod_view, preemptor_name
from allotment.core.ledger.state import apply
from allotment_binder.readers import Readers
from allotment_proto.events import Eviction, GroupObserved
from tests import build


def group(name: str) -> GroupObserved:
    return GroupObserved(uid=name, namespace="default", name=name, rv=1)


@pytest.mark.parametrize(
    ("made", "members", "called"),
    [
        ("podgroup-a", {"a": "solo"}, "pod default/solo"),
        ("podgroup-rs", {"a": "web-7bcdf", "b": "web-8bcdf"}, "group default/web"),
        ("podgroup-rs", {"a": "web", "b": "other"}, "default/podgroup-rs"),
        ("train", {"a": "worker"}, "default/train"),
    ],
)
def test_a_group_that_was_made_is_called_by_its_pods(
    made: str, members: dict[str, str], called: str
) -> None:
    state = build.state_of(
        group(made),
        *(build.pod(uid, name=name, group=f"default/{made}") for uid, name in members.items()),
    )
    assert preemptor_name(state, f"default/{made}") == called


@pytest.mark.parametrize(
    ("made", "uids"), [("podgroup-a", ("a",)), ("podgroup-rs", ("a", "b")), ("train", ("a",))]
)
def test_a_preemptor_of_another_namespace_is_not_named_to_its_victims(
    made: str, uids: tuple[str, ...]
) -> None:
    names = ("secret-7bcdf", "secret-8bcdf")
    state = build.state_of(
        group(made),
        *(
            build.pod(uid, name=name, group=f"default/{made}")
            for uid, name in zip(uids, names, strict=False)
        ),
    )
    readers = Readers()
    readers.begin(state)
    eviction = Eviction("v", "other", "victim", "n1", "reclaim", f"default/{made}")
    told = readers.text("other", evicted_text(state, eviction))
    assert "secret" not in told
    assert "default" not in told


def test_a_group_named_after_the_pod_of_another_is_not_called_by_it() -> None:
    state = build.state_of(group("podgroup-a"), build.pod("a", name="victim", namespace="other"))
    assert preemptor_name(state, "default/podgroup-a") == "default/podgroup-a"


def test_the_list_names_what_is_wrong_under_a_running_pod() -> None:
    state = build.state_of(
        build.node("n1"),
        build.pod("a", node="n1", phase="Running", holdings=(build.holding("GPU-0"),)),
    )

    def cause() -> str:
        return pod_view(state, state.pods["a"], lambda _: ("", "")).cause

    assert cause() == ""
    apply(state, build.node("n1", cards=[build.card(0, healthy=False)], rv=2), state.seq + 1)
    assert cause() == "CardUnhealthy"
    apply(state, build.node("n1", ready=False, rv=3), state.seq + 1)
    assert cause() == "NodeNotReady"
