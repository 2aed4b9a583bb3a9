"""What `kubectl get` shows of each kind: columns, and the cells of one object.

A cell is a string or a number; columns of priority 1 appear with `-o wide` only.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from allotment_local.apiserver.errors import JsonObject


class Column(NamedTuple):
    name: str
    cell: Callable[[JsonObject, datetime], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""


_PATH = re.compile(r"(\.\w+)+")


def parse_time(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def human_duration(seconds: int) -> str:
    """Two units at most, coarser with age, as kubectl prints ages."""
    if seconds < 0:
        return "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 365 * 2:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y" + (f"{rest}d" if rest and years < 8 else "")


def _since(text: Any, now: datetime) -> str:
    parsed = parse_time(text) if isinstance(text, str) else None
    return human_duration(int((now - parsed).total_seconds())) if parsed else "<unknown>"


def _at(obj: JsonObject, *path: str) -> Any:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _field(name: str, *path: str, default: Any = "<none>", priority: int = 0) -> Column:
    def cell(obj: JsonObject, _now: datetime) -> Any:
        value = _at(obj, *path)
        return default if value is None or value == "" else value

    return Column(name, cell, priority=priority)


NAME = Column("Name", lambda obj, _now: obj["metadata"]["name"])
AGE = Column("Age", lambda obj, now: _since(obj["metadata"].get("creationTimestamp"), now))
DEFAULT: tuple[Column, ...] = (NAME, AGE)


def _pod_ready(obj: JsonObject, _now: datetime) -> str:
    statuses = _at(obj, "status", "containerStatuses") or []
    total = len(_at(obj, "spec", "containers") or ())
    return f"{sum(1 for status in statuses if status.get('ready'))}/{total}"


def _pod_status(obj: JsonObject, _now: datetime) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        for name in ("waiting", "terminated"):
            if reason := (state.get(name) or {}).get("reason"):
                return str(reason)
    if status.get("phase") == "Pending":
        for condition in status.get("conditions") or []:
            if condition.get("reason") == "SchedulingGated":
                return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _pod_restarts(obj: JsonObject, _now: datetime) -> str:
    statuses = _at(obj, "status", "containerStatuses") or []
    return str(sum(int(status.get("restartCount") or 0) for status in statuses))


def _node_status(obj: JsonObject, _now: datetime) -> str:
    words = {"True": "Ready", "False": "NotReady"}
    ready = "Unknown"
    for condition in _at(obj, "status", "conditions") or []:
        if condition.get("type") == "Ready":
            ready = words.get(str(condition.get("status")), "Unknown")
    return ready + (",SchedulingDisabled" if _at(obj, "spec", "unschedulable") else "")


def _node_roles(obj: JsonObject, _now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _node_address(kind: str) -> Callable[[JsonObject, datetime], str]:
    def cell(obj: JsonObject, _now: datetime) -> str:
        addresses = _at(obj, "status", "addresses") or []
        return next((str(a.get("address")) for a in addresses if a.get("type") == kind), "<none>")

    return cell


def _event_seen(obj: JsonObject, now: datetime) -> str:
    series = obj.get("series") or {}
    seen = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return _since(seen or obj["metadata"].get("creationTimestamp"), now)


def _event_object(obj: JsonObject, _now: datetime) -> str:
    about = obj.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


POD: tuple[Column, ...] = (
    NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _pod_restarts),
    AGE,
    _field("IP", "status", "podIP", priority=1),
    _field("Node", "spec", "nodeName", priority=1),
    _field("Nominated Node", "status", "nominatedNodeName", priority=1),
    Column("Readiness Gates", lambda _obj, _now: "<none>", priority=1),
)
NODE: tuple[Column, ...] = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    _field("Version", "status", "nodeInfo", "kubeletVersion", default="<unknown>"),
    Column("Internal-IP", _node_address("InternalIP"), priority=1),
    Column("External-IP", _node_address("ExternalIP"), priority=1),
    _field("OS-Image", "status", "nodeInfo", "osImage", default="<unknown>", priority=1),
    _field(
        "Kernel-Version", "status", "nodeInfo", "kernelVersion", default="<unknown>", priority=1
    ),
    _field(
        "Container-Runtime",
        *("status", "nodeInfo", "containerRuntimeVersion"),
        default="<unknown>",
        priority=1,
    ),
)
EVENT = (
    Column("Last Seen", _event_seen),
    _field("Type", "type", default=""),
    _field("Reason", "reason", default=""),
    Column("Object", _event_object),
    _field("Source", "source", "component", default="", priority=1),
    _field("Message", "message", default=""),
    Column("Name", NAME.cell, priority=1),
)


def _custom_cell(path: str, kind: str) -> Callable[[JsonObject, datetime], Any]:
    if not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} is not a path of field names, such as .status.phase")
    names = path.split(".")[1:]

    def cell(obj: JsonObject, now: datetime) -> Any:
        value = _at(obj, *names)
        if value is None or kind == "date":
            return _since(value, now) if value is not None else None
        if isinstance(value, dict | list):
            return str(value)
        return str(value).lower() if isinstance(value, bool) and kind == "string" else value

    return cell


def custom_columns(additional: list[JsonObject]) -> tuple[Column, ...]:
    """The columns a definition asks for. ValueError if a path is more than field names."""
    if not additional:
        return DEFAULT
    columns = (
        Column(
            spec["name"],
            _custom_cell(spec["jsonPath"], spec["type"]),
            spec["type"],
            spec.get("priority", 0),
            spec.get("description", ""),
        )
        for spec in additional
    )
    return (NAME, *columns)
