"""Ids of traces and spans. They follow from what a trace is about, never from dice, so that a
service, a command and an annotation that name the same thing name the same trace.

A pod's trace is its uid; a cycle's, which the services make while they work on a batch, is a hash
of the cycle's name.
"""

import hashlib
import re

_POD = "pod"


def trace_id(uid: str) -> str:
    """A pod's trace: its uid without dashes; for a uid that is no UUID, a hash of it."""
    bare = uid.replace("-", "").lower()
    if re.fullmatch(r"[0-9a-f]{32}", bare) and int(bare, 16):
        return bare
    return hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()


def span_id(uid: str, *of: object) -> str:
    """The id of one span of a pod's trace: 8 bytes of a hash, never all zero."""
    text = "/".join((uid, *map(str, of)))
    found = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return found if int(found, 16) else "0" * 15 + "1"


def root_id(uid: str) -> str:
    """The id of the span that covers a pod's life."""
    return span_id(uid, _POD)


def cycle_ids(cycle: str) -> tuple[str, str]:
    """The trace of a cycle, and the span with which it begins."""
    text = f"cycle/{cycle}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), span_id(text)


def traceparent(uid: str) -> str:
    """The W3C trace context with which the application in a pod continues the pod's trace."""
    return f"00-{trace_id(uid)}-{root_id(uid)}-01"
