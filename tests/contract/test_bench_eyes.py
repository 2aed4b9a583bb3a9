"""What the end-to-end bench sees of pods, on an API server that ends watches."""

from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.contract.kube_server import client_of, listing, pod, queries, scripted, stream
from tests.waiting import until

from allotment.core.errors import AllotError
from allotment_lab.bench.e2e import phases as e2e_phases
from allotment_lab.bench.e2e import pods as e2e_pods
from allotment_lab.bench.e2e.load import Eyes
from allotment_lab.bench.e2e.pods import Body

pytestmark = pytest.mark.anyio


async def test_a_watch_that_ends_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(
            listing(version="10"),
            stream(("MODIFIED", pod("a", 11, nodeName="n1"))),
            stream(("MODIFIED", pod("b", 12, nodeName="n2")), hold=True),
        )
        eyes = Eyes(client, "/api/v1/pods")
        async with anyio.create_task_group() as group:
            await group.start(eyes.look)
            await until(lambda: eyes.bound_s.keys() == {"a", "b"})
            group.cancel_scope.cancel()
    assert [query.get("resourceVersion") for query in queries(script)] == [None, "10", "11"]
    assert eyes.double == 0


class _Creates:
    """A client that creates pods, of which nobody takes any notice."""

    async def create_all(self, path: str, bodies: list[Body], sent: Any) -> float:
        for body in bodies:
            sent(body.name)
        return 0.1


@pytest.mark.parametrize(
    ("scheduler", "is_bound", "is_asked"),
    [("nope", False, True), ("nope", True, False), ("bench-1", False, False)],
)
async def test_if_nobody_takes_a_peers_pods_it_is_asked_whether_it_runs(
    scheduler: str, is_bound: bool, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e2e_phases, "WITHIN_S", 0.0)
    eyes = Eyes(cast(Any, None), "/api/v1/pods")
    if is_bound:
        eyes.bound_s["burst-00000"] = 1.0
    load = e2e_phases.Load("bench-1", scheduler, e2e_pods.NOTHING, 1, 0.0, ["n1"], [])
    phases = e2e_phases.Phases(cast(Any, _Creates()), eyes, "/api/v1/pods", load, None)
    with pytest.raises(AllotError) as caught:
        await phases.burst("burst", 1)
    assert "only 0 of 1 pods were running" in caught.value.message
    assert ("does a scheduler of the name nope run" in caught.value.remedy) is is_asked
