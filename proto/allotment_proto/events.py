"""The allocation log's vocabulary: past tense, complete, never changed once written.

A stored record is one `Envelope`: who appended it, when, and one or more events that take effect
together in order. Its position in the stream is its sequence.

* facts (watcher): `NodeObserved`, `NodeGone`, `PodObserved`, `PodGone`, `GroupObserved`,
  `GroupGone`, `QueueObserved`, `QueueGone`, `PriorityClassObserved`, `PriorityClassGone`,
  `PolicyLoaded`, `MixLearned`, `DevicesConfigured`, `ConfigurationChecked`, `TimePassed`
* decisions (binder, by compare-and-append): `Decided`
* outcomes (binder): `Bound`, `BindFailed`, `Evicted`, `Corrected`
* the log itself (binder): `SegmentClosing`, `CheckpointPart`, `SegmentClosed`, `LevelRaised`;
  (archiver): `SegmentArchived`, `SegmentsDropped`

They are defined in `observed`, `decided` and `segments`; here is what a record can hold.
`registry` has a row for each.
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
    QuotaShort,
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
    Ending,
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
from allotment_proto.segments import (
    CheckpointPart,
    LevelRaised,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
)

__all__ = [
    "DEVICE_CONFIG",
    "ENVELOPE_VERSION",
    "SCHEDULER_CONFIG",
    "Admission",
    "BindFailed",
    "Bound",
    "CheckpointPart",
    "ConfigurationChecked",
    "Corrected",
    "Decided",
    "DevicesConfigured",
    "Dropped",
    "Ending",
    "Envelope",
    "Event",
    "Evicted",
    "Eviction",
    "GroupGone",
    "GroupObserved",
    "Held",
    "LevelRaised",
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
    "QuotaShort",
    "Refusal",
    "RunnerUp",
    "SegmentArchived",
    "SegmentClosed",
    "SegmentClosing",
    "SegmentsDropped",
    "Short",
    "StageTime",
    "TimePassed",
]

ENVELOPE_VERSION = 1
"""The version of records that this release writes, and the newest that it reads."""

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
    | SegmentClosing
    | CheckpointPart
    | SegmentClosed
    | SegmentArchived
    | SegmentsDropped
    | LevelRaised
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of the log. `by` is the appending service and instance, `at_ms` its Unix time.

    `chain`, of a decision, is the head of the chain at the decision's basis.
    """

    v: Int64 = ENVELOPE_VERSION
    at_ms: Int64
    by: str
    events: tuple[Event, ...]
    chain: str | msgspec.UnsetType = msgspec.UNSET
