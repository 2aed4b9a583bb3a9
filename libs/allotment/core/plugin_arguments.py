"""The words of `volcano-scheduler.conf`: actions, switches, plugins and their arguments, and
what a policy that was read says about them.

Spellings and defaults are Volcano's; they are part of its contract, including that some switches
begin with *enable* and others with *enabled*.
"""

from enum import Enum
from typing import NamedTuple, TypeVar

from allotment_proto.facts import PluginUse, Policy

Plain = TypeVar("Plain", int, bool, str)

NO_EFFECT = "read, has no effect"
ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
ACTIONS_NOT_SUPPORTED = ("shuffle", "gangpreempt", "gangreclaim")

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


def _weight(default: int) -> Argument:
    return Argument(Kind.INTEGER, default)


def _boolean(default: bool, is_used: bool = True) -> Argument:
    return Argument(Kind.BOOLEAN, default, is_used=is_used)


_UNUSED = Argument(Kind.INTEGER, 0, is_used=False)
_CACHE = {"predicateErrorCacheEnable": _boolean(True)}
_NONE: dict[str, Argument] = {}
_DAY_MS = 24 * 3_600_000

PLUGINS: dict[str, dict[str, Argument]] = {
    "priority": _NONE,
    "gang": _NONE,
    "conformance": _NONE,
    "drf": _NONE,
    "deviceshare": _NONE,
    "predicates": {
        "predicate.NodeAffinityEnable": _boolean(True),
        "predicate.NodePortsEnable": _boolean(True),
        "predicate.TaintTolerationEnable": _boolean(True),
        "predicate.PodAffinityEnable": _boolean(True),
        "predicate.NodeVolumeLimitsEnable": _boolean(True),
        "predicate.VolumeZoneEnable": _boolean(True),
        "predicate.PodTopologySpreadEnable": _boolean(True),
        "predicate.VolumeBindingEnable": _boolean(True),
        "predicate.CacheEnable": _boolean(False),
        "predicate.DynamicResourceAllocationEnable": _boolean(False, is_used=False),
        "volumebinding.bindTimeoutSeconds": _UNUSED,
        "volumebinding.shape": _UNUSED,
        "volumebinding.weight": _UNUSED,
        "dynamicresources.filterTimeoutSeconds": _UNUSED,
    },
    "proportion": _NONE,
    "capacity": {
        "ancestorReclaimLevel": Argument(Kind.INTEGER, 0),
        "capacity.DynamicResourceAllocationEnable": _boolean(False, is_used=False),
        "capacity.DRAConsumableCapacityEnable": _boolean(False, is_used=False),
    },
    "capacity-card": {
        "cardUnlimitedCpuMemory": _boolean(False),
        "nodeOrderWeight": Argument(
            Kind.DECIMAL, 1_000, least=1, most=WEIGHT_MAX * 1_000, is_recorded=True
        ),
        "allotment.shareQuota": _boolean(True),
    },
    "nodeorder": {
        "leastrequested.weight": _weight(1),
        "mostrequested.weight": _weight(0),
        "nodeaffinity.weight": _weight(2),
        "podaffinity.weight": _weight(2),
        "balancedresource.weight": _weight(1),
        "tainttoleration.weight": _weight(3),
        "imagelocality.weight": _weight(1),
        "podtopologyspread.weight": _weight(2),
        "balancedresource.kubernetesMinor": Argument(Kind.INTEGER, 36),
    },
    "binpack": {
        "binpack.weight": _weight(1),
        "binpack.cpu": _weight(1),
        "binpack.memory": _weight(1),
    },
    "overcommit": {
        "overcommit-factor": Argument(Kind.DECIMAL, 1_200, least=1_000, most=1_000_000),
    },
    "nodegroup": {"strict": _boolean(True), "enablePreferredOrder": _boolean(False, is_used=False)},
    "resource-strategy-fit": {"resourceStrategyFitWeight": _weight(10)},
    "sla": {"sla-waiting-time": Argument(Kind.DURATION, 0, least=1, most=3_650 * _DAY_MS)},
    "allotment": _NONE,
}
"""Plugins that act here. What users name themselves (``binpack.resources.<name>``) and the
arguments of `deviceshare` and `allotment` have readers of their own.
"""

