"""Questions to a policy about plugins, switches and arguments.

A default is said once, in `known`; what the file does not give is answered from there.
"""

from typing import TypeVar

from allotment.core.config.known import CONFIGURATIONS, OFF_BY_DEFAULT, PLUGINS, SWITCHES
from allotment_proto.facts import PluginUse, Policy

Plain = TypeVar("Plain", int, bool, str)


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
