"""Which checks a configuration file turned off: the arguments of the plugin `predicates`.

A check that no argument turns off always runs, even if no tier has the plugin: a pod on a wrong
node is a failed pod. Readiness, cordons, amounts and cards are always checked.
"""

from typing import NamedTuple

from allotment.core.plugin_arguments import (
    UNUSED,
    Arguments,
    boolean,
    flag,
    is_on,
    plugin,
    remembered,
)
from allotment_proto.facts import Policy

_ARGUMENTS = {
    "affinity": "predicate.NodeAffinityEnable",
    "taints": "predicate.TaintTolerationEnable",
    "ports": "predicate.NodePortsEnable",
    "pods": "predicate.PodAffinityEnable",
    "spread": "predicate.PodTopologySpreadEnable",
    "volumes": "predicate.VolumeBindingEnable",
    "limits": "predicate.NodeVolumeLimitsEnable",
}

ARGUMENTS: Arguments = {
    **{argument: boolean(True) for argument in _ARGUMENTS.values()},
    "predicate.VolumeZoneEnable": boolean(True),
    "predicate.CacheEnable": boolean(False),
    "predicate.DynamicResourceAllocationEnable": boolean(False, is_used=False),
    "volumebinding.bindTimeoutSeconds": UNUSED,
    "volumebinding.shape": UNUSED,
    "volumebinding.weight": UNUSED,
    "dynamicresources.filterTimeoutSeconds": UNUSED,
}
"""The arguments of the plugin `predicates`. Zones of volumes are part of where a volume can be
reached, and nothing is cached between pods, so those two change nothing.
"""


class Switches(NamedTuple):
    """What is checked: node selector and affinity, taints, host ports, rules about other pods,
    required spread, where volumes can be reached and how many can be attached.
    """

    affinity: bool = True
    taints: bool = True
    ports: bool = True
    pods: bool = True
    spread: bool = True
    volumes: bool = True
    limits: bool = True


ALL = Switches()


@remembered
def switches_of(policy: Policy) -> Switches:
    """The switches of a policy."""
    use = plugin(policy, "predicates")
    if use is None:
        return ALL
    if not is_on(use, "enablePredicate"):
        return Switches(*(False for _ in _ARGUMENTS))
    return Switches(
        **{name: flag(use, ARGUMENTS, argument) for name, argument in _ARGUMENTS.items()}
    )
