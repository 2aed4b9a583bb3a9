"""What policies that look ahead learn from pods, and when a change is worth recording."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from allotment.core.placement.policies.typical import PPM, Mix, root_mix
from allotment_proto.facts import PodRequest

LEARNERS: dict[str, Callable[[Mapping[PodRequest, int], int], Mix]] = {
    "fill-ahead": root_mix,
}
"""Device policy → how it makes a mix from (how many pods have which request, a usual card's
MiB).
"""

_MOVED_PPM = PPM // 20
"""A mix is recorded again when some size's share of the pods moved by this much, …"""
_MOVED_PART = 8
"""… or its mean CPU or memory by an eighth, or when its worth changed."""


class _Size(NamedTuple):
    """A mix's average of the pods that want equal cards."""

    weight_ppm: int
    cpu_milli: int
    memory_bytes: int
    worth_milli: int


def learn(policy: str, pods: Mapping[PodRequest, int], card_mib: int) -> Mix:
    """The mix for a device policy; empty for one that does not look ahead."""
    learner = LEARNERS.get(policy)
    return learner(pods, card_mib) if learner is not None else ()


def has_moved(known: Mix, now: Mix) -> bool:
    """Whether a mix differs so much from the known one that decisions should follow it.

    A new mix costs every reader its caches, so small changes do not count.
    """
    before, after = _sizes(known), _sizes(now)
    nothing = _Size(0, 0, 0, 0)
    for key in before.keys() | after.keys():
        old, new = before.get(key, nothing), after.get(key, nothing)
        if abs(new.weight_ppm - old.weight_ppm) >= _MOVED_PPM:
            return True
        if old.weight_ppm and new.weight_ppm and _differ(old, new):
            return True
    return False


def _differ(old: _Size, new: _Size) -> bool:
    return (
        old.worth_milli != new.worth_milli
        or abs(new.cpu_milli - old.cpu_milli) * _MOVED_PART > old.cpu_milli
        or abs(new.memory_bytes - old.memory_bytes) * _MOVED_PART > old.memory_bytes
    )


def _sizes(mix: Mix) -> dict[tuple[object, ...], _Size]:
    sums: dict[tuple[object, ...], list[int]] = {}
    for shape in mix:
        total = sums.setdefault((shape.request.devices, shape.request.selection), [0, 0, 0, 0])
        total[0] += shape.weight_ppm
        total[1] += shape.weight_ppm * shape.request.cpu_milli
        total[2] += shape.weight_ppm * shape.request.memory_bytes
        total[3] = shape.worth_milli
    return {
        key: _Size(ppm, cpu // max(ppm, 1), memory // max(ppm, 1), worth)
        for key, (ppm, cpu, memory, worth) in sums.items()
    }
