"""The filter's settings."""

from typing import Annotated

from msgspec import Meta

from allotment.adapters.service.settings import CommonSettings
from allotment.core.placement.cycle import BATCH_MAX


class FilterSettings(CommonSettings, frozen=True, kw_only=True):
    """The filter's settings in addition to those that every service has."""

    batch_max: Annotated[int, Meta(description="most pods in one cycle", ge=1, le=BATCH_MAX)] = (
        BATCH_MAX
    )
    cycle_deadline_ms: Annotated[
        int,
        Meta(description="a cycle without an answer for so long is issued again", ge=50, le=60_000),
    ] = 1500
