"""Every NATS subject, built and parsed here and nowhere else.

A name that becomes one subject token is percent-escaped, because node names hold dots and a token
must not: `escape` and `unescape` are inverse for any text.
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


def unescape(token: str) -> str:
    """The inverse of `escape`. Raises ValueError for a token that `escape` cannot have made."""
    if token == "%":
        return ""
    out, i = bytearray(), 0
    while i < len(token):
        if token[i] == "%":
            out.append(int(token[i + 1 : i + 3], 16))
            i += 3
        else:
            out.append(ord(token[i]))
            i += 1
    name = out.decode("utf-8", "surrogatepass")
    if escape(name) != token:
        raise ValueError(f"subject token {token!r} is not an escaped name")
    return name


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


def describe(subject: str) -> tuple[str, str]:
    """What a log subject is about: ``("node", name)``, ``("pod", uid)``, ``("decision", "")``, …

    Raises ValueError for a subject that is not part of the log.
    """
    if subject.startswith(NODE):
        return "node", unescape(subject.removeprefix(NODE))
    if subject.startswith(POD):
        return "pod", unescape(subject.removeprefix(POD))
    if subject.startswith(GROUP):
        namespace, dot, name = subject.removeprefix(GROUP).partition(".")
        if dot:
            return "group", f"{unescape(namespace)}/{unescape(name)}"
    if subject.startswith(QUEUE):
        return "queue", unescape(subject.removeprefix(QUEUE))
    if subject.startswith(CLASS):
        return "class", unescape(subject.removeprefix(CLASS))
    kinds = {
        CONFIG: "config",
        TIME: "time",
        DECISION: "decision",
        OUTCOME: "outcome",
        FACTS: "facts",
        SEGMENT: "segment",
        CHECKPOINT: "checkpoint",
        ARCHIVE: "archive",
    }
    if subject in kinds:
        return kinds[subject], ""
    raise ValueError(f"{subject!r} is not a subject of the log (expected {LOG_ALL})")
