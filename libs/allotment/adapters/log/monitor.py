"""The one dangerous setting that clients cannot see: whether the server syncs before it
acknowledges.

Only the server's HTTP monitoring endpoint reports it. An unsynced single server that loses power
loses acknowledged decisions, a young stream altogether.
"""

import aiohttp
import msgspec

from allotment.core.logport import Setting
from allotment_proto.codec import UNREADABLE


class _JetStreamConfig(msgspec.Struct, frozen=True):
    sync_interval: int = 0
    sync_always: bool = False


class _JetStreamStatus(msgspec.Struct, frozen=True):
    config: _JetStreamConfig = _JetStreamConfig()


class _Varz(msgspec.Struct, frozen=True):
    jetstream: _JetStreamStatus = _JetStreamStatus()


async def check_synced(
    monitor_url: str | None, *, replicas: int, allow_unsynced: bool, timeout_s: float = 2.0
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Dangerous settings, and warnings, about syncing.

    Without a monitoring address nothing is checked: no client reaches the shipped servers' own.
    One server that does not sync every append is dangerous unless `allow_unsynced`; with replicas
    it is a warning, because only a common power failure loses anything.
    """
    if monitor_url is None:
        return (), ()
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{monitor_url}/varz") as response,
        ):
            varz = msgspec.json.decode(await response.read(), type=_Varz)
    except (aiohttp.ClientError, TimeoutError, *UNREADABLE) as error:
        return (), (f"sync_interval cannot be read at {monitor_url}: {error!r}",)
    config = varz.jetstream.config
    if config.sync_always:
        return (), ()
    found = f"{config.sync_interval // 1_000_000_000} s"
    if replicas > 1 or allow_unsynced:
        return (), (f"sync_interval is {found}: a power failure loses acknowledged appends",)
    return (Setting("sync_interval", found, "always (or start with unsynced logs allowed)"),), ()
