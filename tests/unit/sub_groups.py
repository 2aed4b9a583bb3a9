"""A PodGroup in parts, and its pods."""

from typing import Any

from allotment_proto.facts import Expression, SubGroups
from tests import build
from tests.unit.rounds_world import World


def halves(size: int, least: int) -> tuple[SubGroups, ...]:
    """As a Job's `partitionPolicy` becomes them."""
    return (SubGroups("w", size, least, (Expression("role", "In", ("w",)),), ("part",)),)


def in_parts(world: World, parts: str, mib: int = 16_000, **changes: Any) -> list[str]:
    """A pod that fills a card for each letter of `parts`, in the partition that the letter says."""
    for number, part in enumerate(parts):
        world.tell(
            build.pod(
                f"a-w-{number}",
                build.request(build.wants(mib, 0)),
                name=f"a-w-{number}",
                group="default/a",
                labels=(("part", part), ("role", "w")),
                **changes,
            )
        )
    return [f"a-w-{number}" for number in range(len(parts))]
