"""`python -m allotment_local.cluster`: the API server with its fake nodes, one process.

Prints its address as one line of JSON when it serves, like every service. Along with the Kubernetes
API it serves `/debug/cards`: what the fake device plugins handed out of each card, and whether that
was ever too much.
"""

import argparse
import json
import os
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
from aiohttp import web

from allotment.adapters.log.certificates import CA, new_certificates, write_certificates
from allotment.adapters.log.nats_users import (
    PUBLIC_KEYS,
    USERS,
    seed_file,
    write_closed,
    write_keys,
)
from allotment_local.apiserver.admission import POLICIES, POLICY_BINDINGS, read_policy
from allotment_local.apiserver.app import build_app
from allotment_local.apiserver.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from allotment_local.apiserver.store import Store
from allotment_local.definitions import read_definitions
from allotment_local.nodes.fake import FakeNodes
from allotment_local.nodes.lifecycles import Delays
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import (
    ALLOCATE_MS_MAX,
    ShapesError,
    default_shapes,
    read_shapes,
)
from allotment_local.nodes.shapes import NodeShape
from allotment_local.nodes.timers import Timers

HOST = "127.0.0.1"
SHUTDOWN_S = 3.0
DEBUG_CARDS = "/debug/cards"
VOLCANO_NAMESPACE = "volcano-system"
"""There from the start, as with an installed Volcano: its ConfigMaps are applied to it."""


def now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def build(
    shapes: tuple[NodeShape, ...],
    timers: Timers,
    allocate_ms: int = 0,
    writer: str = "",
    names: Collection[str] = (),
) -> web.Application:
    """The API server of a new cluster with these nodes; `timers` must be run along with it.
    `writer` is the token that allows what the admission policy reserves to schedulers; `names` are
    host names that it answers for besides localhost.

    Versions begin above those of any earlier life of the address, so that a watch that comes back
    after a restart has to list again.
    """
    store = Store(clock=now, ids=new_id, first_resource_version=int(now().timestamp() * 1000))
    for definition in read_definitions():
        store.create(CUSTOM_RESOURCE_DEFINITIONS, "", definition)
    policy, binding = read_policy()
    store.create(POLICIES, "", policy)
    store.create(POLICY_BINDINGS, "", binding)
    store.create(NAMESPACES, "", {"metadata": {"name": VOLCANO_NAMESPACE}})
    fake = FakeNodes(store, timers, now, Delays(allocate_s=allocate_ms / 1000))
    fake.start(node_objects(shapes, store.now()), configured=True)
    app = build_app(store, clock=now, ids=new_id, writer=writer, names=names)

    async def cards(_: web.Request) -> web.Response:
        return web.json_response(fake.report())

    app.router.add_get(DEBUG_CARDS, cards)
    return app


async def serve(
    shapes: tuple[NodeShape, ...],
    allocate_ms: int,
    writer: str,
    names: Collection[str],
    host: str,
    port: int,
) -> None:
    """Serve until SIGTERM or SIGINT."""
    timers = Timers(time.monotonic)
    runner = web.AppRunner(
        build(shapes, timers, allocate_ms, writer, names),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        http = f"{host}:{runner.addresses[0][1]}"
        announced = {"service": "apiserver", "pid": os.getpid(), "http": http}
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            print(json.dumps(announced), flush=True)
            async with anyio.create_task_group() as beside:
                beside.start_soon(timers.run)
                async for _ in signals:
                    break
                beside.cancel_scope.cancel()
    finally:
        await runner.cleanup()


def _new_token(file: Path) -> str:
    """A token known only to readers of the file; the existing one, if any."""
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(32), encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def _write_certificates(directory: Path, names: list[str]) -> None:
    """The server of Compose runs as another user than we: who has its volume may read the key."""
    made = new_certificates(names, now())
    write_certificates(directory / "tls", made, key_mode=0o644)
    for user in USERS:
        write_closed(seed_file(directory, user).with_name(CA), made.ca, 0o644)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m allotment_local.cluster", description=__doc__)
    parser.add_argument(
        "--host", default=HOST, help="address; there is no authentication, so keep it private"
    )
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one")
    parser.add_argument(
        "--names",
        default="",
        metavar="NAME,…",
        help="host names by which clients reach it (default: localhost and addresses only)",
    )
    parser.add_argument("--nodes", type=Path, help="YAML of node shapes; default: a mixed cluster")
    parser.add_argument(
        "--allocate-ms",
        type=int,
        choices=range(ALLOCATE_MS_MAX + 1),
        metavar=f"0..{ALLOCATE_MS_MAX}",
        default=0,
        help="how long device plugins take to serve a container, where a node does not say",
    )
    parser.add_argument(
        "--nats-keys", type=Path, help="make keys for NATS's users there, unless there are some"
    )
    parser.add_argument(
        "--nats-names",
        default="",
        metavar="NAME,…",
        help="also make a TLS certificate for a NATS server of these names, in `tls` next to the "
        "keys, and put its CA next to each user's seed",
    )
    parser.add_argument(
        "--writer-token",
        type=Path,
        help="make a token there for the binder, the only client that may write what the admission "
        "policy reserves to schedulers and device plugins (default: no client may)",
    )
    arguments = parser.parse_args()
    if arguments.nats_keys and not (arguments.nats_keys / PUBLIC_KEYS).exists():
        if arguments.nats_names:
            _write_certificates(arguments.nats_keys, arguments.nats_names.split(","))
        write_keys(arguments.nats_keys)
    try:
        shapes = read_shapes(arguments.nodes) if arguments.nodes else default_shapes()
    except ShapesError as error:
        print("\n".join(error.problems), file=sys.stderr)
        sys.exit(2)
    try:
        writer = _new_token(arguments.writer_token) if arguments.writer_token else ""
        host, port = arguments.host, arguments.port
        names = arguments.names.split(",")
        serving = partial(serve, shapes, arguments.allocate_ms, writer, names, host, port)
        anyio.run(serving, backend_options={"use_uvloop": True})
    except OSError as error:
        sys.exit(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}")


if __name__ == "__main__":
    main()
