"""Node locks of the older protocol: who may take one, and what is written."""

import time
from datetime import datetime

from allotment_cli.compat.file import Vector
from allotment_cli.compat.runners.base import Fields, compared
from allotment_proto.volcano import keys, node_lock


def lock_node(vector: Vector) -> Fields:
    """Whether a node's lock can be taken, by its age or by what stands in the annotation."""
    given = vector.input
    now_s = int(time.time())
    age_minutes = given.get("existing_lock_age_minutes")
    text = given.get("existing_lock")
    if age_minutes is not None:
        text = node_lock.encode_lock(now_s - round(60 * age_minutes))
    is_free = _is_free(text, now_s)
    error = vector.expected.get("error")
    said = {"error": None if is_free else (error or "the node is locked"), "locked": is_free}
    return compared(vector.expected, said)


def ascend_allocate(vector: Vector) -> Fields:
    """What an allocation writes on the node, if nobody else's lock stands there."""
    now_s = int(time.time())
    held = (vector.input.get("node_annotations") or {}).get(keys.LOCK_ASCEND)
    is_free = _is_free(held, now_s)
    locks = bool(vector.input.get("node_lock_enabled")) and is_free
    error = vector.expected.get("error")
    said = {
        "node_annotation_set": keys.LOCK_ASCEND if locks else None,
        "value_format": _format(node_lock.encode_lock(now_s), now_s) if locks else None,
        "error": None if is_free else (error or "the node is locked"),
    }
    return compared(vector.expected, said)


def _is_free(text: str | None, now_s: int) -> bool:
    """Nobody's, or expired. What cannot be read is somebody's."""
    if text is None:
        return True
    held = node_lock.parse_lock(text, "lock")
    return isinstance(held, node_lock.Lock) and held.is_expired(now_s)


def _format(text: str, moment_s: int) -> str | None:
    """The name of a time's format, None if it does not say this moment."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return "RFC3339" if moment.tzinfo is not None and moment.timestamp() == moment_s else None
