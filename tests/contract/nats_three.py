"""Three nats-servers on loopback with the shipped configuration of a cluster."""

import contextlib
import socket
from pathlib import Path
from typing import Any

from tests.contract.manifests import ROOT
from tests.contract.nats_shipped import (
    SINGLE,
    ServerEnded,
    credentials_of,
    on_loopback,
    running,
    with_certificates,
)

from allotment.adapters.log.nats_users import inbox_of

CLUSTER = ROOT / "deploy/overlays/default/cluster.conf"


def three_servers(stack: contextlib.ExitStack, folder: Path) -> list[tuple[str, str]]:
    """A cluster on ports that were free; on others if somebody takes one of them meanwhile."""
    for _ in range(5):
        with contextlib.suppress(ServerEnded):
            return stack.enter_context(running(cluster_texts(folder), folder))
    raise AssertionError("no three ports stay free")


def cluster_texts(tmp_path: Path) -> list[str]:
    """The shipped configuration of a cluster for each of three servers on loopback."""
    ports = free_ports(3)
    texts = []
    for number, port in enumerate(ports):
        cluster = CLUSTER.read_text().replace("0.0.0.0:6222", f"127.0.0.1:{port}")
        cluster = with_certificates(cluster, tmp_path)
        cluster = cluster.replace('"/data', f'"{tmp_path / f"store-{number}"}')
        for other, other_port in enumerate(ports):
            cluster = cluster.replace(
                f"allotment-nats-{other}.allotment-nats:6222", f"127.0.0.1:{other_port}"
            )
        single = on_loopback(SINGLE.read_text(), tmp_path / f"store-{number}")
        (tmp_path / f"include-{number}.conf").write_text(single)
        texts.append(cluster.replace('include "nats.conf"', f'include "include-{number}.conf"'))
    return texts


def by_watcher(folder: Path) -> dict[str, Any]:
    """How to connect as the watcher, who may append facts."""
    return {
        "credentials": credentials_of(folder, "watcher"),
        "inbox_prefix": inbox_of("watcher"),
    }


def pid_of(folder: Path, number: int) -> int:
    return int((folder / f"{number}.pid").read_text())


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
