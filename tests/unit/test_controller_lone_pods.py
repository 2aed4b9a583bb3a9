"""What the controller keeps of lone pods that wait and are to have no PodGroup."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from allotment.core.jobs import keys
from allotment.core.jobs.model import Meta
from allotment_controller.objects import PodObject
from allotment_controller.pod_groups import PodGroups
from allotment_controller.state import ControllerContext

SETTINGS = SimpleNamespace(group_pods=True, group_lone_pods=False, scheduler_names=("volcano",))


class Known:
    """Namespaces that name queues."""

    def __init__(self) -> None:
        self.queues: dict[str, str] = {}

    def get(self, _: str, name: str) -> Any:
        queue = self.queues.get(name, "")
        return SimpleNamespace(metadata=Meta(annotations={keys.POD_QUEUE: queue}))


@pytest.mark.anyio
async def test_a_lone_pod_that_waits_keeps_nothing_of_what_was_read_with_it() -> None:
    """Its annotations are up to 256 KiB, and many such pods wait in a full cluster."""
    known, wanting = Known(), list[Any]()
    context = SimpleNamespace(
        settings=SETTINGS,
        known=SimpleNamespace(namespaces=known),
        work=SimpleNamespace(add=lambda what, _: wanting.append(what)),
    )
    groups = PodGroups(cast(ControllerContext, context))
    large = "x" * 200_000
    line = msgspec.json.encode(
        {
            "metadata": {
                "name": "lone",
                "namespace": "team",
                "uid": "u1",
                "annotations": {"example.com/note": large},
                "labels": {"app": "a"},
            },
            "spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]},
        }
    )
    before = sys.getrefcount(line)
    pod = msgspec.json.decode(line, type=PodObject)
    assert pod.metadata.annotations is not None
    note = pod.metadata.annotations["example.com/note"]
    held_by_pod = sys.getrefcount(note)
    groups.on_pod(pod)
    del pod
    assert sys.getrefcount(line) == before
    assert sys.getrefcount(note) == held_by_pod - 1
    assert wanting == []
    known.queues["team"] = "q"
    groups.on_namespace("team")
    assert [what[1:] for what in wanting] == [("team", "lone")]
