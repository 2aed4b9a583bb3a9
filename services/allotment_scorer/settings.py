"""The scorer's settings."""

from typing import Annotated

from msgspec import Meta

from allotment.adapters.service.settings import CommonSettings


class ScorerSettings(CommonSettings, frozen=True, kw_only=True):
    """What the scorer needs in addition to what every service does."""

    card_metrics: Annotated[
        bool,
        Meta(
            description="gauges of every card and of every pod on it at /metrics; off: none of"
            " them, for clusters where reading so many takes too long"
        ),
    ] = True
