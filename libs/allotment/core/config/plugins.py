"""Tiers of plugins: names, switches, and each plugin's arguments by its own reader."""

from typing import NamedTuple

from allotment.core.config.arguments import Arguments, read_known
from allotment.core.config.devices import Fields, read_deviceshare
from allotment.core.config.document import Entry, Mapping, Mark, Scalar, Value, is_empty, is_text
from allotment.core.config.known import NO_EFFECT, PLUGINS, PLUGINS_WITHOUT_EFFECT
from allotment.core.config.named import read_binpack, read_strategy
from allotment.core.config.own import read_allotment
from allotment.core.config.report import Report, hint
from allotment.core.plugin_arguments import OFF_BY_DEFAULT, ON_BY_DEFAULT, SWITCHES
from allotment_proto.facts import PluginUse

_KEYS = ("name", "arguments", *SWITCHES)
_NAMED = {"binpack": read_binpack, "resource-strategy-fit": read_strategy}
_FIELDS = {"deviceshare": read_deviceshare, "allotment": read_allotment}


class Used(NamedTuple):
    """A plugin of the file: where it stands, its tier counted from 1, and what is said of it."""

    mark: Mark
    tier: int
    use: PluginUse
    fields: Fields
    """Fields of the policy that its arguments set."""


def read_tiers(report: Report, value: Value) -> tuple[Used, ...]:
    """The plugins of all tiers, in order. A plugin that stands there again is left out."""
    found: dict[str, Used] = {}
    wanted = "a list of tiers, each with plugins"
    tiers = report.list_of("tiers", value, wanted)
    for tier, item in enumerate(tiers, start=1):
        for plugin in _plugins(report, tier, item):
            used = _plugin(report, tier, plugin)
            if used is None:
                continue
            first = found.setdefault(used.use.name, used)
            if first is not used:
                report.warn(
                    used.mark,
                    f"plugin {used.use.name} is listed twice; this one is left out, the one in "
                    f"line {first.mark.line} counts",
                )
    return tuple(found.values())


def _plugins(report: Report, tier: int, value: Value) -> tuple[Value, ...]:
    what, wanted = f"tier {tier}", "a mapping with a list of plugins"
    if not isinstance(value, Mapping):
        report.wrong(what, value, wanted)
        return ()
    report.unknown_keys(f"in {what}", value.entries, ("plugins",))
    plugins = value.get("plugins")
    if plugins is None or is_empty(plugins):
        report.warn(value.mark, f"{what} has no plugins")
        return ()
    return report.list_of(f"plugins of {what}", plugins, wanted)


def _plugin(report: Report, tier: int, value: Value) -> Used | None:
    if not isinstance(value, Mapping):
        report.wrong(f"a plugin of tier {tier}", value, "a mapping with a name")
        return None
    name = value.get("name")
    if not is_text(name):
        report.name(f"a plugin of tier {tier}", value.mark, name)
        return None
    is_known = name.text in PLUGINS
    if not is_known and name.text not in PLUGINS_WITHOUT_EFFECT:
        known = (*PLUGINS, *PLUGINS_WITHOUT_EFFECT)
        report.fail(name.mark, f"unknown plugin {name.text!r}; {hint(name.text, known)}")
        return None
    owner = f"plugin {name.text}"
    off, on = _switches(report, owner, name.text, value.entries)
    fields: Fields = {}
    found: Arguments = {}
    if is_known:
        entries = _arguments(report, owner, value.get("arguments"))
        found, fields = _read(report, owner, name.text, entries)
    else:
        report.warn(name.mark, f"{owner}: {NO_EFFECT}")
    use = PluginUse(name.text, off, on, tuple(sorted(found.items())))
    return Used(name.mark, tier, use, fields)


def _read(
    report: Report, owner: str, name: str, entries: tuple[Entry, ...]
) -> tuple[Arguments, Fields]:
    if name in _FIELDS:
        return {}, _FIELDS[name](report, owner, entries)
    if name in _NAMED:
        return _NAMED[name](report, owner, entries), {}
    known = PLUGINS[name]
    recorded = {key: known[key].default for key in known if known[key].is_recorded}
    return {**recorded, **read_known(report, owner, entries, known)}, {}


def _arguments(report: Report, owner: str, value: Value | None) -> tuple[Entry, ...]:
    if value is None or is_empty(value):
        return ()
    if not isinstance(value, Mapping):
        report.wrong(f"arguments of {owner}", value, "a mapping")
        return ()
    return value.entries


def _switches(
    report: Report, owner: str, name: str, entries: tuple[Entry, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The switches that are not as they are by default: those off, those on."""
    off: list[str] = []
    on: list[str] = []
    for entry in entries:
        if entry.key in PLUGINS.get(name, {}):
            report.warn(
                entry.mark,
                f"{entry.key} is an argument of {owner} and ignored here; put it under arguments",
            )
        elif entry.key not in _KEYS:
            remedy = hint(entry.key, _KEYS)
            report.warn(entry.mark, f"unknown key {entry.key} of {owner}, ignored; {remedy}")
        elif entry.key in SWITCHES and not is_empty(entry.value):
            is_on = entry.value.value if isinstance(entry.value, Scalar) else None
            if not isinstance(is_on, bool):
                report.wrong(f"{entry.key} of {owner}", entry.value, "true or false without quotes")
            elif is_on and entry.key in OFF_BY_DEFAULT:
                on.append(entry.key)
            elif not is_on and entry.key in ON_BY_DEFAULT:
                off.append(entry.key)
    return tuple(sorted(off)), tuple(sorted(on))


def tiers_of(used: tuple[Used, ...]) -> tuple[tuple[PluginUse, ...], ...]:
    """The plugins by tier; a tier without any is left out."""
    tiers = sorted({one.tier for one in used})
    return tuple(tuple(one.use for one in used if one.tier == tier) for tier in tiers)


def fields_of(used: tuple[Used, ...]) -> Fields:
    """The fields of the policy that all plugins set."""
    return {name: value for one in used for name, value in one.fields.items()}
