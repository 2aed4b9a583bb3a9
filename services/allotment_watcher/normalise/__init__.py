"""Kubernetes objects → facts: what decides about scheduling, in our units, and nothing else.

Two observations with equal facts differ only in noise (heartbeats, conditions, managed fields), and
noise never reaches the log. A pod whose request cannot be granted as written becomes a fact with a
problem: it is refused with that text, and no other pod suffers.

`pods` and `nodes` make the facts, `devices` reads what pods ask and hold of cards, `amounts` what
they take of their host. A `Lens` says under which policy and device configuration all that is read.
"""

from allotment_watcher.normalise.amounts import AMOUNT_MAX
from allotment_watcher.normalise.devices import ASKED, ASKED_LABELS
from allotment_watcher.normalise.lens import BUILT_IN, Lens
from allotment_watcher.normalise.nodes import node_fact
from allotment_watcher.normalise.pods import (
    REQUEST_BYTES_MAX,
    pod_fact,
    pod_through,
    unreadable_pod_fact,
)

__all__ = [
    "AMOUNT_MAX",
    "ASKED",
    "ASKED_LABELS",
    "BUILT_IN",
    "REQUEST_BYTES_MAX",
    "Lens",
    "node_fact",
    "pod_fact",
    "pod_through",
    "unreadable_pod_fact",
]
