"""The demo checks everything that it shows of Jobs: each claim that is not true is named."""

from typing import Any

import msgspec
import pytest

from allotment.answers.folding import Folded
from allotment.answers.recorded import JobRow, QueueRow
from allotment_cli.demo.batch import Scene, missing_of
from allotment_proto.events import Decided, QueueObserved
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.rounds_world import World, group

TIERS = ((PluginUse("priority"), PluginUse("gang")), (PluginUse("capacity"),))
WORKERS = {"distributed": 4, "three-workers": 3}


def right() -> Scene:
    """Room for nine whole cards: two Jobs run, of four more pods two would fit."""
    actions = ("enqueue", "allocate")
    world = World(
        build.node("n1", 9, extended=(("volcano.sh/vgpu-number", 90),)),
        policy=Policy(tiers=TIERS, actions=actions),
    )
    capability = (("volcano.sh/vgpu-number", 2_000),)
    world.tell(QueueObserved(uid="s", name="small", rv=1, capability=capability))
    uids = [uid for name, number in WORKERS.items() for uid in world.gang(name, number)]
    decided: Decided = world.decide()
    for uid in uids:
        fact = world.state.pods[uid].fact
        held = world.state.pods[uid].allocation
        assert held is not None
        changes = {"rv": 2, "node": held.node, "holdings": held.holdings, "phase": "Running"}
        world.tell(msgspec.structs.replace(fact, **changes))
    world.gang("too-big", 4)
    world.decide()
    least = (("volcano.sh/vgpu-number", 3_000),)
    quota = group("over-quota", 3, queue="small", phase="Pending", min_resources=least)
    world.tell(quota)
    return Scene(
        folded=Folded(world.state, world.seq, 1_000_000, ()),
        placements={placement.uid: placement for placement in decided.placements},
        decisions={uid: (9, frozenset(whole)) for whole in decided.wholes for uid in whole},
        indexes={uid: uid.rpartition("-")[2] for uid in uids},
        jobs=[
            *(job(name, "Running", number) for name, number in WORKERS.items()),
            *(job(name, "Pending", 0) for name in ("too-big", "over-quota")),
        ],
        queues=[queue("default", running=2), queue("small", pending=1)],
    )


def job(name: str, phase: str, running: int) -> JobRow:
    return JobRow("default", name, "", phase, "Batch", 4, 4, 0, running, 0, 0, 0, 0)


def queue(name: str, pending: int = 0, running: int = 0) -> QueueRow:
    return QueueRow(name, 1, "Open", "root", 0, pending, running, 0, 0)


def test_nothing_is_missing_where_all_is_so() -> None:
    assert list(missing_of(right())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decisions": {}}, "distributed was not placed whole by one decision"),
        ({"indexes": {}}, "do not have the indexes 0 to 3 as VC_TASK_INDEX"),
        ({"queues": [queue("default", running=2), queue("small")]}, "the queues count other"),
        (
            {"jobs": [job(n, "Pending", 0) for n in (*WORKERS, "too-big", "over-quota")]},
            "4 of 4 workers of distributed run, its Job is Pending",
        ),
    ],
)
def test_what_is_not_so_is_named(changes: dict[str, Any], said: str) -> None:
    found = list(missing_of(right()._replace(**changes)))
    assert any(said in text for text in found), found
