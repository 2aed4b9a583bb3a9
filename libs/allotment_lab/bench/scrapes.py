"""A Prometheus beside a bench: who reads the pages of metrics takes time from those who wait.

A page is read as Prometheus reads it, and thrown away. Without it a bench shows what no operator
has: a service that nobody watches.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import anyio
import click

from allotment.adapters.telemetry.log import error_text
from allotment_cli.errors import CliError
from allotment_cli.params import Finite

ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
TIMEOUT_S = 10.0
"""Prometheus' own."""

scrape_option = click.option(
    "--scrape-every",
    "scrape_s",
    default=0.0,
    show_default=True,
    type=Finite(0, 600),
    help="Read the metrics of all services every so many seconds, as a Prometheus does. 0: never.",
)


class Scrapes:
    """What was read: how many pages, and how long the slowest of each service took."""

    def __init__(self) -> None:
        self.pages = 0
        self.slowest_us: dict[str, float] = {}

    async def _read(self, http: aiohttp.ClientSession, name: str, address: str) -> None:
        url = f"http://{address}/metrics"
        start_s = anyio.current_time()
        try:
            async with http.get(url, headers={"Accept": ACCEPT}) as answer:
                answer.raise_for_status()
                async for _ in answer.content.iter_any():
                    pass
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CliError(f"{url}: {error_text(error)}") from error
        took_us = 1e6 * (anyio.current_time() - start_s)
        self.pages += 1
        self.slowest_us[name] = round(max(took_us, self.slowest_us.get(name, 0)))

    async def _go_on(self, addresses: Mapping[str, str], every_s: float) -> None:
        limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=limit) as http:
            while True:
                for name, address in addresses.items():
                    await self._read(http, name, address)
                await anyio.sleep(every_s)


@asynccontextmanager
async def scraped(addresses: Mapping[str, str], every_s: float) -> AsyncIterator[Scrapes]:
    """Read the metrics at these addresses (`host:port`, by service) for the length of the block,
    all of them every so often; not at all if that is 0.

    Raises CliError if one cannot be read, or not within `TIMEOUT_S`.
    """
    scrapes = Scrapes()
    async with anyio.create_task_group() as tasks:
        if every_s:
            tasks.start_soon(scrapes._go_on, addresses, every_s)
        yield scrapes
        tasks.cancel_scope.cancel()


def slowest_row(every_s: float, slowest_us: Mapping[str, float]) -> list[tuple[str, str]]:
    """A row of a bench's table, if there was anything read."""
    if not every_s:
        return []
    shown = ", ".join(f"{name} {us / 1000:,.0f} ms" for name, us in slowest_us.items())
    return [(f"metrics read every {every_s:g} s, at most", shown)]
