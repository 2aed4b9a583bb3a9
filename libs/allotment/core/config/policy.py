"""Configuration text → `Policy`, with the place of every mistake.

The file is Volcano's `volcano-scheduler.conf`: `actions`, `tiers` of `plugins` with switches and
`arguments`, `configurations` by action, `metrics`; and a plugin `allotment` for what Volcano has no
word for. What the file leaves out is as built in (`built_in`): a file without `actions` or without
`tiers` has the built-in ones, a file without content is the built-in policy.

Refused, so that the version before stays active: what Volcano refuses, unknown names of
plugins, and words and numbers that cannot be followed. Warned of: what is left aside (unknown
keys and arguments, values of another type, as Volcano does silently) and what has no effect. A
number in quotes is no value of another type: it counts as the number that is meant, which Volcano
leaves aside.
"""

from typing import NamedTuple

import msgspec

from allotment.core.config.checks import check
from allotment.core.config.devices import Fields
from allotment.core.config.document import DocumentError, Mapping, load
from allotment.core.config.plugins import fields_of, read_tiers, tiers_of
from allotment.core.config.report import Report
from allotment.core.config.sections import read_actions, read_configurations, read_metrics
from allotment.core.placement.instances import BEST_FIT
from allotment.core.placement.policies.learning import LEARNERS
from allotment.core.placement.rules.terms import TERMS
from allotment_proto.facts import BUILT_IN_TIERS, Policy

_PLUGIN_BACKLOG = 4
"""A burst opens as many nodes as it needs to start within about four times what a device plugin
takes for a pod; later pods fill the same nodes up."""
_HOST_SCORERS = frozenset(term.name for term in TERMS)
_KEYS = ("actions", "tiers", "configurations", "metrics")


class PolicyError(Exception):
    """Raised for a configuration that cannot be used; `problems` name place, value and remedy.
    `warnings` are what would have been warned of along with them.
    """

    def __init__(self, problems: tuple[str, ...], warnings: tuple[str, ...] = ()) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.warnings = warnings


class Parsed(NamedTuple):
    policy: Policy
    warnings: tuple[str, ...]


def built_in(scheduler_names: tuple[str, ...]) -> Policy:
    """The policy without a file. `Policy()` alone is active until the log names one."""
    return Policy(
        scheduler_names=scheduler_names,
        fit_weight=Policy().device_weight,
        mig_order=BEST_FIT,
        namespace_turns=True,
        plugin_backlog=_PLUGIN_BACKLOG,
    )


def parse(text: str, source: str, scheduler_names: tuple[str, ...]) -> Parsed:
    """The policy of a configuration text. Raises `PolicyError` naming each mistake by its place,
    ``<source>:<line>:<column>``.
    """
    report = Report(source)
    policy = built_in(scheduler_names)
    try:
        root, doubled = load(text)
    except DocumentError as error:
        report.fail(error.mark, error.message)
        raise PolicyError(tuple(report.problems)) from error
    for again in doubled:
        message = (
            f"key {again.key} stands here again (first in line {again.first.line}); this counts"
        )
        report.warn(again.mark, message)
    if isinstance(root, Mapping):
        fields = _fields(report, root)
        policy = msgspec.structs.replace(policy, **fields)
    elif root is not None:
        report.fail(root.mark, "must be a mapping with actions and tiers")
    if report.problems:
        raise PolicyError(tuple(report.problems), tuple(report.warnings))
    return Parsed(policy, tuple(report.warnings))


def _fields(report: Report, root: Mapping) -> Fields:
    """The fields of the policy that the file sets."""
    fields: Fields = {}
    report.unknown_keys("of the file", root.entries, _KEYS)
    for entry in root.entries:
        match entry.key:
            case "actions":
                fields["actions"] = read_actions(report, entry.value)
            case "tiers":
                used = read_tiers(report, entry.value)
                check(report, used)
                fields.update(fields_of(used), tiers=tiers_of(used))
            case "configurations":
                fields["configurations"] = read_configurations(report, entry.value)
            case "metrics":
                read_metrics(report, entry.value)
            case _:
                continue
    weighs_hosts = _weighs_hosts(fields)
    if weighs_hosts and not fields.keys() & {"device_policy", "device_weight"}:
        # As in Volcano: packed cards would outweigh all that pods prefer and plugins say of nodes.
        fields["device_weight"] = 0
    if "fit_weight" not in fields:
        is_scored = fields.get("device_policy", Policy().device_policy) != "none"
        weight = fields.get("device_weight", Policy().device_weight)
        fields["fit_weight"] = weight if is_scored else 0
    is_host_said = fields.keys() & {"host_policy", "host_weight"}
    if not is_host_said and (fields.get("device_policy") in LEARNERS or weighs_hosts):
        # they weigh the host's room themselves: another opinion on it would be one too many
        fields["host_weight"] = 0
    return fields


def _weighs_hosts(fields: Fields) -> bool:
    """Whether the file names plugins that score nodes by their CPU and memory."""
    tiers = fields.get("tiers", BUILT_IN_TIERS)
    return tiers != BUILT_IN_TIERS and any(
        use.name in _HOST_SCORERS for tier in tiers for use in tier
    )
