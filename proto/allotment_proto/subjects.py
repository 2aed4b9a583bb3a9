"""Every NATS subject, built here and nowhere else.

A name that becomes one subject token is percent-escaped, because node names hold dots and a token
must not.
"""

STREAM = "ALLOTMENT_LOG"
LOG_ALL = "allot.log.>"
CONFIG = "allot.log.config"
TIME = "allot.log.time"
DECISION = "allot.log.decision"
OUTCOME = "allot.log.outcome"
FACTS = "allot.log.facts"
"""Several facts that gathered while an append was in flight, in one record."""

SEGMENT = "allot.log.segment"
"""Where a segment ends, and the parts of its checkpoint."""
CHECKPOINT = "allot.log.checkpoint"
"""That a segment is closed and its checkpoint complete: the newest is the last on this subject."""
ARCHIVE = "allot.log.archive"

FEASIBLE = "allot.pipe.feasible"
PROPOSAL = "allot.pipe.proposal"
SETTLED = "allot.pipe.settled"
PIPELINE = (FEASIBLE, PROPOSAL, SETTLED)
"""What filter, scorer and binder say to each other."""
LIST_AGAIN = "allot.ask.list"
"""Asks the active watcher to list pods and nodes again. Nothing in the message is trusted, and all
that follows is what the API server says. It is ignored while a list is under way, nor for ten
seconds after one that was asked for was complete."""
CLOSE = "allot.ask.close"
"""Asks the active binder to close the open segment of the log."""
RAISE = "allot.ask.raise"
"""Asks the active binder to raise the level of the log's records to its own release's."""

NODE = "allot.log.node."
POD = "allot.log.pod."
GROUP = "allot.log.group."
QUEUE = "allot.log.queue."
CLASS = "allot.log.class."
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def escape(name: str) -> str:
    """One subject token for any text: bytes outside ``[A-Za-z0-9_-]`` become ``%XX`` of UTF-8."""
    if not name:
        return "%"
    raw = name.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in raw)


def node(name: str) -> str:
    """The subject of one node's facts."""
    return NODE + escape(name)


def pod(uid: str) -> str:
    """The subject of one pod's facts."""
    return POD + escape(uid)


def group(namespace: str, name: str) -> str:
    """The subject of one PodGroup's facts."""
    return f"{GROUP}{escape(namespace)}.{escape(name)}"


def queue(name: str) -> str:
    """The subject of one Queue's facts."""
    return QUEUE + escape(name)


def priority_class(name: str) -> str:
    """The subject of one PriorityClass's facts."""
    return CLASS + escape(name)
