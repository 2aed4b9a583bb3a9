"""The arguments of our own plugin `allotment`. What it does not know is a problem, not a warning:
no file of another scheduler has it.
"""

from collections.abc import Iterable

from allotment.core.config.arguments import boolean, integer
from allotment.core.config.devices import WEIGHT_MAX, Fields, word
from allotment.core.config.document import Entry
from allotment.core.config.report import Report, hint

_HOST_POLICIES = ("binpack", "spread", "none")
_MIG_ORDERS = ("best-fit", "least-stranded", "listed")
_FIELDS = {
    "allotment.HostPolicy": "host_policy",
    "allotment.HostWeight": "host_weight",
    "allotment.FitWeight": "fit_weight",
    "allotment.MultiContainerEnable": "multi_container",
    "allotment.MigGeometryOrder": "mig_order",
    "allotment.NamespaceLabelInMetrics": "namespace_in_metrics",
    "allotment.NamespaceTurnsEnable": "namespace_turns",
    "allotment.DevicePluginBacklog": "plugin_backlog",
}
_BACKLOG_MAX = 1000
"""More than kubelet admits to a node."""


def read_allotment(report: Report, owner: str, entries: Iterable[Entry]) -> Fields:
    """The fields of the policy that the arguments set."""
    fields: Fields = {}
    for entry in entries:
        what = f"{entry.key} of {owner}"
        if entry.key not in _FIELDS:
            remedy = hint(entry.key, _FIELDS)
            report.fail(entry.mark, f"unknown argument {entry.key} of {owner}; {remedy}")
            continue
        found = _value(report, what, entry)
        if found is not None:
            fields[_FIELDS[entry.key]] = found
    return fields


def _value(report: Report, what: str, entry: Entry) -> str | int | bool | None:
    match entry.key:
        case "allotment.HostPolicy":
            return word(report, what, entry.value, _HOST_POLICIES)
        case "allotment.MigGeometryOrder":
            return word(report, what, entry.value, _MIG_ORDERS)
        case "allotment.HostWeight" | "allotment.FitWeight":
            return _number(report, what, entry, WEIGHT_MAX)
        case "allotment.DevicePluginBacklog":
            return _number(report, what, entry, _BACKLOG_MAX)
        case _:
            on = boolean(entry.value)
            if on is None:
                report.wrong(what, entry.value, "true or false")
            return on


def _number(report: Report, what: str, entry: Entry, most: int) -> int | None:
    number = integer(entry.value)
    if number is None or not 0 <= number <= most:
        report.wrong(what, entry.value, f"a whole number from 0 to {most}")
        return None
    return number
