"""Where the device configuration comes from, and which of what is found there is active.

From ConfigMaps as the device plugin reads them, or from files. A faulty text leaves the last one
active; without a text the built-in configuration is.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from allotment.adapters.telemetry.log import file_trouble
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import DevicesConfigured
from allotment_proto.facts import Policy, Problem
from allotment_proto.volcano import device_config, keys

BUILT_IN = "built in"
TEXT_CHARS_MAX = 256 * 1024
"""A device configuration has some thousands; a longer text would keep the watcher busy."""
UNREADABLE = "UnreadableDeviceConfig"
NOT_FOUND = "ConfigNotFound"


class Place(NamedTuple):
    """A key in a ConfigMap, or a file (which has no namespace and no key)."""

    name: str
    namespace: str = ""
    key: str = ""

    @property
    def text(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}" if self.namespace else self.name


class Places(NamedTuple):
    """Where to look for the cluster's and for the nodes' configuration, the first in front."""

    devices: tuple[Place, ...]
    nodes: tuple[Place, ...]
    elsewhere: tuple[Place, ...] = ()
    """Where a configuration is often found that the policy names in another namespace: it is not
    read there, but said to be there."""

    @property
    def all(self) -> tuple[Place, ...]:
        return (*self.devices, *self.nodes, *self.elsewhere)


class Read(NamedTuple):
    """The configuration to use. With `problems` it is not the newest text."""

    event: DevicesConfigured | None
    source: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def places_of(policy: Policy) -> Places:
    """The ConfigMaps: where the policy says, or where the device plugin looks."""
    namespace, name = policy.device_config
    usual = (namespace, name) == Policy().device_config
    namespaces = keys.CONFIG_NAMESPACES if usual else (namespace,)
    node_namespaces = dict.fromkeys((namespace, *keys.CONFIG_NAMESPACES))
    elsewhere = [space for space in keys.CONFIG_NAMESPACES if space not in namespaces]
    return Places(
        tuple(Place(name, space, keys.DEVICE_CONFIG_KEY) for space in namespaces),
        tuple(
            Place(keys.NODE_CONFIG_MAP, space, keys.NODE_CONFIG_KEY) for space in node_namespaces
        ),
        tuple(Place(name, space, keys.DEVICE_CONFIG_KEY) for space in elsewhere),
    )


def places_of_files(devices: Path | None, nodes: Path | None) -> Places:
    return Places(
        (Place(str(devices)),) if devices is not None else (),
        (Place(str(nodes)),) if nodes is not None else (),
    )


class DeviceTexts:
    """What was found at each place: a text, nothing, or no answer yet and why."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._found: dict[Place, str | Problem | None] = {}

    def found(self, place: Place, data: Mapping[str, str] | None) -> None:
        """The data of a ConfigMap; None if there is none."""
        if data is None:
            self._found[place] = None
        elif place.key in data:
            self._found[place] = data[place.key]
        else:
            keys_there = ", ".join(sorted(data)) or "none"
            self._found[place] = Problem(
                device_config.INVALID,
                place.text,
                f"has no key {place.key} (it has: {keys_there[:80]})",
            )

    async def read_file(self, place: Place) -> None:
        try:
            self._found[place] = await anyio.Path(place.name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._found[place] = Problem(
                UNREADABLE, place.text, f"cannot be read: {file_trouble(error)}"
            )

    def failed(self, place: Place, why: str) -> None:
        """Asking failed; what was found there before still counts."""
        if place not in self._found:
            remedy = "the watcher needs the right to list and watch it"
            self._found[place] = Problem(UNREADABLE, place.text, f"{why}; {remedy}")

    def broken(self, place: Place, why: str) -> None:
        """What is there is no ConfigMap."""
        self._found[place] = Problem(device_config.INVALID, place.text, f"cannot be read: {why}")

    @property
    def is_complete(self) -> bool:
        """Whether all places were asked, with whatever result."""
        return all(place in self._found for place in self.places.all)

    def read(self, in_force: DeviceConfig | None) -> Read:
        """Parse what is there. Takes its time: for a thread. `in_force` is None at the first."""
        devices, nodes = self._first(self.places.devices), self._first(self.places.nodes)
        read = _read(devices, nodes, in_force)
        if devices is None and self.places.elsewhere:
            read = read._replace(warnings=(*read.warnings, self._not_there(read)))
        return read

    def _not_there(self, read: Read) -> Problem:
        """The policy names a ConfigMap that does not exist, and perhaps one like it does."""
        (named,) = self.places.devices
        remedy = "make it, or name another one in deviceshare.KnownGeometriesCMNamespace and CMName"
        found = self._first(self.places.elsewhere)
        if found is not None:
            space = found[0].namespace
            remedy = (
                f"{found[0].text} exists: write deviceshare.KnownGeometriesCMNamespace: {space} in "
                "the scheduler configuration, or move the ConfigMap"
            )
        message = f"does not exist, so devices are read as {read.source}; {remedy}"
        return Problem(NOT_FOUND, f"{named.text}:", message)

    def _first(self, places: Iterable[Place]) -> "_Found":
        for place in places:
            text = self._found.get(place)
            if text is not None:
                return place, text
        return None


_Found = tuple[Place, str | Problem] | None


def _read(devices: _Found, nodes: _Found, in_force: DeviceConfig | None) -> Read:
    problems: list[Problem] = []
    warnings: list[Problem] = []
    config: DeviceConfig | None = device_config.default()
    if (text := _usable(devices, problems)) is not None:
        assert devices is not None
        parsed = device_config.parse(text, devices[0].text)
        config = parsed.config
        problems += parsed.problems
        warnings += parsed.warnings
    if (text := _usable(nodes, problems)) is not None:
        assert nodes is not None
        of_nodes = device_config.parse_nodes(text, nodes[0].text)
        problems += of_nodes.problems
        warnings += of_nodes.warnings
        if config is not None and of_nodes.nodes is not None:
            config = msgspec.structs.replace(config, nodes=of_nodes.nodes)
    texts = [(place.text, text) for found in (devices, nodes) if found for place, text in [found]]
    source = ", ".join(place for place, _ in texts) or BUILT_IN
    event: DevicesConfigured | None = None
    if problems or config is None:
        event = _event(device_config.default(), BUILT_IN, ()) if in_force is None else None
    elif config != in_force:
        event = _event(config, source, (text for _, text in texts))
    return Read(event, source, tuple(problems), tuple(warnings))


def _usable(found: _Found, problems: list[Problem]) -> str | None:
    if found is None:
        return None
    place, text = found
    if isinstance(text, Problem):
        problems.append(text)
        return None
    if len(text) > TEXT_CHARS_MAX:
        message = f"is {len(text)} characters long; at most {TEXT_CHARS_MAX}"
        problems.append(Problem(device_config.INVALID, place.text, message))
        return None
    return text


def _event(config: DeviceConfig, source: str, texts: Iterable[object]) -> DevicesConfigured:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(str(text).encode())
    return DevicesConfigured(config=config, source=source, text_sha256=digest.hexdigest())
