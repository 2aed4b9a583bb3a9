"""The cluster of the end-to-end tests: a local API server with fake nodes, in a process of its own.

`python -m tests.e2e.cluster_process NODES.yaml PORT [configured]` prints its addresses as one line
of JSON. With `configured` the device plugins bring their ConfigMap and do as it says.
`GET /debug/cards` at `books` tells what the fake device plugins handed out, whatever the log says.
"""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import web

from allotment_local.apiserver.__main__ import new_id, new_store, now
from allotment_local.apiserver.app import build_app
from allotment_local.nodes.fake import FakeNodes
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import parse_shapes
from allotment_local.nodes.shapes import NodeShape
from allotment_local.nodes.timers import Timers


async def serve(shapes: Sequence[NodeShape], port: int, *, configured: bool) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = new_store()
    timers = Timers(time.monotonic)
    fake = FakeNodes(store, timers, now)
    fake.start(node_objects(shapes, store.now()), configured=configured)

    async def cards(_: web.Request) -> web.Response:
        return web.json_response(fake.report())

    books = web.Application()
    books.router.add_get("/debug/cards", cards)
    api = build_app(store, clock=now, ids=new_id)
    async with _served(api, port) as url, _served(books, 0) as books_url:
        ticking = asyncio.create_task(timers.run())
        print(json.dumps({"url": url, "books": books_url}), flush=True)
        await stop.wait()
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


@contextlib.asynccontextmanager
async def _served(app: web.Application, port: int) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    nodes = parse_shapes(file.read_text(), str(file))
    asyncio.run(serve(nodes, int(sys.argv[2]), configured="configured" in sys.argv[3:]))