PLUGINS_WITHOUT_EFFECT = (
    "usage",
    "numaaware",
    "task-topology",
    "network-topology-aware",
    "tdm",
    "cdp",
    "rescheduling",
    "pdb",
    "extender",
    "resourcequota",
)
QUOTA_PLUGINS = ("proportion", "capacity", "capacity-card")

INIT_PARAMS = "init-params"
CONFIGURATIONS: dict[str, dict[str, Argument]] = {
    "enqueue": _NONE,
    "allocate": _CACHE,
    "backfill": _CACHE,
    "preempt": {
        **_CACHE,
        "enableTopologyAwarePreemption": _boolean(False, is_used=False),
        "topologyAwarePreemptWorkerNum": _UNUSED,
        "minCandidateNodesPercentage": _UNUSED,
        "minCandidateNodesAbsolute": _UNUSED,
        "maxCandidateNodesAbsolute": _UNUSED,
    },
    "reclaim": _CACHE,
    INIT_PARAMS: {
        "presetVirtualDevice": _boolean(False),
        "useClusterInfoManager": _boolean(True),
        "self-maintain-available-card": _boolean(True),
    },
}

ELSEWHERE = {
    "nodeorder.weight": "there is none; nodeorder has a weight for each of its terms",
    "drf.namespaceWeight": "there is none any more",
    "allocate.timeout": "there is none",
    "predicate.GPUSharingEnable": "it is deviceshare.GPUSharingEnable of the plugin deviceshare",
    "predicate.GPUNumberEnable": "it is deviceshare.GPUNumberEnable of the plugin deviceshare",
}
"""Arguments that older texts name, and what became of them."""


def plugin(policy: Policy, name: str) -> PluginUse | None:
    """The plugin as the policy uses it; None if no tier has it."""
    return next((use for tier in policy.tiers for use in tier if use.name == name), None)


def configuration(policy: Policy, action: str) -> PluginUse:
    """The arguments of an action, or of ``init-params``; without any, all have their defaults."""
    named = (use for use in policy.configurations if use.name == action)
    return next(named, PluginUse(action))


def is_on(use: PluginUse, switch: str) -> bool:
    """Is a switch on, like ``enablePreemptable``? Raises KeyError for a name that is none."""
    if switch not in SWITCHES:
        raise KeyError(switch)
    return switch in use.on if switch in OFF_BY_DEFAULT else switch not in use.off


def argument(use: PluginUse, key: str, default: Plain) -> Plain:
    """What the file gives, or `default`: for keys that have no default of their own."""
    found = dict(use.arguments).get(key, default)
    return found if type(found) is type(default) else default


def number(use: PluginUse, key: str) -> int:
    """An integer, thousandths of a decimal, or milliseconds (0: no such time). Raises KeyError for
    an argument that the plugin has not.
    """
    return argument(use, key, int(_default(use, key)))


def flag(use: PluginUse, key: str) -> bool:
    """Raises KeyError for an argument that the plugin has not."""
    return argument(use, key, bool(_default(use, key)))


def by_prefix(use: PluginUse, prefix: str) -> tuple[tuple[str, int], ...]:
    """Weights by resource name: the arguments whose keys begin with `prefix`, like
    ``binpack.resources.``, ``most.`` and ``least.``.
    """
    return tuple(
        (key.removeprefix(prefix), value)
        for key, value in use.arguments
        if key.startswith(prefix) and isinstance(value, int)
    )


def _default(use: PluginUse, key: str) -> int | bool:
    table = PLUGINS.get(use.name) or CONFIGURATIONS[use.name]
    return table[key].default
