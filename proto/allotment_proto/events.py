"""The allocation log's vocabulary: past tense, complete, never changed once written.

A stored record is one `Envelope`: who appended it, when, and one or more events that take effect
together in order. Its position in the stream is its sequence.

* facts (watcher): `NodeObserved`, `NodeGone`, `PodObserved`, `PodGone`, `GroupObserved`,
  `GroupGone`, `QueueObserved`, `QueueGone`, `PriorityClassObserved`, `PriorityClassGone`,
  `PolicyLoaded`, `MixLearned`, `DevicesConfigured`, `ConfigurationChecked`, `TimePassed`
* decisions (binder, by compare-and-append): `Decided`
* outcomes (binder): `Bound`, `BindFailed`, `Evicted`, `Corrected`

They are defined in `observed` and `decided`; here is what a record can hold.
"""

import msgspec

from allotment_proto.decided import (
    Admission,
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Dropped,
    Evicted,
    Eviction,
    Held,
    Nomination,
    Placement,
    Refusal,
    RunnerUp,
    Short,
    StageTime,
)
from allotment_proto.facts import Int64
from allotment_proto.observed import (
    DEVICE_CONFIG,
    SCHEDULER_CONFIG,
    ConfigurationChecked,
    DevicesConfigured,
    GroupGone,
    GroupObserved,
    MixLearned,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    TimePassed,
)

__all__ = [
    "DEVICE_CONFIG",
    "ENVELOPE_VERSION",
    "SCHEDULER_CONFIG",
    "SINCE_V2",
    "SINCE_V3",
    "SINCE_V4",
    "SINCE_V5",
    "Admission",
    "BindFailed",
    "Bound",
    "ConfigurationChecked",
    "Corrected",
    "Decided",
    "DevicesConfigured",
    "Dropped",
    "Envelope",
    "Event",
    "Evicted",
    "Eviction",
    "GroupGone",
    "GroupObserved",
    "Held",
    "MixLearned",
    "NodeGone",
    "NodeObserved",
    "Nomination",
    "Placement",
    "PodGone",
    "PodObserved",
    "PolicyLoaded",
    "PriorityClassGone",
    "PriorityClassObserved",
    "QueueGone",
    "QueueObserved",
    "Refusal",
    "RunnerUp",
    "Short",
    "StageTime",
    "TimePassed",
    "version_of",
]

ENVELOPE_VERSION = 5
"""The newest version that this release reads; a record is written with `version_of` its events."""

Event = (
    NodeObserved
    | NodeGone
    | PodObserved
    | PodGone
    | PolicyLoaded
    | MixLearned
    | DevicesConfigured
    | ConfigurationChecked
    | GroupObserved
    | GroupGone
    | QueueObserved
    | QueueGone
    | PriorityClassObserved
    | PriorityClassGone
    | TimePassed
    | Decided
    | Bound
    | BindFailed
    | Evicted
    | Corrected
)
SINCE_V2 = (MixLearned,)
"""Events that releases which read version 1 only do not know."""
SINCE_V3 = (
    DevicesConfigured,
    GroupObserved,
    GroupGone,
    QueueObserved,
    QueueGone,
    PriorityClassObserved,
    PriorityClassGone,
    Evicted,
)
SINCE_V4 = (TimePassed, ConfigurationChecked)
SINCE_V5 = (Corrected,)


_SINCE: dict[type[object], int] = {
    kind: version
    for version, kinds in ((2, SINCE_V2), (3, SINCE_V3), (4, SINCE_V4), (5, SINCE_V5))
    for kind in kinds
}


def version_of(events: tuple[Event, ...]) -> int:
    """The lowest version that a record of these events can have."""
    return max(map(_needed, events), default=1)


def _needed(event: Event) -> int:
    if _has_v5(event):
        return 5
    return 3 if _has_v3(event) else _SINCE.get(type(event), 1)


def _has_v3(event: Event) -> bool:
    """Whether a decision means something else to a release that passes over its newer fields."""
    return isinstance(event, Decided) and bool(
        event.wholes or event.admissions or event.evictions or event.holds or event.nominations
    )


def _has_v5(event: Event) -> bool:
    """Whether an event asks for more, or says more of order and quota, than a release knows that
    passes over its newer fields.
    """
    match event:
        case PodObserved(request=request, queue=queue, class_priority=class_priority):
            more = request.selection.counted or queue or event.local_claims
            return bool(more) or class_priority is not None
        case Decided(placements=placements):
            return any(placement.volumes for placement in placements)
        case GroupObserved(owner=owner):
            return owner is not None
        case _:
            return False


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of the log. `by` is the appending service and instance, `at_ms` its Unix time."""

    v: Int64
    at_ms: Int64
    by: str
    events: tuple[Event, ...]
