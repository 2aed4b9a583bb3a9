"""The inspector's settings."""

import ipaddress
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from allotment.adapters.archive import store
from allotment.adapters.service.settings import CommonSettings

TOKEN_CHARS_MIN = 16


class InspectorSettings(CommonSettings, frozen=True, kw_only=True):
    """What the inspector needs in addition to what every service does."""

    page_host: Annotated[
        str,
        Meta(description="address on which the pages are served", min_length=1),
    ] = "127.0.0.1"
    page_port: Annotated[
        int, Meta(description="port of the pages; 0 takes a free one", ge=0, le=65535)
    ] = 0
    cluster: Annotated[
        str, Meta(description="name of the cluster, shown on every page", max_length=100)
    ] = ""
    page_names: Annotated[
        tuple[str, ...],
        Meta(
            description="host names under which browsers may ask for the pages, besides"
            " localhost and plain addresses",
            examples=["inspector.example.org"],
        ),
    ] = ()
    page_token_file: Annotated[
        Path | None,
        Meta(
            description="file with the token that browsers have to show; without one everybody who"
            " reaches the address reads everything",
            extra={"readable_file": True},
        ),
    ] = None
    history_mib: Annotated[
        int,
        Meta(
            description="disk space in snapshot_dir for the states of the past that are kept, in"
            " MiB; with less, moments of long ago take longer",
            ge=16,
            le=65536,
        ),
    ] = 512
    archive: Annotated[
        str | None,
        Meta(
            description="where the archive of the log is, if not where the log says: a directory,"
            " or s3://BUCKET/PREFIX with the usual AWS_ variables",
            examples=["/var/lib/allotment/archive", "s3://backups/allotment"],
        ),
    ] = None
    file: Annotated[
        Path | None,
        Meta(
            description="an exported log (allot log -o jsonl) to show in place of a live one",
            extra={"readable_file": True},
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.archive is not None:
            store.normal(self.archive)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
