"""Small steps on pod templates, which are plain objects and may be malformed.

`copied` gives a pod of one's own; the helpers after it change that copy.
"""

from collections.abc import Iterator, Sequence
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
        yield from _dicts(spec.get(field))


def containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Containers of a pod spec, without init containers."""
    return _dicts(spec.get("containers"))


def _dicts(items: object) -> Iterator[JsonObject]:
    return (item for item in as_list(items) if isinstance(item, dict))


def add_env(container: JsonObject, variables: dict[str, str]) -> None:
    """Set variables; a variable of the same name in the template is replaced."""
    _add_env(container, [{"name": name, "value": value} for name, value in variables.items()])


def add_env_of_config(container: JsonObject, config: str, names: Sequence[str]) -> None:
    """Set variables to what the ConfigMap `config` has under their names."""
    keys = [{"configMapKeyRef": {"name": config, "key": name}} for name in names]
    told = [{"name": name, "valueFrom": key} for name, key in zip(names, keys, strict=True)]
    _add_env(container, told)


def _add_env(container: JsonObject, told: list[JsonObject]) -> None:
    names = {entry["name"] for entry in told}
    kept = [
        entry
        for entry in as_list(container.get("env"))
        if not isinstance(entry, dict) or entry.get("name") not in names
    ]
    container["env"] = [*kept, *told]


def add_port(container: JsonObject, name: str, port: int) -> None:
    """Name a TCP port, unless the container names it already."""
    ports = as_list(container.get("ports"))
    if all(as_dict(entry).get("containerPort") != port for entry in ports):
        named = {"name": name, "containerPort": port, "protocol": "TCP"}
        container["ports"] = [*ports, named]


def add_volume(spec: JsonObject, volume: JsonObject) -> None:
    spec["volumes"] = [*as_list(spec.get("volumes")), volume]


def add_mount(container: JsonObject, mount: JsonObject) -> None:
    container["volumeMounts"] = [*as_list(container.get("volumeMounts")), mount]
