"""The copies of the leases in Kubernetes, of a real NATS, against a scripted API server."""

import uuid
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import anyio
import pytest
from aiohttp import web
from tests.contract.kube_server import client_of, scripted
from tests.waiting import until

from allotment.adapters.log.connection import connect
from allotment.adapters.log.lease import Lease
from allotment.adapters.log.nats_server import NatsServer
from allotment_watcher.lease_mirror import LeaseMirror

pytestmark = pytest.mark.anyio


async def test_a_copy_follows_its_lease_and_its_failure_harms_nothing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    name = uuid.uuid4().hex
    kept: dict[str, Any] = {}
    log = MagicMock()
    async with scripted() as script, client_of(script, tmp_path) as client:
        is_broken = True

        async def answer(request: web.Request) -> web.StreamResponse:
            if is_broken:
                return web.json_response({"message": "broken", "code": 500}, status=500)
            if request.method == "PATCH" and not kept:
                return web.json_response({"message": "none", "code": 404}, status=404)
            kept.update(script.bodies[-1]["spec"])
            return web.json_response({})

        script.otherwise = answer
        async with connect(nats_server.url, "mirror") as connection:
            mirror = LeaseMirror(client, connection, "allotment-system", log)
            async with anyio.create_task_group() as group:
                async with Lease(connection, name=name, holder="a") as lease:
                    await lease.acquired()
                    group.start_soon(mirror.run, (name,))
                    await until(lambda: len(script.requests) > 2)
                    assert lease.is_held
                    assert log.warning.call_count == 1
                    is_broken = False
                    await until(lambda: kept.get("holderIdentity") == "a")
                    first = kept["renewTime"]
                async with Lease(connection, name=name, holder="b"):
                    await until(lambda: kept["holderIdentity"] == "b")
                    assert kept["renewTime"] > first
                    assert kept["leaseDurationSeconds"] == 40
                group.cancel_scope.cancel()
