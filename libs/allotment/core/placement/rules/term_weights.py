"""Which terms a policy's plugins add to a node's score, and with what weights.

The plugins `nodeorder`, `binpack` and `resource-strategy-fit` count only if a configuration file
gave the tiers. What is built in (tiers equal to `BUILT_IN_TIERS`) scores by the device and the host
policy alone: so it always was, and logs from before there were tiers replay as they were decided.
A plugin that is not in any tier, or whose `enableNodeOrder` is off, adds nothing.
"""

from typing import NamedTuple

from allotment.core.placement.rules.points import FULL_MICRO
from allotment.core.plugin_arguments import (
    Argument,
    Arguments,
    Kind,
    by_prefix,
    is_on,
    number,
    plugin,
    weight,
)
from allotment_proto.facts import BUILT_IN_TIERS, PluginUse, Policy

CPU = "cpu"
MEMORY = "memory"
SWITCH = "enableNodeOrder"
BALANCED_COMPARES_SINCE = 33
"""The minor version of Kubernetes from which on `balanced` compares a node with itself before.
It was so in 1.36 and not in 1.32; between them it is not known."""


NODEORDER: Arguments = {
    "leastrequested.weight": weight(1),
    "mostrequested.weight": weight(0),
    "nodeaffinity.weight": weight(2),
    "podaffinity.weight": weight(2),
    "balancedresource.weight": weight(1),
    "tainttoleration.weight": weight(3),
    "imagelocality.weight": weight(1),
    "podtopologyspread.weight": weight(2),
    "balancedresource.kubernetesMinor": Argument(Kind.INTEGER, 36),
}
BINPACK: Arguments = {
    "binpack.weight": weight(1),
    "binpack.cpu": weight(1),
    "binpack.memory": weight(1),
}
RESOURCE_STRATEGY_FIT: Arguments = {"resourceStrategyFitWeight": weight(10)}
"""What the three plugins can be told; a policy that says nothing has these defaults."""


class NodeOrder(NamedTuple):
    """Weights of nodeorder's terms, 0 … 1000; each term is worth 0 … 100 points."""

    least: int
    most: int
    balanced: int
    affinity: int
    taints: int
    pods: int
    spread: int
    images: int
    balanced_compares: bool
    """Whether `balanced` rewards what makes a node more even, or an even node."""


class Binpack(NamedTuple):
    """Weights of binpack by resource. A resource that is not named here does not count."""

    weight: int
    resources: dict[str, int]


class Strategy(NamedTuple):
    """How one resource counts: more points for `most` in use, or for least."""

    most: bool
    weight: int


class StrategyFit(NamedTuple):
    """Strategies of resource-strategy-fit by resource name; `prefixes`, longest first, are for
    names that are not among them."""

    weight: int
    resources: dict[str, Strategy]
    prefixes: tuple[tuple[str, Strategy], ...]

    def of(self, resource: str) -> Strategy | None:
        found = self.resources.get(resource)
        if found is not None:
            return found
        return next((s for prefix, s in self.prefixes if resource.startswith(prefix)), None)


class Weights(NamedTuple):
    """What a policy's plugins add; None for a plugin that adds nothing."""

    nodeorder: NodeOrder | None
    binpack: Binpack | None
    fit: StrategyFit | None


NONE = Weights(None, None, None)
_KNOWN_MOST = 16
_known: dict[int, tuple[Policy, Weights]] = {}


def weights_of(policy: Policy) -> Weights:
    """The weights of a policy, remembered by its identity."""
    known = _known.get(id(policy))
    if known is None or known[0] is not policy:
        if len(_known) >= _KNOWN_MOST:
            _known.clear()
        known = _known[id(policy)] = policy, _weights(policy)
    return known[1]


def most_micro(weights: Weights) -> int:
    """The most that the plugins can add."""
    nodeorder = 0 if weights.nodeorder is None else sum(weights.nodeorder[:-1])
    shares = [plugin.weight for plugin in (weights.binpack, weights.fit) if plugin is not None]
    return (nodeorder + sum(shares)) * FULL_MICRO


def _weights(policy: Policy) -> Weights:
    if policy.tiers == BUILT_IN_TIERS:
        return NONE
    nodeorder, binpack, fit = (
        _active(policy, name) for name in ("nodeorder", "binpack", "resource-strategy-fit")
    )
    return Weights(
        None if nodeorder is None else _nodeorder(nodeorder),
        None if binpack is None else _binpack(binpack),
        None if fit is None else _fit(fit),
    )


def _active(policy: Policy, name: str) -> PluginUse | None:
    use = plugin(policy, name)
    return use if use is not None and is_on(use, SWITCH) else None


def _nodeorder(use: PluginUse) -> NodeOrder:
    return NodeOrder(
        least=number(use, NODEORDER, "leastrequested.weight"),
        most=number(use, NODEORDER, "mostrequested.weight"),
        balanced=number(use, NODEORDER, "balancedresource.weight"),
        affinity=number(use, NODEORDER, "nodeaffinity.weight"),
        taints=number(use, NODEORDER, "tainttoleration.weight"),
        pods=number(use, NODEORDER, "podaffinity.weight"),
        spread=number(use, NODEORDER, "podtopologyspread.weight"),
        images=number(use, NODEORDER, "imagelocality.weight"),
        balanced_compares=number(use, NODEORDER, "balancedresource.kubernetesMinor")
        >= BALANCED_COMPARES_SINCE,
    )


def _binpack(use: PluginUse) -> Binpack | None:
    weight = number(use, BINPACK, "binpack.weight")
    listed = {
        CPU: number(use, BINPACK, "binpack.cpu"),
        MEMORY: number(use, BINPACK, "binpack.memory"),
        **dict(by_prefix(use, "binpack.resources.")),
    }
    return Binpack(weight, listed) if weight else None


def _fit(use: PluginUse) -> StrategyFit | None:
    weight = number(use, RESOURCE_STRATEGY_FIT, "resourceStrategyFitWeight")
    found: dict[str, Strategy] = {}
    for prefix, most in (("most.", True), ("least.", False)):
        for name, each in by_prefix(use, prefix):
            found[name] = Strategy(most, each)
    if not found:
        found = {CPU: Strategy(False, 1), MEMORY: Strategy(False, 1)}
    wild = {name.removesuffix("*"): s for name, s in found.items() if name.endswith("*")}
    exact = {name: s for name, s in found.items() if not name.endswith("*")}
    prefixes = tuple(sorted(wild.items(), key=lambda item: (-len(item[0]), item[0])))
    return StrategyFit(weight, exact, prefixes) if weight else None
