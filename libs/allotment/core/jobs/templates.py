"""Small steps on pod templates, which come as plain objects and may be odd.

`copied` gives a pod of one's own; the helpers after it change that copy.
"""

from collections.abc import Iterator
from typing import Any

from allotment.core.jobs.model import JsonObject


def as_dict(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def copied(value: Any) -> Any:
    """A deep copy of plain data."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def every_container(spec: JsonObject) -> Iterator[JsonObject]:
    """Init containers and containers of a pod spec."""
    for field in ("initContainers", "containers"):
        for container in as_list(spec.get(field)):
            if isinstance(container, dict):
                yield container


def add_env(container: JsonObject, variables: dict[str, str]) -> None:
    """Set variables; one that the template sets itself gives way."""
    kept = [
        entry
        for entry in as_list(container.get("env"))
        if not isinstance(entry, dict) or entry.get("name") not in variables
    ]
    told = [{"name": name, "value": value} for name, value in variables.items()]
    container["env"] = [*kept, *told]


def add_volume(spec: JsonObject, volume: JsonObject) -> None:
    spec["volumes"] = [*as_list(spec.get("volumes")), volume]


def add_mount(container: JsonObject, mount: JsonObject) -> None:
    container["volumeMounts"] = [*as_list(container.get("volumeMounts")), mount]
