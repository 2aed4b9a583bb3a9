"""Every event of the log, one row each: on which subject it goes, and who appends it.

The codec, the schema, the watcher, the simulation and the command line read this table. What folds
an event and what words it are tables of the core with a row for each of these; all of them are
held against `Event` at import, so that an event which is forgotten somewhere stops every process at
once instead of one of them at three in the morning.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, get_args

from allotment_proto import subjects
from allotment_proto.events import (
    BindFailed,
    Bound,
    CheckpointPart,
    ConfigurationChecked,
    Corrected,
    Decided,
    DevicesConfigured,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
    LevelRaised,
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
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
    TimePassed,
)

WATCHER = "watcher"
BINDER = "binder"
ARCHIVER = "archiver"


class Topic(NamedTuple):
    """A subject, or the subjects of one kind of object: who appends there, and for which object.

    `parameters` name the tokens of `address` that vary, each with its meaning.
    """

    key: str
    address: str
    sender: str
    subject: Callable[[Any], str]
    """From an event to its subject."""
    parameters: tuple[tuple[str, str], ...] = ()


def _fixed(key: str, subject: str, sender: str) -> Topic:
    return Topic(key, subject, sender, lambda _: subject)


NODE = Topic(
    "logNode",
    subjects.NODE + "{node}",
    WATCHER,
    lambda event: subjects.node(event.name),
    (("node", "the node's name, percent-escaped into one token"),),
)
POD = Topic(
    "logPod",
    subjects.POD + "{uid}",
    WATCHER,
    lambda event: subjects.pod(event.uid),
    (("uid", "the pod's uid, percent-escaped into one token"),),
)
GROUP = Topic(
    "logGroup",
    subjects.GROUP + "{namespace}.{group}",
    WATCHER,
    lambda event: subjects.group(event.namespace, event.name),
    (
        ("namespace", "the PodGroup's namespace, percent-escaped into one token"),
        ("group", "its name, likewise"),
    ),
)
QUEUE = Topic(
    "logQueue",
    subjects.QUEUE + "{queue}",
    WATCHER,
    lambda event: subjects.queue(event.name),
    (("queue", "the queue's name, percent-escaped into one token"),),
)
CLASS = Topic(
    "logClass",
    subjects.CLASS + "{class}",
    WATCHER,
    lambda event: subjects.priority_class(event.name),
    (("class", "the PriorityClass's name, percent-escaped into one token"),),
)
CONFIG = _fixed("logConfig", subjects.CONFIG, WATCHER)
TIME = _fixed("logTime", subjects.TIME, WATCHER)
DECISION = _fixed("logDecision", subjects.DECISION, BINDER)
OUTCOME = _fixed("logOutcome", subjects.OUTCOME, BINDER)
SEGMENT = _fixed("logSegment", subjects.SEGMENT, BINDER)
CHECKPOINT = _fixed("logCheckpoint", subjects.CHECKPOINT, BINDER)
ARCHIVE = _fixed("logArchive", subjects.ARCHIVE, ARCHIVER)


class Kind(NamedTuple):
    """One event: its struct, and where it goes."""

    struct: type
    topic: Topic


KINDS = (
    Kind(NodeObserved, NODE),
    Kind(NodeGone, NODE),
    Kind(PodObserved, POD),
    Kind(PodGone, POD),
    Kind(GroupObserved, GROUP),
    Kind(GroupGone, GROUP),
    Kind(QueueObserved, QUEUE),
    Kind(QueueGone, QUEUE),
    Kind(PriorityClassObserved, CLASS),
    Kind(PriorityClassGone, CLASS),
    Kind(PolicyLoaded, CONFIG),
    Kind(MixLearned, CONFIG),
    Kind(DevicesConfigured, CONFIG),
    Kind(ConfigurationChecked, CONFIG),
    Kind(TimePassed, TIME),
    Kind(Decided, DECISION),
    Kind(Bound, OUTCOME),
    Kind(BindFailed, OUTCOME),
    Kind(Evicted, OUTCOME),
    Kind(Corrected, OUTCOME),
    Kind(SegmentClosing, SEGMENT),
    Kind(CheckpointPart, SEGMENT),
    Kind(LevelRaised, SEGMENT),
    Kind(SegmentClosed, CHECKPOINT),
    Kind(SegmentArchived, ARCHIVE),
    Kind(SegmentsDropped, ARCHIVE),
)
KIND: dict[type, Kind] = {kind.struct: kind for kind in KINDS}
TOPICS = tuple(dict.fromkeys(kind.topic for kind in KINDS))


def check_complete(table: str, types: Collection[type]) -> None:
    """Raises TypeError if a table has not exactly one row for each event of the log."""
    missing = [kind.__name__ for kind in get_args(Event) if kind not in types]
    unknown = [kind.__name__ for kind in types if kind not in get_args(Event)]
    if missing or unknown:
        raise TypeError(f"{table}: no row for {missing}, rows for what is no event: {unknown}")


check_complete("allotment_proto.registry.KINDS", KIND)


def subject_of(event: Event) -> str:
    """The subject of a record with this event alone."""
    return KIND[type(event)].topic.subject(event)


def subject_of_facts(facts: tuple[Event, ...]) -> str:
    """The subject of a record of the watcher's: several facts that gathered share one. Raises
    TypeError for what is not the watcher's.
    """
    for fact in facts:
        if KIND[type(fact)].topic.sender != WATCHER:
            raise TypeError(f"the watcher does not append {type(fact).__name__}")
    return subjects.FACTS if len(facts) > 1 else subject_of(facts[0])
