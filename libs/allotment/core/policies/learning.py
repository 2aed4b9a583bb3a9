"""What is learned from pods for policies that look ahead, and when it is worth saying again."""

from collections.abc import Callable, Mapping

from allotment.core.policies.typical import PPM, Mix, exact_mix, mean_mix
from allotment_proto.facts import PodRequest

LEARNERS: dict[str, Callable[[Mapping[PodRequest, int], int], Mix]] = {
    "fgd": exact_mix,
    "headroom": mean_mix,
}
"""Device policy → how it makes a mix from (how many pods asked for what, a usual card's MiB)."""

MOVED_PPM = PPM // 20
"""A mix is said again when some shape's share moved by this much, or a shape came or left that has
it."""


def learn(policy: str, pods: Mapping[PodRequest, int], card_mib: int) -> Mix:
    """The mix for a device policy; empty for one that does not look ahead."""
    learner = LEARNERS.get(policy)
    return learner(pods, card_mib) if learner is not None else ()


def has_moved(known: Mix, now: Mix) -> bool:
    """Whether a mix differs so much from the one that is known that decisions should follow it."""
    before = {shape.request: shape.weight_ppm for shape in known}
    after = {shape.request: shape.weight_ppm for shape in now}
    return any(
        abs(after.get(request, 0) - before.get(request, 0)) >= MOVED_PPM
        for request in before.keys() | after.keys()
    )
