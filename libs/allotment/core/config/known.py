"""The words of `volcano-scheduler.conf`: actions, plugins, and the arguments that they declare."""

from allotment.core.placement.devices import SWITCHES
from allotment.core.placement.rules import switches
from allotment.core.placement.rules.terms import TERMS
from allotment.core.plugin_arguments import Arguments
from allotment.core.queues.plugins import registry

NO_EFFECT = "read, has no effect"
ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
ACTIONS_NOT_SUPPORTED = ("shuffle", "gangpreempt", "gangreclaim")

PLUGINS: dict[str, Arguments] = {
    **{name: plugin.declared for name, plugin in registry.PLUGINS.items()},
    "deviceshare": {},
    "predicates": switches.ARGUMENTS,
    **{term.name: term.arguments for term in TERMS},
    "allotment": {},
}
"""Plugins that act here. What users name themselves (``binpack.resources.<name>``) and the
arguments of `deviceshare` and `allotment` have readers of their own.
"""

PLUGINS_WITHOUT_EFFECT = (
    "usage",
    "numaaware",
    "network-topology-aware",
    "tdm",
    "cdp",
    "rescheduling",
    "pdb",
    "extender",
    "resourcequota",
)
QUOTA_PLUGINS = ("proportion", "capacity", "capacity-card")

ELSEWHERE = {
    "nodeorder.weight": "there is none; nodeorder has a weight for each of its terms",
    "drf.namespaceWeight": "it no longer exists",
    "allocate.timeout": "there is none",
    **{
        f"predicate.{switch.partition('.')[2]}": f"it is {switch} of the plugin deviceshare"
        for switch in SWITCHES
    },
}
"""Arguments that older texts name, and what became of them."""
