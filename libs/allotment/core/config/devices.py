"""The arguments of `deviceshare`, and what they make of the policy."""

import re
from collections.abc import Iterable
from typing import Any

from allotment.core.config.arguments import boolean, integer, read, text_of, unknown
from allotment.core.config.document import Entry, Mapping, Sequence, Value, is_empty, is_text, show
from allotment.core.config.report import Report
from allotment.core.placement.devices import EXCLUSIVE_SWITCHES, FAMILIES, SWITCHES
from allotment.core.placement.policies import POLICIES
from allotment.core.plugin_arguments import Argument, Kind
from allotment_proto.facts import Policy

WEIGHT_MAX = 100
"""The most that `deviceshare.ScheduleWeight` and `allotment.HostWeight` may be."""

_POLICY = "deviceshare.SchedulePolicy"
_WEIGHT = "deviceshare.ScheduleWeight"
_LOCK = "deviceshare.NodeLockEnable"
_CONFIG_NAME = "deviceshare.KnownGeometriesCMName"
_CONFIG_NAMESPACE = "deviceshare.KnownGeometriesCMNamespace"
_RULES = "deviceshare.GPUExclusiveRules"
_KNOWN = (*SWITCHES, _LOCK, _POLICY, _WEIGHT, _CONFIG_NAME, _CONFIG_NAMESPACE, _RULES)

_FAMILY_NAMES = tuple(dict.fromkeys((*Policy().families, *FAMILIES)))
"""In the order in which a policy lists them: that of the default, and then what is newer."""

_OFF = Argument(Kind.BOOLEAN, False)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)

Fields = dict[str, Any]
"""Fields of the policy by name: those that the file sets."""

_Rules = tuple[tuple[tuple[str, str], ...], ...]


def read_deviceshare(report: Report, owner: str, entries: Iterable[Entry]) -> Fields:
    """The fields of the policy that the arguments set; a family is on that a switch names, or all
    are if no switch is there.
    """
    fields: Fields = {}
    switches: dict[str, Entry] = {}
    place = list(Policy().device_config)
    for entry in entries:
        what = f"{entry.key} of {owner}"
        if entry.key in SWITCHES:
            if boolean(entry.value) is None:
                report.ignored(what, entry.value, _OFF.kind.value, "it counts as not written")
            else:
                switches[entry.key] = entry
            continue
        match entry.key:
            case "deviceshare.NodeLockEnable":
                fields["node_lock"] = bool(read(report, what, entry.value, _OFF))
            case "deviceshare.SchedulePolicy":
                _schedule_policy(report, what, entry.value, fields)
            case "deviceshare.ScheduleWeight":
                _schedule_weight(report, what, entry.value, fields)
            case "deviceshare.KnownGeometriesCMName":
                place[1] = _object_name(report, what, entry.value, place[1])
            case "deviceshare.KnownGeometriesCMNamespace":
                place[0] = _object_name(report, what, entry.value, place[0])
            case "deviceshare.GPUExclusiveRules":
                fields["exclusive_rules"] = _exclusive_rules(report, what, entry.value)
            case _:
                unknown(report, owner, entry, _KNOWN)
    fields["device_config"] = (place[0], place[1])
    if switches:
        fields.update(_families(report, switches))
    return fields


def _families(report: Report, switches: dict[str, Entry]) -> Fields:
    on = [key for key, entry in switches.items() if boolean(entry.value)]
    for one, other in EXCLUSIVE_SWITCHES:
        if one in on and other in on:
            report.fail(
                switches[other].mark,
                f"{one} and {other} are both true, and Volcano does not start with both: they keep "
                "different books of the same cards; set one of them to false",
            )
    served = {SWITCHES[key][1].name for key in on}
    fields: Fields = {"families": tuple(name for name in _FAMILY_NAMES if name in served)}
    for family in FAMILIES.values():
        fields.update(family.policy_fields(frozenset(on)))
    return fields


def word(report: Report, what: str, value: Value, known: tuple[str, ...]) -> str | None:
    """A word of `known`, where nothing means ``none``. Another is a problem, and None."""
    found = "" if is_empty(value) else value.text if is_text(value) else None
    found = "none" if found == "" else found
    if found in known:
        return found
    report.wrong(what, value, f"one of {', '.join(known)}")
    return None


def _schedule_policy(report: Report, what: str, value: Value, fields: Fields) -> None:
    if not is_text(value) and not is_empty(value):
        fields["device_policy"] = text_of(report, what, value, Policy().device_policy)
        return
    found = word(report, what, value, tuple(POLICIES))
    if found is not None:
        fields["device_policy"] = found


def _schedule_weight(report: Report, what: str, value: Value, fields: Fields) -> None:
    default = Policy().device_weight
    weight = integer(value)
    if weight is not None and weight < 0:
        report.warn(value.mark, f"{what} is {show(value)}; it counts as 0, as all below 0 does")
        fields["device_weight"] = 0
        return
    read_weight = read(report, what, value, Argument(Kind.INTEGER, default, most=WEIGHT_MAX))
    if read_weight is not None:
        fields["device_weight"] = read_weight


def _object_name(report: Report, what: str, value: Value, default: str) -> str:
    name = text_of(report, what, value, default)
    if not _OBJECT_NAME.fullmatch(name):
        report.wrong(what, value, "a name as Kubernetes objects have it")
    return name


def _exclusive_rules(report: Report, what: str, value: Value) -> _Rules:
    """The label maps, each sorted by label. What is no text among labels is dropped, and said."""
    if not isinstance(value, Sequence):
        report.ignored(what, value, "a list of label maps", "there are no rules")
        return ()
    rules = (_rule(report, f"{what}[{index}]", item) for index, item in enumerate(value.items))
    return tuple(rule for rule in rules if rule)


def _rule(report: Report, what: str, value: Value) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        report.ignored(what, value, "a mapping from labels to texts", "the rule is left out")
        return ()
    labels: list[tuple[str, str]] = []
    for entry in value.entries:
        if not entry.is_text:
            report.warn(
                entry.mark, f"{what}: the label {entry.key} is no text and left out; quote it"
            )
        elif not is_text(entry.value):
            wanted = "a text, in quotes if need be"
            report.ignored(f"{what}.{entry.key}", entry.value, wanted, "the label is left out")
        else:
            labels.append((entry.key, entry.value.text))
    if not labels:
        report.warn(value.mark, f"{what} has no label and is left out")
    return tuple(sorted(labels))
