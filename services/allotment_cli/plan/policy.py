"""`allot policy`: what a scheduler configuration will do here, before anybody applies it."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
import yaml

from allotment.adapters.telemetry.log import file_trouble
from allotment.core.config.known import PLUGINS_WITHOUT_EFFECT
from allotment.core.config.policy import PolicyError, parse
from allotment.core.errors import AllotError
from allotment.core.explain.rows.preferences import ignored
from allotment_cli.options.params import output_option
from allotment_cli.show.output import DOCUMENTS, Prose, emit, emit_document, heading
from allotment_proto.facts import Policy
from allotment_proto.volcano import keys

FOUND = 1
_STDIN = Path("-")
_ERROR, _WARNING = "error", "warning"
_PLACED = re.compile(r"(?::(\d+):(\d+))?: (.*)", re.DOTALL)


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file that cannot be followed (`error`) or has no effect (`warning`). Without a
    known place `line` and `column` are 0.
    """

    severity: str
    line: int
    column: int
    message: str


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin of the file: which tier it is in, and whether it does anything here."""

    name: str
    tier: int
    has_effect: bool


class Outcome(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What would be active; without `isUsable` all of it is empty and nothing changes.
    `ignoredPreferences` are the kinds of preferences of pods and nodes that would not count.
    """

    actions: tuple[str, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    families: tuple[str, ...] = ()
    device_policy: str = ""
    device_weight: int = 0
    host_policy: str = ""
    host_weight: int = 0
    ignored_preferences: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer as JSON. `place` is the ConfigMap that the file holds, empty for a bare file."""

    schema: str
    file: str
    place: str
    is_usable: bool
    remarks: tuple[Remark, ...]
    outcome: Outcome


class _Text(NamedTuple):
    """A configuration's text, and how a place in it is one of the file: None if it is not."""

    text: str
    place: str = ""
    offset: tuple[int, int] | None = (0, 0)


@click.group()
def policy() -> None:
    """The scheduler configuration (volcano-scheduler.conf)."""


@policy.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@output_option(*DOCUMENTS)
@click.pass_context
def check(context: click.Context, file: Path, output: str) -> None:
    """Say what the scheduler configuration in FILE will do here, before it is applied.

    FILE is a volcano-scheduler.conf, or a manifest with a ConfigMap that has such a key; - is
    standard input. What cannot be followed is an error: such a file is refused as a whole. What has
    no effect is a warning, with its line and column.

    Exit code 0 if every line takes effect, 1 if not, 2 if the file cannot be read.
    """
    found = _checked(file, _text_of(file))
    if output in DOCUMENTS:
        emit_document(found, output)
    else:
        emit(_lines(found))
    if found.remarks:
        context.exit(FOUND)


def _text_of(file: Path) -> _Text:
    """The configuration in a file. Raises AllotError for a file that has none."""
    try:
        text = sys.stdin.read() if file == _STDIN else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AllotError(f"{file} cannot be read: {file_trouble(error)}") from error
    maps = list(_config_maps(text))
    if not maps:
        return _Text(text)
    found = [one for one in maps if one is not None]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(one.place for one in found)
        raise AllotError(f"{file} has {len(found)} configurations: {places}", "give one at a time")
    raise AllotError(
        f"{file} has no ConfigMap with a key {keys.SCHEDULER_CONFIG_KEY}",
        "that is the key which is read; name the text so, or give the bare text as a file",
    )


def _config_maps(text: str) -> Iterator[_Text | None]:
    """For each Kubernetes object of a manifest its configuration, None if it has none; nothing at
    all for a text that is no manifest.
    """
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return  # the reader of configurations says what is wrong, and where
    for document in documents:
        entries = _entries(document)
        if "kind" not in entries or "apiVersion" not in entries:
            continue
        items = entries.get("items")
        each = items.value if isinstance(items, yaml.SequenceNode) else [document]
        for item in each:
            yield _of_object(text, _entries(item))


def _of_object(text: str, entries: dict[str, yaml.Node]) -> _Text | None:
    data = _entries(entries.get("data"))
    node = data.get(keys.SCHEDULER_CONFIG_KEY)
    if not isinstance(node, yaml.ScalarNode):
        return None
    meta = _entries(entries.get("metadata"))
    namespace, name = (_plain(meta.get(key)) for key in ("namespace", "name"))
    offset = None
    if node.style == "|":  # each line of the text is a line of the file, moved to the right
        first = node.start_mark.line + 1
        lines = text.splitlines()[first : node.end_mark.line + 1]
        indents = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
        offset = (first, indents[0] if indents else 0)
    return _Text(node.value, f"{namespace or 'default'}/{name}", offset)


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _plain(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _checked(file: Path, found: _Text) -> Check:
    """What the scheduler would say of the text."""
    source = str(file)
    try:
        parsed = parse(found.text, source, Policy().scheduler_names)
    except PolicyError as error:
        wrong = _remarks(_ERROR, found, source, error.problems)
        wrong += _remarks(_WARNING, found, source, error.warnings)
        return _answer(file, found, wrong, None)
    return _answer(file, found, _remarks(_WARNING, found, source, parsed.warnings), parsed.policy)


def _answer(file: Path, found: _Text, remarks: tuple[Remark, ...], made: Policy | None) -> Check:
    return Check(
        schema="allotment.dev/policy-check/v1",
        file=str(file),
        place=found.place,
        is_usable=made is not None,
        remarks=remarks,
        outcome=Outcome() if made is None else _outcome(made),
    )


def _remarks(severity: str, found: _Text, source: str, texts: Iterable[str]) -> tuple[Remark, ...]:
    """The scheduler's words, each with its place in the file."""
    remarks = []
    for text in texts:
        placed = _PLACED.fullmatch(text.removeprefix(source))
        message = placed[3] if placed else text
        line, column = (int(placed[1]), int(placed[2])) if placed and placed[1] else (0, 0)
        if line and found.offset is None:
            message = f"line {line} of the text, column {column}: {message}"
            line = column = 0
        elif line and found.offset is not None:
            line, column = line + found.offset[0], column + found.offset[1]
        remarks.append(Remark(severity=severity, line=line, column=column, message=message))
    return tuple(remarks)


def _outcome(made: Policy) -> Outcome:
    return Outcome(
        actions=made.actions,
        plugins=tuple(
            Plugin(use.name, tier, use.name not in PLUGINS_WITHOUT_EFFECT)
            for tier, uses in enumerate(made.tiers, start=1)
            for use in uses
        ),
        families=made.families,
        device_policy=made.device_policy,
        device_weight=made.device_weight,
        host_policy=made.host_policy,
        host_weight=made.host_weight,
        ignored_preferences=ignored(made),
    )


def _lines(found: Check) -> Iterator[str]:
    for remark in found.remarks:
        place = f":{remark.line}:{remark.column}" if remark.line else ""
        yield f"{found.file}{place}: {remark.severity}: {remark.message}"
    file = "the text" if found.file == str(_STDIN) else found.file
    what = f"ConfigMap {found.place} in {file}" if found.place else file
    number = len(found.remarks)
    if not found.is_usable:
        errors = sum(remark.severity == _ERROR for remark in found.remarks)
        yield heading(
            f"{what} has {errors} {'error' if errors == 1 else 'errors'} and would be rejected; "
            "the current configuration stays active"
        )
        return
    said = "every line takes effect"
    if number:
        said = f"{number} {'remark' if number == 1 else 'remarks'}; everything else takes effect"
    yield heading(f"{what} can be used: {said}")
    yield from _outcome_lines(found.outcome)


def _outcome_lines(outcome: Outcome) -> Iterator[str]:
    yield f"  actions  {', '.join(outcome.actions)}"
    for tier in sorted({one.tier for one in outcome.plugins}):
        names = [_plugin_text(one) for one in outcome.plugins if one.tier == tier]
        yield f"  tier {tier}   {', '.join(names)}"
    weight = _weight_text(outcome.device_policy, outcome.device_weight)
    yield f"  cards    {weight}; served: {_listed(outcome.families)}"
    yield f"  hosts    {_weight_text(outcome.host_policy, outcome.host_weight)}"
    if outcome.ignored_preferences:
        kinds = ", ".join(outcome.ignored_preferences)
        yield Prose(f"  ignored  {kinds} (only plugin nodeorder weighs these)", 11)


def _plugin_text(plugin: Plugin) -> str:
    return plugin.name if plugin.has_effect else f"{plugin.name} (no effect)"


def _weight_text(policy: str, weight: int) -> str:
    return f"{policy}, weight {weight}" if weight and policy != "none" else "no score"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
