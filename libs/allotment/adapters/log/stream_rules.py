"""What the log's stream must be like, as rules over the configuration the server echoes.

Asking for a setting proves nothing: old servers drop what they do not know, and an existing stream
keeps what it was once given. So a new stream and a found one are judged by the same table.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from allotment.core.logport import Setting

DUPLICATE_WINDOW_S = 120
DUPLICATE_WINDOW_S_MIN = 60
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""The largest record: as much as the shipped servers take in one message. What a server itself
stores (its answers may be larger) is bounded by it as well."""
FIRST_SEQ_MAX = 1 << 48
"""A restored log may begin later than with 1; sequences must last for centuries."""
MESSAGE_BYTES_ADVISED = 1024 * 1024


class _Rule(msgspec.Struct, frozen=True):
    name: str
    holds: Callable[[Any], bool]
    wanted: str
    when_absent: Any


def _unlimited(value: Any) -> bool:
    return value in (-1, 0)


def _off(value: Any) -> bool:
    return not value


def _is(wanted: Any) -> Callable[[Any], bool]:
    return lambda value: bool(value == wanted)


def _harmless(value: Any) -> bool:
    return not value or not any(value.values())


RULES = (
    _Rule("storage", _is("file"), "file", ""),
    _Rule("retention", _is("limits"), "limits", ""),
    _Rule("discard", _is("new"), "new (full means stop, not forget)", ""),
    _Rule("deny_delete", _is(True), "true", False),
    _Rule("max_age", _unlimited, "0 (no limit)", 0),
    _Rule("max_msgs", _unlimited, "-1 (no limit: the log would end there)", -1),
    _Rule("max_msgs_per_subject", _unlimited, "-1 (no limit: it would drop history)", -1),
    _Rule("discard_new_per_subject", _off, "false", False),
    _Rule("max_consumers", _unlimited, "-1 (no limit: every follower is one)", -1),
    _Rule(
        "max_msg_size",
        lambda value: 0 < value <= MESSAGE_BYTES_MAX,
        f"{MESSAGE_BYTES_MAX} or less",
        -1,
    ),
    _Rule("first_seq", lambda value: value <= FIRST_SEQ_MAX, f"{FIRST_SEQ_MAX} or less", 0),
    _Rule("persist_mode", lambda value: value != "async", "default (async loses appends)", ""),
    _Rule("no_ack", _off, "false", False),
    _Rule("sealed", _off, "false", False),
    _Rule("allow_rollup_hdrs", _off, "false (a rollup drops history)", False),
    _Rule("allow_msg_ttl", _off, "false (a TTL drops history)", False),
    _Rule("allow_msg_counter", _off, "false", False),
    _Rule("allow_msg_schedules", _off, "false (a record would be written later, or again)", False),
    _Rule("allow_atomic", _off, "false (nothing appends batches)", False),
    _Rule("allow_batched", _off, "false (nothing appends batches)", False),
    _Rule("subject_delete_marker_ttl", _off, "0 (no markers)", 0),
    _Rule("allow_direct", _off, "false (a copy that is behind would answer)", False),
    _Rule("mirror_direct", _off, "false", False),
    _Rule("republish", _off, "none", None),
    _Rule("mirror", _off, "none", None),
    _Rule("sources", _off, "none", None),
    _Rule("subject_transform", _off, "none", None),
    _Rule("consumer_limits", _harmless, "none that a follower could meet", None),
    _Rule(
        "duplicate_window",
        lambda value: value >= DUPLICATE_WINDOW_S_MIN * 1_000_000_000,
        f"{DUPLICATE_WINDOW_S_MIN} s or more (a resend must be recognised)",
        0,
    ),
)


def wanted_config(
    stream: str, subjects: tuple[str, ...], *, replicas: int, max_bytes: int, first_seq: int = 1
) -> dict[str, Any]:
    """The configuration a new log is made with; it begins later where it is restored.

    Not compressed: after a crash NATS 2.15.1 often cannot cut a compressed block back to where its
    Raft log continues ("s2: corrupt input"), and that server's copy stays behind until a restart;
    where all servers crash twice, the whole log can be lost. The archive compresses what stays.
    """
    begins = {} if first_seq == 1 else {"first_seq": first_seq}
    return {
        **begins,
        "name": stream,
        "subjects": list(subjects),
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_bytes": max_bytes,
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": -1,
        "max_msg_size": MESSAGE_BYTES_MAX,
        "num_replicas": replicas,
        "duplicate_window": DUPLICATE_WINDOW_S * 1_000_000_000,
        "deny_delete": True,
        "allow_direct": False,
        "compression": "none",
    }


def check_stream(
    config: dict[str, Any], subjects: tuple[str, ...], *, replicas: int
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """What is dangerous about a stream, and what is merely worth a warning."""
    wrong = [
        Setting(rule.name, str(found), rule.wanted)
        for rule in RULES
        if not rule.holds(found := config.get(rule.name, rule.when_absent))
    ]
    held = tuple(config.get("subjects") or ())
    if set(held) != set(subjects):
        wrong.append(Setting("subjects", ", ".join(held), ", ".join(subjects)))
    if (found := config.get("num_replicas", 1)) < replicas:
        wrong.append(Setting("num_replicas", str(found), f"{replicas} or more"))
    warnings = []
    size = config.get("max_msg_size", -1)
    if 0 < size < MESSAGE_BYTES_ADVISED:
        warnings.append(f"max_msg_size is {size}: large batches will be refused")
    if config.get("deny_purge"):
        warnings.append("deny_purge is true: archived segments cannot leave the log")
    if config.get("compression", "none") != "none" and config.get("num_replicas", 1) > 1:
        warnings.append("compression is on: a copy may stay behind after a crash of its server")
    return tuple(wrong), tuple(warnings)
