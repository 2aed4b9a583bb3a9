"""Repairs of the NATS client that no server is needed to see."""

import asyncio

import pytest
from nats.aio.client import Client, Srv

from allotment.adapters.log.nats_client import GuardedClient
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio


async def test_a_reconnect_that_loses_its_cancellation_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `asyncio.wait_for` loses it when a connection is refused in the same moment."""
    tried = 0

    async def refused_in_the_same_moment(self: Client, server: Srv) -> None:
        nonlocal tried
        tried += 1
        try:
            await asyncio.sleep(0.01 if tried > 1 else 1000)
        except asyncio.CancelledError:
            raise ConnectionRefusedError from None

    monkeypatch.setattr(Client, "_connect_to_server", refused_in_the_same_moment)
    client = GuardedClient()
    client.options = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.01}
    client._setup_server_pool(["nats://127.0.0.1:1"])
    client._error_cb = _ignore
    reconnecting = asyncio.create_task(client._select_next_server())
    await until(lambda: tried == 1)
    reconnecting.cancel()
    await asyncio.wait([reconnecting], timeout=PATIENCE_S)
    assert reconnecting.cancelled()
    assert tried == 1


async def _ignore(_: Exception) -> None:
    """What the servers say is not asked here."""
