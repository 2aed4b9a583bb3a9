"""Arguments whose keys users choose: resource names of `binpack` and `resource-strategy-fit`."""

from collections.abc import Iterable

from allotment.core.config.arguments import Arguments, read, read_known, unknown
from allotment.core.config.document import Entry, Mapping, Scalar, Value, is_empty, is_text
from allotment.core.config.known import NO_EFFECT, PLUGINS
from allotment.core.config.report import Report
from allotment.core.plugin_arguments import Argument, Kind

_LISTED = "binpack.resources"
_BY_RESOURCE = f"{_LISTED}."
"""Prefix of binpack's weights by resource, `cpu` and `memory` not among them."""

_MOST = "most."
_LEAST = "least."
"""Prefixes of resource-strategy-fit's weights by resource, by what is preferred there."""

_TYPES = {"MostAllocated": _MOST, "LeastAllocated": _LEAST}
_WEIGHT = Argument(Kind.INTEGER, 1)
_RESOURCE_WEIGHT = Argument(Kind.INTEGER, 1, least=1)
_FIT_WEIGHT = "resourceStrategyFitWeight"


def read_binpack(report: Report, owner: str, entries: Iterable[Entry]) -> Arguments:
    """Every resource of `binpack.resources` gets a weight, 1 if the file has none.

    The weight of a resource that is not listed counts for nothing, as in Volcano; that is said.
    """
    given = tuple(entries)
    listed = next((entry for entry in given if entry.key == _LISTED), None)
    names = _names(report, owner, listed.value) if listed else ()
    known = PLUGINS["binpack"]
    fixed = [entry for entry in given if entry.key in known]
    weights: Arguments = {_BY_RESOURCE + name: _WEIGHT.default for name in names}
    for entry in given:
        name = entry.key.removeprefix(_BY_RESOURCE)
        if entry is listed or entry.key in known:
            continue
        if name == entry.key:
            unknown(report, owner, entry, (*known, _LISTED, f"{_BY_RESOURCE}<name>"))
        elif name not in names:
            report.warn(
                entry.mark,
                f"{entry.key} of {owner} has no effect: {name} is not listed in {_LISTED}",
            )
        else:
            weight = read(report, f"{entry.key} of {owner}", entry.value, _WEIGHT)
            weights[entry.key] = _WEIGHT.default if weight is None else weight
    return {**read_known(report, owner, fixed, known), **weights}


def _names(report: Report, owner: str, value: Value) -> tuple[str, ...]:
    if not is_text(value):
        wanted = "a text of resource names with commas between them"
        report.ignored(f"{_LISTED} of {owner}", value, wanted, "no resource is listed")
        return ()
    return tuple(name for name in map(str.strip, value.text.split(",")) if name)


def read_strategy(report: Report, owner: str, entries: Iterable[Entry]) -> Arguments:
    """`resources` as ``most.<name>`` and ``least.<name>`` with the weight."""
    found: Arguments = {}
    for entry in entries:
        match entry.key:
            case "resourceStrategyFitWeight":
                found.update(read_known(report, owner, (entry,), PLUGINS["resource-strategy-fit"]))
            case "resources":
                found.update(_strategies(report, owner, entry.value))
            case "sra" | "proportional":
                report.warn(entry.mark, f"{entry.key} of {owner}: {NO_EFFECT}")
            case _:
                known = (_FIT_WEIGHT, "resources", "sra", "proportional")
                unknown(report, owner, entry, known)
    return found


def _strategies(report: Report, owner: str, value: Value) -> Arguments:
    found: Arguments = {}
    if not isinstance(value, Mapping):
        if not is_empty(value):
            wanted = "a mapping from resource names to type and weight"
            report.wrong(f"resources of {owner}", value, wanted)
        return found
    for entry in value.entries:
        what = f"resources.{entry.key} of {owner}"
        if "*" in entry.key.removesuffix("*") or entry.key == "*":
            report.warn(
                entry.mark,
                f"{what} is ignored: only one asterisk, at the end of a name, is understood",
            )
        elif not isinstance(entry.value, Mapping):
            report.wrong(what, entry.value, "a mapping with type and weight")
        else:
            report.unknown_keys(f"in {what}", entry.value.entries, ("type", "weight"))
            prefix = _prefix(report, what, entry.value.get("type"))
            given = entry.value.get("weight")
            weight = (
                None if given is None else read(report, f"{what}: weight", given, _RESOURCE_WEIGHT)
            )
            found[prefix + entry.key] = _RESOURCE_WEIGHT.default if weight is None else weight
    return found


def _prefix(report: Report, what: str, value: Value | None) -> str:
    if isinstance(value, Scalar) and value.text in _TYPES:
        return _TYPES[value.text]
    if value is not None:
        wanted = f"one of {', '.join(_TYPES)}"
        report.ignored(f"{what}: type", value, wanted, "LeastAllocated counts")
    return _LEAST
