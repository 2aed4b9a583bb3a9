"""`actions`, `configurations` and `metrics`: what is not about plugins."""

from allotment.core.config.arguments import read_known
from allotment.core.config.document import Mapping, Scalar, Value, is_empty, is_text
from allotment.core.config.known import ACTIONS, ACTIONS_NOT_SUPPORTED, NO_EFFECT
from allotment.core.config.report import Report, hint
from allotment.core.plugin_arguments import CONFIGURATIONS
from allotment_proto.facts import PluginUse


def read_actions(report: Report, value: Value) -> tuple[str, ...]:
    """The actions in their order, each once. An unknown one is a problem, as in Volcano."""
    if not is_text(value):
        report.wrong("actions", value, "a text like 'enqueue, allocate, backfill'")
        return ()
    found: dict[str, None] = {}
    for action in (word.strip() for word in value.text.split(",")):
        if action in ACTIONS_NOT_SUPPORTED:
            report.warn(value.mark, f"actions: {action} is not supported; {NO_EFFECT}")
        elif action not in ACTIONS:
            known = (*ACTIONS, *ACTIONS_NOT_SUPPORTED)
            near = hint(action, known) if action else "an action is missing between commas"
            one_of = ", ".join(sorted(ACTIONS))
            report.fail(value.mark, f"actions is {action!r}; wanted: one of {one_of}; {near}")
        elif action in found:
            report.warn(value.mark, f"actions: {action} is listed twice; once is enough here")
        else:
            found[action] = None
    return tuple(found)


def read_configurations(report: Report, value: Value) -> tuple[PluginUse, ...]:
    """Arguments by action, sorted by its name. Of two for one action the first counts."""
    found: dict[str, PluginUse] = {}
    wanted = "a list of mappings with name and arguments"
    for item in report.list_of("configurations", value, wanted):
        use = _configuration(report, item)
        if use is None:
            continue
        if found.setdefault(use.name, use) is not use:
            report.warn(item.mark, f"configuration {use.name} is listed twice; the first counts")
    return tuple(found[name] for name in sorted(found) if found[name].arguments)


def _configuration(report: Report, value: Value) -> PluginUse | None:
    if not isinstance(value, Mapping):
        report.wrong("a configuration", value, "a mapping with name and arguments")
        return None
    name = value.get("name")
    if not is_text(name):
        report.name("a configuration", value.mark, name)
        return None
    report.unknown_keys("of a configuration", value.entries, ("name", "arguments"))
    owner = f"configuration {name.text}"
    if name.text in ACTIONS_NOT_SUPPORTED:
        report.warn(name.mark, f"{owner}: {NO_EFFECT}")
        return None
    if name.text not in CONFIGURATIONS:
        report.warn(name.mark, f"unknown {owner}, ignored; {hint(name.text, CONFIGURATIONS)}")
        return None
    arguments = value.get("arguments")
    if arguments is None or is_empty(arguments):
        return PluginUse(name.text)
    if not isinstance(arguments, Mapping):
        report.wrong(f"arguments of {owner}", arguments, "a mapping")
        return None
    found = read_known(report, owner, arguments.entries, CONFIGURATIONS[name.text])
    return PluginUse(name.text, arguments=tuple(sorted(found.items())))


def read_metrics(report: Report, value: Value) -> None:
    """Where Volcano's plugin `usage` gets measured load from. Its values may be secret: they are
    not shown.
    """
    if is_empty(value):
        return
    if not isinstance(value, Mapping):
        report.wrong("metrics", value, "a mapping")
        return
    for entry in value.entries:
        if not isinstance(entry.value, Scalar):
            report.wrong(f"metrics.{entry.key}", entry.value, "a text")
    report.warn(value.mark, f"metrics: {NO_EFFECT}; no plugin here asks for measured load")
