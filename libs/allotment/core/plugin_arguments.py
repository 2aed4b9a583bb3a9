"""What arguments a plugin has, and what a policy says about plugins, switches and arguments.

Each plugin declares its arguments next to the code that reads them; `config.known` has them all by
name.

Spellings and defaults are Volcano's; they are part of its contract, including that some switches
begin with *enable* and others with *enabled*.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import wraps
from typing import NamedTuple, TypeVar

from allotment_proto.facts import PluginUse, Policy

_Plain = TypeVar("_Plain", int, bool, str)
_Made = TypeVar("_Made")

ON_BY_DEFAULT = (
    "enableJobOrder",
    "enableJobReady",
    "enableJobPipelined",
    "enableTaskOrder",
    "enablePreemptable",
    "enableReclaimable",
    "enablePreemptive",
    "enableQueueOrder",
    "enablePredicate",
    "enableBestNode",
    "enableNodeOrder",
    "enableTargetJob",
    "enableReservedNodes",
    "enableJobEnqueued",
    "enableJobStarving",
    "enabledVictim",
    "enabledOverused",
    "enabledAllocatable",
    "enabledHyperNodeOrder",
    "enabledSubJobReady",
    "enabledSubJobPipelined",
    "enabledSubJobOrder",
    "enabledHyperNodeGradient",
)
OFF_BY_DEFAULT = ("enableHierarchy", "enabledClusterOrder")
SWITCHES = ON_BY_DEFAULT + OFF_BY_DEFAULT

WEIGHT_MAX = 1_000
"""The most that a weight of a plugin may be, so that sums of weighted points fit 64 bits."""


class Kind(Enum):
    """What an argument must be; the value is how messages ask for it."""

    INTEGER = "a whole number"
    DECIMAL = "a number"
    BOOLEAN = "true or false"
    DURATION = "a duration like 1h30m"


class Argument(NamedTuple):
    """Decimals in thousandths, durations in milliseconds. Below `least` the default counts, as
    in Volcano; above `most` the file is refused. `is_used` is false for what is only read.
    """

    kind: Kind
    default: int | bool
    least: int = 0
    most: int = WEIGHT_MAX
    is_used: bool = True
    is_recorded: bool = False
    """Whether policies name the default too: the argument is younger than policies in logs, and
    without it means what it did then."""
    field: str = ""
    """The field of the struct that a queue plugin is made with; empty for what it does not read."""


def weight(default: int) -> Argument:
    """A weight of a score, a whole number."""
    return Argument(Kind.INTEGER, default)


def boolean(default: bool, is_used: bool = True, field: str = "") -> Argument:
    """A switch among the arguments."""
    return Argument(Kind.BOOLEAN, default, is_used=is_used, field=field)


UNUSED = Argument(Kind.INTEGER, 0, is_used=False)
_CACHE = {"predicateErrorCacheEnable": boolean(True)}
Arguments = Mapping[str, Argument]
"""The arguments of a plugin or an action, by the key in the file."""
_NONE: Arguments = {}

INIT_PARAMS = "init-params"
CONFIGURATIONS: dict[str, Arguments] = {
    "enqueue": _NONE,
    "allocate": _CACHE,
    "backfill": _CACHE,
    "preempt": {
        **_CACHE,
        "enableTopologyAwarePreemption": boolean(False, is_used=False),
        "topologyAwarePreemptWorkerNum": UNUSED,
        "minCandidateNodesPercentage": UNUSED,
        "minCandidateNodesAbsolute": UNUSED,
        "maxCandidateNodesAbsolute": UNUSED,
    },
    "reclaim": _CACHE,
    INIT_PARAMS: {
        "presetVirtualDevice": boolean(False),
        "useClusterInfoManager": boolean(True),
        "self-maintain-available-card": boolean(True),
    },
}


_REMEMBERED_MOST = 16


def remembered(make: Callable[[Policy], _Made]) -> Callable[[Policy], _Made]:
    """`make`, called once a policy.

    Policies are distinguished by identity, which is cheaper to compare than their content; the
    entry holds its policy, so an address is not taken for another's that had it before.
    """
    made: dict[int, tuple[Policy, _Made]] = {}

    @wraps(make)
    def look_up(policy: Policy) -> _Made:
        known = made.get(id(policy))
        if known is None or known[0] is not policy:
            if len(made) >= _REMEMBERED_MOST:
                made.clear()
            known = made[id(policy)] = policy, make(policy)
        return known[1]

    return look_up


def plugin(policy: Policy, name: str) -> PluginUse | None:
    """The plugin as the policy uses it; None if no tier has it."""
    return next((use for tier in policy.tiers for use in tier if use.name == name), None)


def _configuration(policy: Policy, action: str) -> PluginUse:
    """The arguments of an action, or of ``init-params``; without any, all have their defaults."""
    named = (use for use in policy.configurations if use.name == action)
    return next(named, PluginUse(action))


def is_configured(policy: Policy, action: str, key: str) -> bool:
    """A switch of an action, or of ``init-params``. Raises KeyError for what is not declared."""
    return flag(_configuration(policy, action), CONFIGURATIONS[action], key)


def is_on(use: PluginUse, switch: str) -> bool:
    """Is a switch on, like ``enablePreemptable``? Raises KeyError for a name that is none."""
    if switch not in SWITCHES:
        raise KeyError(switch)
    return switch in use.on if switch in OFF_BY_DEFAULT else switch not in use.off


def argument(use: PluginUse, key: str, default: _Plain) -> _Plain:
    """What the file gives, or `default`: for keys that have no default of their own."""
    found = dict(use.arguments).get(key, default)
    return found if type(found) is type(default) else default


def number(use: PluginUse, declared: Arguments, key: str) -> int:
    """An integer, thousandths of a decimal, or milliseconds (0: no such time). Raises KeyError for
    an argument that is not declared.
    """
    return argument(use, key, int(declared[key].default))


def flag(use: PluginUse, declared: Arguments, key: str) -> bool:
    """Raises KeyError for an argument that is not declared."""
    return argument(use, key, bool(declared[key].default))


def by_prefix(use: PluginUse, prefix: str) -> tuple[tuple[str, int], ...]:
    """Weights by resource name: the arguments whose keys begin with `prefix`, like
    ``binpack.resources.``, ``most.`` and ``least.``.
    """
    return tuple(
        (key.removeprefix(prefix), value)
        for key, value in use.arguments
        if key.startswith(prefix) and isinstance(value, int)
    )
