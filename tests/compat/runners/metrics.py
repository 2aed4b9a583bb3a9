"""Volcano's gauges about cards, read off the fold as a scrape would."""

from allotment.core.metrics.cards import volcano_gauges
from tests.compat.runners.world import World


def gauges(world: World) -> dict[str, dict[str, int]]:
    """Values by gauge and by label values, joined by ``|`` as the vectors write them."""
    return {
        gauge.name: {
            "|".join(labels): value // gauge.divisor for labels, value in gauge.rows.items()
        }
        for gauge in volcano_gauges(world.state)
    }
