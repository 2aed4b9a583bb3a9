"""What a scenario file may say: every mistake with its file, line and field, and what is right.

The fields of each object, step and expectation are the tables below; `README.md` explains them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allotment.core.config.policy import PolicyError, parse
from allotment_local.nodes.shape_values import Field, Values
from allotment_local.nodes.yaml_lines import NotYamlError, load_with_lines
from tests.scenarios.objects import CONFIGURATION, NAMES_OF_SCHEDULERS, conf_text

Check = tuple[Callable[[Any], bool], str]
"""Whether a value will do, and what would."""
VICTIMS = "victims"
_RANGE = re.compile(r"(.*?)(\d+)\.\.(\d+)")


class ScenarioError(Exception):
    """Raised for a file that is no scenario file; `problems` hold one line per mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Step(NamedTuple):
    """A verb with what it is about; `place` is ``file:line``, for messages."""

    verb: str
    value: Any
    place: str


class Scenario(NamedTuple):
    name: str
    steps: tuple[Step, ...]


def names_in(text: str) -> list[str]:
    """``a low-0..2`` is a, low-0, low-1 and low-2."""
    found = []
    for word in text.split():
        part = _RANGE.fullmatch(word)
        numbers = range(int(part[2]), int(part[3]) + 1) if part else ()
        found += [f"{part[1]}{n}" for n in numbers] if part else [word]
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _mapping_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, dict)
        and all(_is_text(key) and check(item) for key, item in value.items())
    )


def _is_amount(value: Any) -> bool:
    return _is_text(value) or _is_number(value)


def _are_words(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, list) and all(map(_is_text, value)))


TEXT: Check = _is_text, "a text"
NUMBER: Check = _is_number, "a whole number"
SWITCH: Check = lambda value: isinstance(value, bool), "true or false"
AMOUNT: Check = _is_amount, "an amount like 4, 500m or 16Gi"
AMOUNTS: Check = _mapping_of(_is_amount), "amounts by resource, like {cpu: 4, memory: 16Gi}"
TEXTS: Check = _mapping_of(_is_text), "texts by name, like {zone: a}"
NUMBERS: Check = _mapping_of(_is_number), "whole numbers by name"
OBJECT: Check = lambda value: isinstance(value, dict), "an object as in Kubernetes"
OBJECTS: Check = lambda value: isinstance(value, list), "a list of objects as in Kubernetes"
NAMES: Check = lambda value: value is None or isinstance(value, str), "names: a, or a low-0..2"
EXACTLY: Check = (
    lambda value: value is None or isinstance(value, str) or _is_number(value) or TEXTS[0](value),
    "names, how many there are, or a text for each: {low-0: n1}",
)
WORDS: Check = _mapping_of(_are_words), "a list of words for each: {low-0: [not enough CPU]}"


def _fields(**by_check: str) -> dict[str, Check]:
    """Names of fields by the name of their check: ``number="cards memory"``."""
    return {
        name: globals()[check.upper()]
        for check, names in by_check.items()
        for name in names.split()
    }


OBJECTS_OF: Mapping[str, Mapping[str, Check]] = {
    "nodes": _fields(
        number="cards memory",
        text="model mode",
        amount="cpu host_memory pods",
        amounts="offers",
        texts="labels",
        objects="taints",
        switch="cordoned ready",
    ),
    "queues": _fields(
        number="weight priority",
        text="parent state",
        amounts="capability deserved guarantee",
        switch="reclaimable",
        object="node_groups",
    ),
    "classes": _fields(number="value", switch="never_preempts default"),
    "groups": _fields(
        number="pods min",
        text="queue class namespace phase owner",
        amounts="needs",
        numbers="roles",
        texts="annotations",
        object="parts each",
    ),
    "pods": _fields(
        number="cards memory cores priority",
        amount="cpu host_memory",
        amounts="asks",
        text="group role queue class scheduler namespace owner node phase",
        texts="labels annotations",
        switch="gated never_preempts",
        object="spec",
    ),
}
SHORT = {"nodes": "cards", "classes": "value", "groups": "pods"}
"""What a bare number means."""
EXPECTED = _fields(
    exactly="placed evicts leaving nominated together told",
    texts="waiting gate",
    names="admitted held",
    numbers="passed",
    words="short conditions events shows hides",
)
STEPS: Mapping[str, Check] = {
    **_fields(names="round settle run start gone end fail", number="advance rounds"),
    "delete": (
        lambda value: NAMES[0](value) or NUMBERS[0](value),
        "names, or a grace period in seconds for each",
    ),
    "evict": (lambda value: value is None or _is_text(value), "nothing, or why it is refused"),
}
"""Steps that are checked by a single rule; the others are read below."""
_CONFIGURED = ("configuration", "configurations")
_FILE = ("about", *_CONFIGURED, *OBJECTS_OF, "scenarios")
_SCENARIO = ("name", *_CONFIGURED, *OBJECTS_OF, "steps")


