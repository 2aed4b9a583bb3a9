"""Pods without a PodGroup, and a policy whose gate they wait at."""

from typing import Any

from allotment_proto.events import (
    PodObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build

GATED = Policy(
    tiers=((PluginUse("priority"), PluginUse("gang")), (PluginUse("capacity"),)),
    actions=("enqueue", "allocate", "preempt", "backfill"),
)
CPU = build.request(cpu_milli=2_000, memory_bytes=0)


def lone(uid: str, **changes: Any) -> PodObserved:
    return build.pod(uid, CPU, **{"queue": "default", **changes})


def queue(name: str, **changes: Any) -> QueueObserved:
    return QueueObserved(**{"uid": f"uid-{name}", "name": name, "rv": 2, **changes})
