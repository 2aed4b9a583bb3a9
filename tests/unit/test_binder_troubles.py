"""What a pod's users are told once about annotations that nobody reads."""

from typing import cast

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_binder.notices import Notices, Warned
from allotment_binder.troubles import Troubles
from allotment_proto.events import PodObserved
from tests import build

MEANT = (("nvidia.com/use-gpuuuid", "volcano.sh/vgpu-use-gpuuuid"), ("volcano.sh/vgpu-mod", "m"))


class Told:
    """Collects notices."""

    def __init__(self) -> None:
        self.notices: list[Warned] = []

    def put(self, notice: Warned) -> None:
        self.notices.append(notice)


def shown(state: ClusterState, troubles: Troubles, fact: PodObserved) -> None:
    apply(state, fact, state.seq + 1)
    troubles.look(state, fact.uid, is_erased=False)


def test_annotations_that_nobody_reads_are_told_once_with_what_to_write() -> None:
    told, state = Told(), build.state_of(build.node("n1"))
    troubles = Troubles(cast(Notices, told))
    troubles.begin(state)
    shown(state, troubles, build.pod("a", misnamed=MEANT))
    shown(state, troubles, build.pod("a", rv=2, misnamed=MEANT, node="n1", phase="Running"))
    (notice,) = told.notices
    assert notice.reason == "AnnotationNotRead"
    assert notice.message == (
        "annotation nvidia.com/use-gpuuuid (HAMi) is ignored here; write the annotation "
        "volcano.sh/vgpu-use-gpuuuid instead; annotation volcano.sh/vgpu-mod is not recognised "
        "and is ignored; did you mean m?"
    )
    shown(state, troubles, build.pod("a", rv=3, node="n1", phase="Running"))
    shown(state, troubles, build.pod("b"))
    assert len(told.notices) == 1


def test_a_card_that_falls_ill_is_told_once_to_the_pods_on_it() -> None:
    told = Told()
    held = build.holding("GPU-0")
    state = build.state_of(
        build.node("n1"),
        build.pod("a", node="n1", phase="Running", holdings=(held,)),
        build.pod("b", node="n1", phase="Running"),
    )
    troubles = Troubles(cast(Notices, told))
    troubles.begin(state)
    ill = build.node("n1", cards=[build.card(0, healthy=False)], rv=2)
    apply(state, ill, state.seq + 1)
    troubles.look_at_cards(state, "n1")
    apply(state, build.node("n1", rv=3), state.seq + 1)
    troubles.look_at_cards(state, "n1")
    apply(state, msgspec.structs.replace(ill, rv=4), state.seq + 1)
    troubles.look_at_cards(state, "n1")
    (notice,) = told.notices
    assert (notice.name, notice.reason) == ("pod-a", "CardUnhealthy")
    assert notice.message == (
        "card n1/GPU-0 is registered as unhealthy by its device plugin. Delete the pod to have it "
        "placed on other cards"
    )


def test_what_an_earlier_binder_told_is_not_told_again() -> None:
    told = Told()
    troubles = Troubles(cast(Notices, told))
    fact = build.pod("a", misnamed=MEANT)
    state = build.state_of(build.node("n1"), fact)
    troubles.begin(state)
    shown(state, troubles, build.pod("a", rv=2, misnamed=MEANT))
    assert told.notices == []