def read(path: Path) -> list[Scenario]:
    """The scenarios of a file. Raises `ScenarioError` with every mistake in it."""
    source = path.name
    try:
        value, lines = load_with_lines(path.read_text(encoding="utf-8"))
    except NotYamlError as error:
        raise ScenarioError([f"{source}{error}"]) from error
    reader = _Reader(source, Values(source, lines), lines.of)
    found = list(reader.file(value))
    if reader.values.problems:
        raise ScenarioError(reader.values.problems)
    return found


class _Reader:
    def __init__(self, source: str, values: Values, line: Callable[..., int]) -> None:
        self.values = values
        self._source = source
        self._line = line

    def file(self, value: Any) -> Iterator[Scenario]:
        values, root = self.values, Field(())
        for path, key in values.repeated:
            values.wrong(Field(path) / key, key, "each name once", "is repeated")
        given = values.mapping(root, value, _FILE) or {}
        values.text(root, given, "about", _is_text, "a sentence: what the scenarios are about")
        before = self._configured(root, {"configuration": CONFIGURATION, **given})
        shared = self._objects(root, {k: v for k, v in given.items() if k in OBJECTS_OF})
        scenarios = given.get("scenarios")
        if not isinstance(scenarios, list) or not scenarios:
            values.wrong(root / "scenarios", scenarios, "a list: - name: … with nodes and steps")
            return
        for number, item in enumerate(scenarios):
            field = root / "scenarios" / number
            one = values.mapping(field, item, _SCENARIO)
            if one is None:
                continue
            name = values.text(field, one, "name", _is_text, "a sentence that the scenario shows")
            configured = self._configured(field, one) or before
            steps = [shared]
            steps.append(self._objects(field, {k: v for k, v in one.items() if k in OBJECTS_OF}))
            if not isinstance(one.get("steps"), list):
                values.wrong(field / "steps", one.get("steps"), "a list: - round: …")
                continue
            for index, step in enumerate(one["steps"]):
                steps += self._step(field / "steps" / index, step)
            for called, first in configured.items():
                yield Scenario(f"{name} ({called})" if called else name, (first, *steps))

    def _configured(self, field: Field, given: Mapping[str, Any]) -> dict[str, Step]:
        """Under which configurations the scenarios are played, by what each is called."""
        found = {}
        if "configurations" in given:
            place = field / "configurations"
            named = self.values.mapping(place, given["configurations"], None) or {}
            found = {name: (place / name, value) for name, value in named.items()}
        elif "configuration" in given:
            found[""] = field / "configuration", given["configuration"]
        for place, value in found.values():
            try:
                parse(conf_text(value), "configuration", NAMES_OF_SCHEDULERS)
            except PolicyError as error:
                self.values.wrong(place, "…", "; ".join(error.problems))
        return {name: Step("configure", v, self._place(at)) for name, (at, v) in found.items()}

    def _place(self, field: Field) -> str:
        return f"{self._source}:{self._line(field.path)}"

    def _objects(self, field: Field, kinds: Any) -> Step:
        """Objects by kind and name, with what a bare number means written out."""
        found: dict[str, dict[str, Any]] = {}
        for kind, objects in (self.values.mapping(field, kinds, tuple(OBJECTS_OF)) or {}).items():
            named = self.values.mapping(field / kind, objects, None) or {}
            for names, given in named.items():
                place, short = field / kind / names, SHORT.get(kind)
                one = {short: given} if short and _is_number(given) else given or {}
                self._fields(place, one, OBJECTS_OF.get(kind, {}))
                if kind == "groups" and isinstance(one, dict) and "each" in one:
                    self._fields(place / "each", one["each"], OBJECTS_OF["pods"])
                for name in names_in(names):
                    found.setdefault(kind, {})[name] = one
        return Step("apply", found, self._place(field))

    def _fields(self, field: Field, given: Any, known: Mapping[str, Check]) -> None:
        for key, value in (self.values.mapping(field, given, tuple(known)) or {}).items():
            if key in known and not known[key][0](value):
                self.values.wrong(field / key, "" if value is None else value, known[key][1])

    def _step(self, field: Field, step: Any) -> Iterator[Step]:
        if isinstance(step, str):
            step = {step: None}
        verbs = (*STEPS, "apply", "remove", "configure", "expect")
        given = self.values.mapping(field, step, verbs) or {}
        for verb, value in given.items():
            place = field / verb
            if verb == "apply":
                yield self._objects(place, value)
            elif verb == "configure":
                yield from self._configured(field, {"configuration": value}).values()
            elif verb == "expect":
                self._fields(place, value, EXPECTED)
                yield Step(verb, value, self._place(place))
            elif verb == "remove":
                self._fields(place, value, dict.fromkeys(OBJECTS_OF, NAMES))
                yield Step(verb, value, self._place(place))
            elif verb in STEPS:
                if not STEPS[verb][0](value):
                    self.values.wrong(place, value, STEPS[verb][1])
                yield Step(verb, value, self._place(place))
