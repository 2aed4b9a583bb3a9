"""Whether the end-to-end bench measures with a queue or without one."""

from pathlib import Path

import pytest
from tests.contract.kube_server import client_of, refuse, reply, scripted

from allotment.core.errors import AllotError
from allotment_lab.bench.e2e.cluster import ensure_queue

pytestmark = pytest.mark.anyio
FIRST_ASKED = refuse(429, "TooManyRequests", "storage is (re)initializing", Retry_After="0")


async def test_who_asks_first_for_queues_is_put_off_and_asks_again(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(FIRST_ASKED, reply({"items": []}), reply({}, 201))
        assert await ensure_queue(client, "default") == "default"
    assert [request.method for request in script.requests] == ["GET", "GET", "POST"]


async def test_only_a_cluster_without_their_definition_has_none(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(refuse(404, "NotFound"), refuse(403, "Forbidden", "user cannot list queues"))
        assert await ensure_queue(client, "default") == ""
        with pytest.raises(AllotError, match="user cannot list queues"):
            await ensure_queue(client, "default")
