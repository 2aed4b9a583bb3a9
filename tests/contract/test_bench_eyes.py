"""What the end-to-end bench sees of pods, on an API server that ends watches."""

from pathlib import Path

import anyio
import pytest
from tests.contract.kube_server import client_of, listing, pod, queries, scripted, stream
from tests.waiting import PATIENCE_S

from allotment_lab.bench.e2e_load import Eyes

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
            await eyes.wait_bound(["a", "b"], PATIENCE_S)
            group.cancel_scope.cancel()
    assert [query.get("resourceVersion") for query in queries(script)] == [None, "10", "11"]
    assert eyes.double == 0
