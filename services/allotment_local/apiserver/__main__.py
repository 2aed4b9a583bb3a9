"""`python -m allotment_local.apiserver --host 127.0.0.1 --port 0`: an empty cluster over HTTP.

Prints its address as one line of JSON when it serves, and ends in order on SIGTERM or SIGINT.
"""

import argparse
import asyncio
import json
import signal
import uuid
from datetime import UTC, datetime

from aiohttp import web

from allotment_local.apiserver.app import build_app
from allotment_local.apiserver.store import Store

SHUTDOWN_S = 5.0


def now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def new_store() -> Store:
    """A Store on the real clock, whose versions begin above those of any earlier life: a client
    that comes back after a restart has to list again."""
    return Store(clock=now, ids=new_id, first_resource_version=int(now().timestamp() * 1000))


async def serve(host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = build_app(new_store(), clock=now, ids=new_id)
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_port = runner.addresses[0][1]
        shown_host = f"[{host}]" if ":" in host else host
        print(json.dumps({"url": f"http://{shown_host}:{bound_port}"}), flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m allotment_local.apiserver", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one")
    arguments = parser.parse_args()
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(arguments.host, arguments.port))
    else:
        uvloop.run(serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
