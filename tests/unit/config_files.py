"""Configuration files of a few lines, and what reading them gives: a policy, warnings, problems."""

import pytest

from allotment.core.config import policy
from allotment.core.config.known import PLUGINS
from allotment.core.plugin_arguments import plugin
from allotment_proto.facts import PluginUse


def file_of(plugin: str, *lines: str) -> str:
    """A file with one plugin; its arguments are in line 5 and after, from column 7."""
    arguments = "".join(f"\n      {line}" for line in lines)
    return f"tiers:\n- plugins:\n  - name: {plugin}\n    arguments:{arguments}\n"


def parsed(text: str) -> policy.Parsed:
    return policy.parse(text, "conf", ("allotment",))


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(policy.PolicyError) as caught:
        parsed(text)
    return caught.value.problems


def use_of(name: str, *lines: str) -> PluginUse:
    """The plugin as read, where nothing is to be said of it."""
    found = parsed(file_of(name, *lines))
    assert found.warnings == ()
    use = plugin(found.policy, name)
    assert use is not None
    return use


def own_arguments(use: PluginUse) -> tuple[tuple[str, int | bool | str], ...]:
    """The arguments of a plugin without the defaults that policies name."""
    recorded = {
        (key, argument.default)
        for key, argument in PLUGINS.get(use.name, {}).items()
        if argument.is_recorded
    }
    return tuple(found for found in use.arguments if found not in recorded)


def warning(text: str) -> str:
    (found,) = parsed(text).warnings
    return found
