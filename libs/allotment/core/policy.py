"""Configuration text → `Policy`, with the place of every mistake.

The file is Volcano's `volcano-scheduler.conf`: `actions`, `tiers` of `plugins`, each with
`arguments`. Read today are the `deviceshare` plugin's `deviceshare.SchedulePolicy`,
`deviceshare.ScheduleWeight` and the family switches, and an `allotment` plugin for what Volcano has
no word for. Other plugins are named in a warning, so that nobody believes that they act.
"""

from typing import Any, NamedTuple

import msgspec
import yaml

from allotment.core.policies import POLICIES
from allotment.core.policies.learning import LEARNERS
from allotment_proto.facts import Policy

DEVICE_POLICIES = tuple(POLICIES)
HOST_POLICIES = ("binpack", "spread", "none")
WEIGHT_MAX = 100
KNOWN_ACTIONS = frozenset(
    (
        "enqueue",
        "allocate",
        "backfill",
        "preempt",
        "reclaim",
        "shuffle",
        "gangpreempt",
        "gangreclaim",
    )
)
ACTIVE_ACTIONS = frozenset(("allocate", "backfill"))


class PolicyError(Exception):
    """Raised for a configuration that cannot be used; `problems` name place, value and remedy."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Parsed(NamedTuple):
    policy: Policy
    warnings: tuple[str, ...]


def parse(text: str, source: str, scheduler_names: tuple[str, ...]) -> Parsed:
    """The policy of a configuration text. Raises `PolicyError` naming each mistake by its place."""
    return _Reader(source, scheduler_names).read(text)


class _Reader:
    def __init__(self, source: str, scheduler_names: tuple[str, ...]) -> None:
        self.source = source
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.policy = Policy(scheduler_names=scheduler_names)
        self.families: dict[str, bool] = {}
        self.host_is_said = False

    def read(self, text: str) -> Parsed:
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            problem = getattr(error, "problem", None) or str(error)
            raise PolicyError((f"{self.source}{place}: not YAML: {problem}",)) from error
        except (ValueError, RecursionError) as error:  # a date that is none; brackets without end
            raise PolicyError((f"{self.source}: cannot be read: {error}",)) from error
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise PolicyError((f"{self.source}: must be a mapping with actions and tiers",))
        known = {"actions", "tiers", "configurations", "metrics"}
        for key in sorted(str(key) for key in set(document) - known):
            self.warn(key, "unknown key; known are actions, tiers, configurations, metrics")
        self._actions(document.get("actions", "allocate"))
        self._tiers(document.get("tiers", []))
        if self.problems:
            raise PolicyError(tuple(self.problems))
        if self.families:
            names = tuple(sorted(name for name, on in self.families.items() if on))
            self.policy = msgspec.structs.replace(self.policy, families=names)
        if self.policy.device_policy in LEARNERS and not self.host_is_said:
            # they weigh the host's room themselves: another opinion on it would outvote them
            self.policy = msgspec.structs.replace(self.policy, host_weight=0)
        return Parsed(self.policy, tuple(self.warnings))

    def fail(self, place: str, value: object, wanted: str) -> None:
        self.problems.append(f"{self.source}: {place} is {value!r}; wanted: {wanted}")

    def warn(self, place: str, message: str) -> None:
        self.warnings.append(f"{self.source}: {place}: {message}")

    def _actions(self, value: Any) -> None:
        if not isinstance(value, str):
            self.fail("actions", value, "a text like 'enqueue, allocate, backfill'")
            return
        for action in (word.strip() for word in value.split(",")):
            if action not in KNOWN_ACTIONS:
                self.fail("actions", action, "one of " + ", ".join(sorted(KNOWN_ACTIONS)))
            elif action not in ACTIVE_ACTIONS:
                self.warn("actions", f"{action} is read but does nothing yet")

    def _tiers(self, value: Any) -> None:
        if not isinstance(value, list):
            self.fail("tiers", value, "a list of tiers, each with plugins")
            return
        for number, tier in enumerate(value):
            plugins = tier.get("plugins") if isinstance(tier, dict) else None
            if not isinstance(plugins, list):
                self.fail(f"tiers[{number}]", tier, "a mapping with a list of plugins")
                continue
            for index, plugin in enumerate(plugins):
                self._plugin(f"tiers[{number}].plugins[{index}]", plugin)

    def _plugin(self, place: str, plugin: Any) -> None:
        if not isinstance(plugin, dict) or not isinstance(plugin.get("name"), str):
            self.fail(place, plugin, "a mapping with a name")
            return
        arguments = plugin.get("arguments") or {}
        if not isinstance(arguments, dict):
            self.fail(f"{place}.arguments", arguments, "a mapping")
            return
        name = plugin["name"]
        if name == "deviceshare":
            self._deviceshare(f"{place}.arguments", arguments)
        elif name == "allotment":
            self._allotment(f"{place}.arguments", arguments)
        elif name != "predicates":
            self.warn(place, f"plugin {name} is read but does nothing yet")

    def _deviceshare(self, place: str, arguments: dict[Any, Any]) -> None:
        for key, value in arguments.items():
            where = f"{place}.{key}"
            match key:
                case "deviceshare.SchedulePolicy":
                    self._policy_word(where, value, "device_policy", DEVICE_POLICIES)
                case "deviceshare.ScheduleWeight":
                    self._weight(where, value, "device_weight")
                case "deviceshare.VGPUEnable":
                    self._switch(where, value, "vgpu")
                case "deviceshare.GPUSharingEnable" | "deviceshare.GPUNumberEnable":
                    self._switch(where, value, "gpushare")
                case _:
                    self.warn(where, "is read but does nothing yet")

    def _allotment(self, place: str, arguments: dict[Any, Any]) -> None:
        for key, value in arguments.items():
            where = f"{place}.{key}"
            match key:
                case "allotment.HostPolicy":
                    self._policy_word(where, value, "host_policy", HOST_POLICIES)
                    self.host_is_said = True
                case "allotment.HostWeight":
                    self._weight(where, value, "host_weight")
                    self.host_is_said = True
                case "allotment.MultiContainerEnable":
                    on = _boolean(value)
                    if on is None:
                        self.fail(where, value, "true or false")
                    else:
                        self.policy = msgspec.structs.replace(self.policy, multi_container=on)
                case _:
                    self.fail(
                        where,
                        value,
                        "allotment.HostPolicy, allotment.HostWeight or "
                        "allotment.MultiContainerEnable",
                    )

    def _policy_word(self, place: str, value: Any, field: str, known: tuple[str, ...]) -> None:
        word = "none" if value in ("", None) else value
        if word not in known:
            self.fail(place, value, "one of " + ", ".join(known))
            return
        self.policy = msgspec.structs.replace(self.policy, **{field: word})

    def _weight(self, place: str, value: Any, field: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= WEIGHT_MAX:
            self.fail(place, value, f"a whole number from 0 to {WEIGHT_MAX}")
            return
        self.policy = msgspec.structs.replace(self.policy, **{field: value})

    def _switch(self, place: str, value: Any, family: str) -> None:
        on = _boolean(value)
        if on is None:
            self.fail(place, value, "true or false")
            return
        self.families[family] = self.families.get(family, False) or on


def _boolean(value: Any) -> bool | None:
    """YAML booleans and Go's boolean texts."""
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    return None
