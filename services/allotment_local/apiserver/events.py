"""Events: one store, two faces. Kept as core/v1 Event, shown as events.k8s.io/v1 on request."""

import re
from dataclasses import replace
from typing import Any

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_request,
    bad_value,
    required,
)
from allotment_local.apiserver.resources import Resource

# core/v1 name -> events.k8s.io/v1 name; what is in neither column has the same name in both.
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_RENAMED_BACK = {new: old for old, new in _RENAMED.items()}
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_NOTE_BYTES_MAX = 1024


def to_events_group(obj: JsonObject) -> JsonObject:
    shown: JsonObject = {_RENAMED.get(key, key): value for key, value in obj.items()}
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown


def from_events_group(obj: JsonObject) -> JsonObject:
    kept: JsonObject = {_RENAMED_BACK.get(key, key): value for key, value in obj.items()}
    kept["apiVersion"] = "v1"
    return kept


def events_group_face(core: Resource) -> Resource:
    """The events.k8s.io/v1 face of the core resource."""
    return replace(
        core, group="events.k8s.io", from_wire=from_events_group, to_wire=to_events_group
    )


def check_micro_time(value: Any, field: str) -> None:
    """Times with microseconds are refused without their six digits, as the real server does."""
    if value is not None and not (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        raise bad_request(
            f"{field}: {value!r} is not a MicroTime; expected six fractional digits, "
            'like "2006-01-02T15:04:05.000000Z"'
        )


def event_errors(event: JsonObject) -> list[FieldError]:
    """What is wrong with a new Event (core/v1 form). ApiError 400 for a malformed MicroTime."""
    check_micro_time(event.get("eventTime"), "eventTime")
    check_micro_time((event.get("series") or {}).get("lastObservedTime"), "series.lastObservedTime")
    about = event.get("involvedObject") or {}
    namespace = event["metadata"]["namespace"]
    errors: list[FieldError] = []
    if about.get("namespace", "") != namespace and (
        about.get("namespace") or namespace != "default"
    ):
        errors.append(
            bad_value(
                "involvedObject.namespace",
                about.get("namespace", ""),
                "does not match event.namespace",
            )
        )
    if event.get("eventTime") is None:
        return errors
    needed = ("reportingComponent", "reportingInstance", "action", "reason")
    errors.extend(required(_RENAMED.get(name, name)) for name in needed if not event.get(name))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(
            bad_value("type", event.get("type", ""), 'has invalid value; use "Normal" or "Warning"')
        )
    if len(event.get("message", "").encode()) > _NOTE_BYTES_MAX:
        errors.append(bad_value("note", "…", f"can have at most {_NOTE_BYTES_MAX} bytes"))
    return errors
