"""The device configuration of a local cluster: two ConfigMaps, and what they say at the moment.

Real device plugins read them when they start. The fake ones do so whenever they change, as if
they were restarted; one that cannot be used is an Event, and the one before stays active.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Any

from allotment_local.apiserver.resources import CONFIG_MAPS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.reports import Reports
from allotment_proto.device_config import AscendChip, DeviceConfig
from allotment_proto.facts import Problem
from allotment_proto.volcano import device_config, keys

JsonObject = dict[str, Any]
Data = tuple[tuple[str, str], ...]
"""What a ConfigMap holds, by key."""
SOURCE = "clusters/device-config.yaml"
INVALID = "InvalidDeviceConfig"
_NAMES = (keys.DEVICE_CONFIG_MAP, keys.NODE_CONFIG_MAP)


@lru_cache(maxsize=1)
def shipped_text() -> str:
    """What a new local cluster has as `device-config.yaml`."""
    file = resources.files("allotment_local").joinpath("clusters", "device-config.yaml")
    return file.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def shipped() -> DeviceConfig:
    parsed = device_config.parse(shipped_text(), SOURCE)
    assert parsed.config is not None, parsed.problems
    return parsed.config


def chip_named(config: DeviceConfig, common_word: str) -> AscendChip | None:
    return next((chip for chip in config.ascend if chip.common_word == common_word), None)


@lru_cache(maxsize=4)
def _parsed(device: Data | None, node: Data | None) -> device_config.Parsed:
    return device_config.parse_config_maps(
        None if device is None else dict(device), None if node is None else dict(node)
    )


class DeviceMap:
    """The active configuration; `changed` is called after each change of it."""

    def __init__(self, store: Store, reports: Reports, changed: Callable[[], None]) -> None:
        self.config = device_config.default()
        self._store = store
        self._reports = reports
        self._changed = changed

    def start(self) -> None:
        """Install the ConfigMap that comes with the plugins, if there is none, and follow both."""
        if self._data(keys.DEVICE_CONFIG_MAP) is None:
            body = {
                "metadata": {"name": keys.DEVICE_CONFIG_MAP},
                "data": {keys.DEVICE_CONFIG_KEY: shipped_text()},
            }
            self._store.create(CONFIG_MAPS, keys.CONFIG_NAMESPACES[0], body)
        self._read()
        self._store.subscribe(CONFIG_MAPS, self._observe)

    def _observe(self, _type: str, config_map: JsonObject) -> None:
        metadata = config_map["metadata"]
        if metadata["name"] in _NAMES and metadata["namespace"] in keys.CONFIG_NAMESPACES:
            for problem in self._read():
                self._complain(config_map, problem)

    def _read(self) -> tuple[Problem, ...]:
        parsed = _parsed(self._data(keys.DEVICE_CONFIG_MAP), self._data(keys.NODE_CONFIG_MAP))
        if parsed.config is not None and parsed.config != self.config:
            self.config = parsed.config
            self._changed()
        return parsed.problems

    def _data(self, name: str) -> Data | None:
        """The data of a ConfigMap, from the first namespace that has it."""
        for namespace in keys.CONFIG_NAMESPACES:
            found = self._store.find(CONFIG_MAPS, namespace, name)
            if found is not None:
                return tuple(sorted((found.get("data") or {}).items()))
        return None

    def _complain(self, about: JsonObject, problem: Problem) -> None:
        self._reports.warn(about, "", INVALID, f"{problem.place} {problem.message}; not used")
