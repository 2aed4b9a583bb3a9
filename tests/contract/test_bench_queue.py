"""Whether the end-to-end bench measures with queues or without."""

from pathlib import Path

import pytest
from tests.contract.kube_server import client_of, refuse, reply, scripted

from allotment.core.errors import AllotError
from allotment_lab.bench.e2e.cluster import queues

pytestmark = pytest.mark.anyio
FIRST_ASKED = refuse(429, "TooManyRequests", "storage is (re)initializing", Retry_After="0")


async def test_who_asks_first_for_queues_is_put_off_and_asks_again(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(FIRST_ASKED, reply({"items": []}))
        script.then(*[reply({}, 201)] * 4)
        async with queues(client, "run", 2) as names:
            assert names == ["run-0", "run-1"]
    asked = [request.method for request in script.requests]
    assert asked == ["GET", "GET", "POST", "POST", "DELETE", "DELETE"]


async def test_only_a_cluster_without_their_definition_has_none(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(refuse(404, "NotFound"), refuse(403, "Forbidden", "user cannot list queues"))
        async with queues(client, "run", 2) as names:
            assert names == []
        with pytest.raises(AllotError, match="user cannot list queues"):
            async with queues(client, "run", 2):
                pass
