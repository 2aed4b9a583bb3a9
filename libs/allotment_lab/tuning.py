"""Which pods arrive in which order: the published experiment's way of loading a cluster.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023, section 6.
"""

from collections.abc import Callable, Sequence
from random import Random

from allotment_lab.workload import Arrival


def shuffled(arrivals: Sequence[Arrival], random: Random) -> list[Arrival]:
    """The pods in an order that depends on their names and the seed alone."""
    out = sorted(arrivals, key=lambda arrival: (arrival.fact.name, arrival.fact.uid))
    random.shuffle(out)
    return out


def tuned(
    arrivals: Sequence[Arrival],
    target_milli: int,
    milli_of: Callable[[Arrival], int],
    random: Random,
) -> list[Arrival]:
    """Pods that together ask for `target_milli`: sampled ones appended, or some left out.

    Raises ValueError if none of the pods asks for a card, as no number of them reaches the target.
    """
    out = list(arrivals)
    total_milli = sum(map(milli_of, out))
    if not total_milli:
        raise ValueError("none of the pods asks for a card")
    while total_milli > target_milli:
        at = random.randrange(len(out))
        total_milli -= milli_of(out[at])
        del out[at]
    copies = 0
    while total_milli < target_milli:
        copies += 1
        again = arrivals[random.randrange(len(arrivals))].renamed(f"-copy-{copies}")
        total_milli += milli_of(again)
        out.append(again)
    return out
