"""Where the scheduler configuration comes from, and which of what is found there is active.

There are two places: Volcano's ConfigMap, and the policy file. While the ConfigMap exists it is
active, so that `kubectl apply` of it does what it says; otherwise the file is; without a file the
built-in one. With `policy_file_first` the file is active, and the ConfigMap only causes a warning.

A broken file at start is an error of start-up. A text that breaks later, and a ConfigMap that is
broken at any time, leave the last one active, and are reported.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import anyio

from allotment.adapters.telemetry.log import file_trouble
from allotment.core.config.policy import Parsed, PolicyError, built_in, parse
from allotment_proto.events import PolicyLoaded
from allotment_proto.facts import Problem
from allotment_proto.volcano import keys
from allotment_watcher.config_checks import INVALID_POLICY, WITHOUT_EFFECT, policy_problems
from allotment_watcher.device_source import TEXT_CHARS_MAX, Place

POLL_S = 2.0
BUILT_IN = "built in"
NO_CONFIG_MAP = "none"
NOT_READ = "ConfigNotRead"
UNREADABLE = "UnreadableConfig"

Fingerprint = tuple[int, int]


class Loaded(NamedTuple):
    """A policy, and the file's fingerprint from just before it was read."""

    event: PolicyLoaded
    warnings: tuple[str, ...]
    seen: Fingerprint | None = None


class Checked(NamedTuple):
    """The policy to use (None: the active one), where its newest text is, and its problems."""

    loaded: Loaded | None
    source: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def place_of(config_map: str) -> Place | None:
    """The ConfigMap that the settings name as ``<namespace>/<name>``; None for ``none``."""
    if config_map == NO_CONFIG_MAP:
        return None
    namespace, _, name = config_map.partition("/")
    return Place(name, namespace, keys.SCHEDULER_CONFIG_KEY)


async def load_policy(path: Path | None, scheduler_names: tuple[str, ...]) -> Loaded:
    """The policy of the file, or the built-in one. Raises PolicyError naming every mistake."""
    if path is None:
        return _loaded("", BUILT_IN, Parsed(built_in(scheduler_names), ()))
    seen = await fingerprint(path)
    try:
        text = await anyio.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError((f"{path}: cannot be read: {file_trouble(error)}",)) from error
    return _loaded(text, str(path), parse(text, str(path), scheduler_names))._replace(seen=seen)


async def fingerprint(path: Path) -> Fingerprint | None:
    """Changes when the file does; None while it cannot be looked at."""
    try:
        stat = await anyio.Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _loaded(text: str, source: str, parsed: Parsed) -> Loaded:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Loaded(
        PolicyLoaded(policy=parsed.policy, source=source, text_sha256=digest), parsed.warnings
    )


class PolicyTexts:
    """What was found in the file and in the ConfigMap, and what follows from both."""

    def __init__(
        self,
        place: Place | None,
        scheduler_names: tuple[str, ...],
        file: Loaded | PolicyError,
        file_source: str,
        *,
        file_first: bool = False,
    ) -> None:
        """`file` is what the file holds, or what is wrong with it; or what is built in."""
        self.place = place
        self.file = file
        self._names = scheduler_names
        self._file_source = file_source
        self._file_first = file_first and file_source != BUILT_IN
        self._failed = ""
        self._map: str | Problem | None = None
        self.is_complete = place is None
        """Whether the ConfigMap was asked for, with whatever result."""

    def found(self, data: Mapping[str, str] | None) -> None:
        """The data of the ConfigMap; None if there is none."""
        self.is_complete, self._failed = True, ""
        assert self.place is not None
        if data is None:
            self._map = None
        elif keys.SCHEDULER_CONFIG_KEY in data:
            self._map = data[keys.SCHEDULER_CONFIG_KEY]
        else:
            keys_there = ", ".join(sorted(data)) or "none"
            message = f"has no key {keys.SCHEDULER_CONFIG_KEY} (it has: {keys_there[:80]})"
            self._map = Problem(INVALID_POLICY, f"{self.place.text}:", message)

    def broken(self, why: str) -> None:
        """What is there is no ConfigMap."""
        assert self.place is not None
        self.is_complete, self._failed = True, ""
        self._map = Problem(INVALID_POLICY, f"{self.place.text}:", f"cannot be read: {why}")

    def failed(self, why: str) -> None:
        """Asking failed; what was found before still counts."""
        if not self.is_complete:
            self.is_complete, self._failed = True, why

    def check(self, source_in_force: str) -> Checked:
        """What follows; `source_in_force` is where the active policy was read."""
        if self.place is None:
            return self._of_file()
        if self._failed:
            return self._unanswered(self.place, source_in_force)
        if self._map is None:
            return self._of_file()
        if self._file_first:
            message = (
                f"is not active: the policy file {self._file_source} goes first here; start "
                "without it, or without policy-file-first, for the ConfigMap to count"
            )
            return _also(self._of_file(), Problem(NOT_READ, f"{self.place.text}:", message))
        return self._of_map(self.place, self._map)

    def _of_file(self) -> Checked:
        if isinstance(self.file, PolicyError):
            problems = policy_problems(self._file_source, self.file.problems)
            return Checked(None, self._file_source, problems)
        return _checked(self.file, self._file_source)

    def _of_map(self, place: Place, found: str | Problem) -> Checked:
        if isinstance(found, Problem):
            return Checked(None, place.text, (found,))
        if len(found) > TEXT_CHARS_MAX:
            message = f"is {len(found)} characters long; at most {TEXT_CHARS_MAX}"
            return Checked(None, place.text, (Problem(INVALID_POLICY, f"{place.text}:", message),))
        try:
            parsed = parse(found, place.text, self._names)
        except PolicyError as error:
            return Checked(None, place.text, policy_problems(place.text, error.problems))
        return _checked(_loaded(found, place.text, parsed), place.text)

    def _unanswered(self, place: Place, source_in_force: str) -> Checked:
        """A watcher that starts while no API server answers keeps the policy meanwhile."""
        message = f"{self._failed}; the watcher needs the right to list and watch it"
        warning = Problem(UNREADABLE, f"{place.text}:", message)
        if source_in_force == place.text:
            return Checked(None, place.text, (), (warning,))
        return _also(self._of_file(), warning)


def _checked(loaded: Loaded, source: str) -> Checked:
    return Checked(loaded, source, (), policy_problems(source, loaded.warnings, WITHOUT_EFFECT))


def _also(checked: Checked, warning: Problem) -> Checked:
    return checked._replace(warnings=(*checked.warnings, warning))
