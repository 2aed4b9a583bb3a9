"""Repairs of the NATS client that no server is needed to see."""

import asyncio

import anyio
import pytest
from nats.aio.client import Client, Srv

from allotment.adapters.log.nats_client import GuardedClient
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio


class _Refused:
    """Connects that are refused in the moment in which they are cancelled: `asyncio.wait_for` loses
    the cancellation then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried = 0

        async def refused(client: Client, server: Srv) -> None:
            self.tried += 1
            try:
                await asyncio.sleep(0.01 if self.tried > 1 else 1000)
            except asyncio.CancelledError:
                raise ConnectionRefusedError from None

        monkeypatch.setattr(Client, "_connect_to_server", refused)
        self.client = GuardedClient()
        self.client.options = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.01}
        self.client._setup_server_pool(["nats://127.0.0.1:1"])
        self.client._error_cb = _ignore


async def test_a_reconnect_that_loses_its_cancellation_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = _Refused(monkeypatch)
    reconnecting = asyncio.create_task(refused.client._select_next_server())
    await until(lambda: refused.tried == 1)
    reconnecting.cancel()
    await asyncio.wait([reconnecting], timeout=PATIENCE_S)
    assert reconnecting.cancelled()
    assert refused.tried == 1


async def test_a_time_limit_that_is_lost_so_is_a_time_limit_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = _Refused(monkeypatch)
    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await refused.client._select_next_server()
    assert refused.tried == 1


async def _ignore(_: Exception) -> None:
    """What the servers say is not asked here."""
