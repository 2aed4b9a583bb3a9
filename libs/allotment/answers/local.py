"""The running local mode, as `allotment_local` tells of it; imported only where it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allotment_local.status import Addresses


async def status(home: Path) -> dict[str, Any]:
    """What runs at this home: `ready`, `problems`, and every address."""
    from allotment_local import status as local_status

    return await local_status.status(home)


def addresses(home: Path) -> "Addresses":
    """Where the local mode of this home is, as far as its own file says: asks no process."""
    from allotment_local.status import addresses

    return addresses(home)


def is_running(home: Path) -> bool:
    """Whether local mode runs at this home, as far as its own file says: asks no process."""
    return addresses(home).kubeconfig is not None


def kubeconfig(home: Path) -> Path:
    """The kubeconfig of the local mode at this home."""
    from allotment_local.home import Home

    return Home(home).kubeconfig


async def ask_service(address: str) -> dict[str, Any]:
    """What the service at `host:port` says of itself, as in a row of `status`."""
    from allotment_local.probes import probe_http

    answer = await probe_http(address)
    log = f"kubectl logs, or wherever {address} writes its log"
    return {"name": address, **answer.row(), "log": log}
