"""What a Queue's status says it has, kept up to date job by job."""

from typing import cast

import pytest

from allotment.adapters.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core.queues.resources import Resources
from allotment_binder.queue_status import QueueStatuses, QueueUse, quantities
from allotment_proto.events import PodGone
from tests import build
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.rounds_world import World

GIB = 1 << 30


@pytest.mark.parametrize(
    ("amounts", "shown"),
    [
        ({}, {"cpu": "0", "memory": "0"}),
        (
            {"cpu": 1_500, "memory": 3 * GIB, "pods": 2, "nvidia.com/gpu": 2_000},
            {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "2", "pods": "2"},
        ),
        ({"memory": 1_000, "x/y": 500}, {"cpu": "0", "memory": "1000", "x/y": "500m"}),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(
    amounts: dict[str, int], shown: dict[str, str]
) -> None:
    assert quantities(Resources(amounts)) == shown


def test_a_queue_has_what_its_pods_hold_and_those_of_the_queues_below() -> None:
    world = World(build.node("n1", 0), policy=GATED)
    for found in (queue("root", parent=""), queue("org"), queue("team", parent="org")):
        world.tell(found)
    use = QueueUse(world.state)
    nothing = {"cpu": "0", "memory": "0"}
    assert use.follow() == dict.fromkeys(("default", "org", "root", "team"), nothing)
    world.tell(lone("a", queue="team"))
    world.tell(lone("b"))
    world.tell(lone("waits", queue="nowhere"))
    world.decide()
    one, two = ({"cpu": cpu, "memory": "0", "pods": n} for cpu, n in (("2", "1"), ("4", "2")))
    assert use.follow() == {"default": one, "org": one, "root": two, "team": one}
    world.tell(PodGone(uid="a", namespace="default", name="pod-a", rv=9))
    assert use.follow() == {"default": one, "org": nothing, "root": one, "team": nothing}
    assert use.follow() == QueueUse(world.state).follow()


class Server:
    """Answers patches of queues; `missing` have no status yet, `ill` refuse."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.missing = {"default"}
        self.ill: set[str] = set()
        self.raising: set[str] = set()

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> KubeResult:
        name = path.split("/")[-2]
        self.asked.append((name, content_type))
        if name in self.raising:
            raise UnicodeError("half a character")
        if name in self.ill:
            return Refused(403, "Forbidden", "not allowed")
        if name in self.missing and content_type == JSON_PATCH:
            return Refused(422, "Invalid", "there is no status")
        return Ok(200, b"{}")


@pytest.mark.anyio
async def test_only_what_changed_is_written_and_trouble_is_said_once() -> None:
    world = World(build.node("n1", 0), queue("q1"), policy=GATED)
    server, said = Server(), list[str]()
    statuses = QueueStatuses(cast(KubeClient, server), lambda name, text: said.append(name))
    use = QueueUse(world.state)
    server.ill = {"q1"}
    assert not await statuses._write(use)
    assert server.asked == [("default", JSON_PATCH), ("default", MERGE_PATCH), ("q1", JSON_PATCH)]
    assert not await statuses._write(use)
    assert said == ["q1"]
    server.ill.clear()
    assert await statuses._write(use)
    server.asked.clear()
    assert await statuses._write(use)
    assert server.asked == []
    world.tell(lone("a", queue="q1"))
    world.decide()
    assert await statuses._write(use)
    assert server.asked == [("q1", JSON_PATCH)]


@pytest.mark.anyio
async def test_a_queue_whose_write_raises_keeps_no_other_from_its_status() -> None:
    world = World(build.node("n1", 0), *(queue(name) for name in ("q1", "q2")), policy=GATED)
    server, said = Server(), list[tuple[str, str]]()
    statuses = QueueStatuses(cast(KubeClient, server), lambda *told: said.append(told))
    server.raising = {"default", "q1"}
    use = QueueUse(world.state)
    assert not await statuses._write(use)
    assert not await statuses._write(use)
    assert statuses.written == 1
    assert said == [(name, "UnicodeError: half a character") for name in ("default", "q1")]
    server.raising.clear()
    assert await statuses._write(use)
    assert statuses.written == 3
