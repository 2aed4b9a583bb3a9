"""The archiver's settings."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.adapters.archive import store
from allotment.adapters.service.settings import CommonSettings


class Keeps(msgspec.Struct, frozen=True, kw_only=True):
    """What stays in NATS, and for how long in the archive. What stays satisfies all of these."""

    live_segments: int = 2
    live_bytes: int = 0
    live_days: int = 0
    archive_days: int = 0
    drops: bool = True


class ArchiverSettings(CommonSettings, frozen=True, kw_only=True):
    """What the archiver needs in addition to what every service does."""

    archive: Annotated[
        str,
        Meta(
            description="where closed segments of the log go: a directory, or s3://BUCKET/PREFIX"
            " with the usual AWS_ variables",
            examples=["/var/lib/allotment/archive", "s3://backups/allotment"],
        ),
    ]
    work_dir: Annotated[
        Path | None,
        Meta(description="directory for the file that is being written; the system's by default"),
    ] = None
    drop: Annotated[
        bool,
        Meta(description="let archived segments leave NATS; if false, the log grows for ever"),
    ] = True
    keep_live_segments: Annotated[
        int, Meta(description="so many of the newest closed segments stay in NATS", ge=1)
    ] = 2
    keep_live_bytes: Annotated[
        int,
        Meta(description="as much of the log stays in NATS, if there is as much; 0: no rule", ge=0),
    ] = 0
    keep_live_days: Annotated[
        int,
        Meta(description="segments closed within so many days stay in NATS; 0: no rule", ge=0),
    ] = 0
    keep_archive_days: Annotated[
        int,
        Meta(
            description="delete archived segments so many days after they were written, the oldest"
            " first; 0: never",
            ge=0,
        ),
    ] = 0

    def __post_init__(self) -> None:
        """Raises ValueError."""
        store.normal(self.archive)

    @property
    def keeps(self) -> Keeps:
        return Keeps(
            live_segments=self.keep_live_segments,
            live_bytes=self.keep_live_bytes,
            live_days=self.keep_live_days,
            archive_days=self.keep_archive_days,
            drops=self.drop,
        )
