"""Who used how much, and for how long: a journal's rows, summed up over a stretch of time."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from allotment.core.replay.journal.reader import Journal
from allotment.core.replay.journal.segment import charging


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """What the pods of one namespace, or on one node, held: amounts times milliseconds.

    A device is a card or a part of one that a container held. Memory is what was asked for; of an
    instance that has more, the rest is nobody's use. `counted_ms` are extended resources, by name.
    """

    name: str
    pods: int
    device_ms: int
    memory_mib_ms: int
    cpu_milli_ms: int
    counted_ms: dict[str, int] = {}


class _Held(NamedTuple):
    """Bookings that reach into the time, and how long they did."""

    at: NDArray[Any]
    ms: NDArray[Any]


def usage(journal: Journal, from_ms: int, to_ms: int, *, by_node: bool = False) -> list[Usage]:
    """What was held between two moments, by namespace or by node, in the order of names."""
    entries, names = journal.entries, journal.names
    held = _held(entries["pod"], entries["node"], entries["at_ms"], from_ms, to_ms)
    booked = entries[held.at]
    spaces = np.array([space for space, _ in names.pods], np.int64)
    keys = booked["node"] if by_node else spaces[booked["pod"]]
    pods, device_ms, memory_mib_ms, cpu_milli_ms = (Counter[int]() for _ in range(4))
    for key, _ in np.unique(np.stack((keys, booked["pod"]), 1), axis=0).tolist():
        pods[key] += 1
    counted_ms: dict[int, Counter[str]] = {}
    for key, number, ms in _sums(keys, booked["taken"], held.ms):
        taken = names.taken[number]
        cpu_milli_ms[key] += taken.cpu_milli * ms
        counted = counted_ms.setdefault(key, Counter())
        for resource, amount in taken.extended:
            counted[resource] += amount * ms
    counts = booked["holdings"]
    shares = charging(journal.shares_of(held.at))
    for key, number, ms in _sums(np.repeat(keys, counts), shares, np.repeat(held.ms, counts)):
        device_ms[key] += ms
        memory_mib_ms[key] += names.shares[number].memory_mib * ms
    words = names.nodes if by_node else names.spaces
    found = [
        Usage(
            words[key],
            pods[key],
            device_ms[key],
            memory_mib_ms[key],
            cpu_milli_ms[key],
            dict(sorted(counted_ms[key].items())),
        )
        for key in pods
    ]
    return sorted(found, key=lambda used: used.name)


def _held(
    pods: NDArray[Any], nodes: NDArray[Any], at_ms: NDArray[Any], from_ms: int, to_ms: int
) -> _Held:
    """Each booking lasts until the next entry of its pod, or still does."""
    order = np.argsort(pods, kind="stable")
    ends = np.full(len(order), to_ms, np.int64)
    same = pods[order][1:] == pods[order][:-1]
    ends[order[:-1][same]] = at_ms[order[1:][same]]
    ms = np.minimum(ends, to_ms) - np.maximum(at_ms, from_ms)
    at = np.flatnonzero((nodes >= 0) & (ms > 0))
    return _Held(at, ms[at])


def _sums(
    keys: NDArray[Any], numbers: NDArray[Any], ms: NDArray[Any]
) -> list[tuple[int, int, int]]:
    """The milliseconds of every pair of key and number: there are few, and the rest of the
    arithmetic is done in integers without bounds.
    """
    pairs, which = np.unique(np.stack((keys, numbers), 1), axis=0, return_inverse=True)
    sums = np.zeros(len(pairs), np.int64)
    np.add.at(sums, which.reshape(-1), ms)
    return [
        (key, number, total)
        for (key, number), total in zip(pairs.tolist(), sums.tolist(), strict=True)
    ]
