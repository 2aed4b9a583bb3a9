"""A page at a past moment shows what it would show if the log had ended there."""

from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import msgspec
import pytest

from allotment.core.logport import Record
from allotment_inspector.history import History, Moment
from allotment_inspector.pages import NotFound
from tests.inspecting import history_of, names_of, page_of, paths_of, served
from tests.recording import Recorder, busy_cluster
from tests.recording_batch import busy_queues, preempted

MOMENTS = 4


def shown(history: History, addresses: Sequence[str], seq: int) -> dict[str, Any]:
    """What each page says at a moment; of what does not exist yet nothing but that."""

    def look(moment: Moment) -> dict[str, Any]:
        found = {}
        for address in addresses:
            page, match, query = page_of(address)
            view = page.view(moment, match, query)
            if isinstance(view, NotFound):
                view = msgspec.structs.replace(view, later=0)
            found[address] = msgspec.to_builtins(view)
        return found

    async def run() -> dict[str, Any]:
        async with history.moment(seq) as moment:
            return await anyio.to_thread.run_sync(look, moment)

    return anyio.run(run)


@pytest.mark.parametrize("make", [busy_cluster, busy_queues, preempted])
def test_no_page_shows_what_came_later(make: Callable[[], Recorder]) -> None:
    """The later moments are asked for first, so that what pages remember is there already."""
    records: Sequence[Record] = make().records
    whole, fold = history_of(records)
    addresses = paths_of(records, names_of(records), fold)
    for seq in range(len(records) - 1, 0, -len(records) // MOMENTS):
        ended, _ = history_of(records[:seq])
        assert shown(whole, addresses, seq) == shown(ended, addresses, seq)


@pytest.mark.anyio
async def test_a_record_of_later_is_said_to_be_one() -> None:
    history, _ = history_of(busy_cluster().records)
    async with served(history) as address, aiohttp.ClientSession() as session:
        for path in ("/log/29", "/decisions/29", "/decisions/29/otherwise"):
            async with session.get(f"{address}{path}?at=12") as response:
                text = await response.text()
            assert response.status == 404
            assert "It was created after this moment" in text
            assert f'href="{path}?at=29"' in text


@pytest.mark.anyio
async def test_a_page_says_that_it_shows_the_past() -> None:
    history, _ = history_of(busy_cluster().records)
    async with served(history) as address, aiohttp.ClientSession() as session:
        for query, hidden in (("", True), ("?at=12", False)):
            async with session.get(f"{address}/pods{query}") as response:
                text = await response.text()
            banner = text.partition('id="then"')[2].partition("</span>")[0]
            assert banner.startswith(" hidden") is hidden
            assert "Past state: 14:00:03" in banner or hidden
            joint = "&" if query else "?"
            async with session.get(f"{address}/pods{query}{joint}format=json") as response:
                assert (await response.json())["isNow"] is hidden
