"""Three nats-servers on loopback that form a cluster through proxies, so that one can be cut off.

Every server dials every other through a proxy of that pair, and what they tell each other of more
ways leads nowhere. Clients connect directly: they keep their server, however alone it is.
"""

import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from tests.contract.proxy import Proxy, proxy_to

from allotment.adapters.log.nats_server import find_binary

SERVERS = range(3)
START_S = 20.0


class NatsCluster:
    """`urls` are the servers' addresses for clients."""

    def __init__(self, ports: list[int], proxies: dict[tuple[int, int], Proxy]) -> None:
        self.urls = [f"nats://127.0.0.1:{port}" for port in ports]
        self._ports = ports
        self._proxies = proxies

    def cut_off(self, address: str) -> None:
        """Take every connection between this server (host:port) and the others."""
        cut = self._ports.index(int(address.rpartition(":")[2]))
        for pair, proxy in self._proxies.items():
            if cut in pair:
                proxy.refuses = True
                proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.refuses = False


@asynccontextmanager
async def nats_cluster(directory: Path) -> AsyncIterator[NatsCluster]:
    """The cluster for the length of the block; it may still be looking for its leader."""
    clients, routes = _free_ports(3), _free_ports(3)
    processes: list[subprocess.Popen[bytes]] = []
    async with AsyncExitStack() as stack:
        proxies = {
            (one, other): await stack.enter_async_context(
                proxy_to(f"nats://127.0.0.1:{routes[other]}")
            )
            for one in SERVERS
            for other in SERVERS
            if one != other
        }
        try:
            for one in SERVERS:
                ways = [proxies[one, other].port for other in SERVERS if other != one]
                config = directory / f"n{one}.conf"
                config.write_text(_config(directory, one, clients[one], routes[one], ways))
                processes.append(await anyio.to_thread.run_sync(_start, config))
            for port in clients:
                await _listens(port)
            yield NatsCluster(clients, proxies)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


def _start(config: Path) -> subprocess.Popen[bytes]:
    with open(config.with_suffix(".log"), "wb") as log:
        return subprocess.Popen(
            [find_binary().path, "-c", config],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _config(directory: Path, one: int, client: int, route: int, ways: list[int]) -> str:
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ways)
    return f"""server_name: n{one}
listen: "127.0.0.1:{client}"
jetstream {{ store_dir: "{directory / f"store{one}"}" }}
cluster {{
  name: test
  listen: "127.0.0.1:{route}"
  advertise: "127.0.0.1:9"
  no_advertise: true
  pool_size: -1
  routes: [{routes}]
}}
"""


def _free_ports(count: int) -> list[int]:
    with_each = [socket.socket() for _ in range(count)]
    try:
        for one in with_each:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in with_each]
    finally:
        for one in with_each:
            one.close()


async def _listens(port: int) -> None:
    with anyio.fail_after(START_S):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.05)
            else:
                return
