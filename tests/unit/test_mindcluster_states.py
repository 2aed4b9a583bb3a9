"""States of a chip: all are known in advance, even those that only others bring about."""

import pytest

from allotment.core.ledger.partitions import mindcluster
from allotment_proto.events import NodeObserved, PodGone, PodObserved
from allotment_proto.facts import Holding
from allotment_proto.volcano.mindcluster import TEMPLATES
from tests import build, chips
from tests.unit.device_books import World


def npu_node() -> NodeObserved:
    return chips.node("n1", chips.inventory("mindcluster", chips.npu_source(4)))


def odd(uid: str, chip: int, *templates: str) -> list[PodObserved]:
    """Pods with pieces that never fit together on one chip."""
    return [
        build.pod(
            f"{uid}{number}",
            build.request(),
            node="n1",
            phase="Running",
            holdings=(Holding("mindcluster", 0, str(chip), 0, 1, template),),
        )
        for number, template in enumerate(templates)
    ]


def test_states_that_only_others_bring_about_do_not_make_all_kinds_anew() -> None:
    world = World(npu_node())
    columns = world.board._columns
    world.board.begin()
    world.board.end()
    before = len(columns.kinds)
    for number, templates in enumerate(
        (
            ("vir01", "vir04_4c_dvpp"),
            ("vir02_1c", "vir04_4c_dvpp"),
            ("vir02", "vir04_4c_dvpp"),
            ("vir01", "vir01", "vir04_4c_dvpp"),
        )
    ):
        world.tell(*odd(f"x{number}", number, *templates))
        world.board.begin()
        world.board.end()
    assert len(columns.kinds) <= before + 20
    assert len(columns.kinds) <= columns.layout.kinds_most
    source = chips.pod_source(chips.npu(1))
    for uid in "abcdefgh":
        world.tell(chips.pod(uid, "mindcluster", source))
    world.place(*"abcdefgh")


def test_every_state_that_pieces_can_bring_about_is_known_beforehand() -> None:
    for cores in (8, 10):
        card = chips.inventory("mindcluster", chips.npu_source(2, cores)).cards[0]
        known = set(mindcluster.MINDCLUSTER.states(card, ()))
        for state in list(known):
            for template in TEMPLATES.values():
                assert mindcluster._after(card, state, template) in known


@pytest.mark.parametrize(
    ("template", "fits"),
    [("vir01", False), ("vir04_3c_ndvpp", True), ("vir04_4c_dvpp", False), ("", False)],
)
def test_the_books_know_which_pieces_a_chip_gives(template: str, fits: bool) -> None:
    world = World(npu_node(), *odd("x", 0, "vir04_4c_dvpp"), build.pod("a", build.request()))
    piece = Holding("mindcluster", 0, "0", 0, 1, template)
    world.tell(build.decided(build.placement("a", "n1", piece)))
    assert (world.state.pods["a"].allocation is not None) == fits
    world.audit()
    world.tell(*(PodGone(uid=uid, namespace="", name="", rv=9) for uid in ("x0", "a")))
    world.audit()
