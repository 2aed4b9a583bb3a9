"""The plugins `binpack` and `resource-strategy-fit`: a weighted mean of shares in use, or free.

Points are micro-points, each share rounded to the nearest. Source: Volcano's plugins of these
names.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from allotment.core.ledger.model import Node
from allotment.core.placement.rules.points import FULL_MICRO, near_share_micro
from allotment.core.placement.rules.score_term import (
    CPU_NAME,
    MEMORY_NAME,
    Amount,
    amount_of,
)
from allotment.core.plugin_arguments import Arguments, by_prefix, number, weight
from allotment_proto.facts import PluginUse, PodRequest

_BINPACK: Arguments = {
    "binpack.weight": weight(1),
    "binpack.cpu": weight(1),
    "binpack.memory": weight(1),
}
_RESOURCE_STRATEGY_FIT: Arguments = {"resourceStrategyFitWeight": weight(10)}


class Binpack(NamedTuple):
    """Weights of binpack by resource. A resource without a weight does not count."""

    weight: int
    resources: dict[str, int]


class Strategy(NamedTuple):
    """How one resource counts: more points for `most` in use, or for least."""

    most: bool
    weight: int


class StrategyFit(NamedTuple):
    """Strategies of resource-strategy-fit by resource name; `prefixes`, longest first, are for
    other names.
    """

    weight: int
    resources: dict[str, Strategy]
    prefixes: tuple[tuple[str, Strategy], ...]

    def of(self, resource: str) -> Strategy | None:
        found = self.resources.get(resource)
        if found is not None:
            return found
        return next((s for prefix, s in self.prefixes if resource.startswith(prefix)), None)


def binpack_micro(binpack: Binpack, asked: Iterable[tuple[str, Amount]]) -> int:
    """The mean share in use of the resources that are requested and listed; 0 if one of them would
    be over-committed. `asked` has each resource as it is with the pod.
    """
    total, divisor = 0, 0
    for name, amount in asked:
        weight = binpack.resources.get(name)
        if weight is None:
            continue
        divisor += weight
        if weight and amount.size:
            if amount.used > amount.size:
                return 0
            total += weight * near_share_micro(amount.used, amount.size)
    return binpack.weight * total // divisor if divisor else 0


def fit_micro(fit: StrategyFit, asked: Iterable[tuple[str, Amount]]) -> int:
    """The same with the share in use or the share that is free, by each resource's strategy."""
    total, divisor = 0, 0
    for name, amount in asked:
        strategy = fit.of(name)
        if strategy is None:
            continue
        divisor += strategy.weight
        if amount.size:
            if amount.used > amount.size:
                return 0
            total += strategy.weight * _strategy_micro(strategy, amount)
    return fit.weight * total // divisor if divisor else 0


def _strategy_micro(strategy: Strategy, amount: Amount) -> int:
    in_use = near_share_micro(amount.used, amount.size)
    return in_use if strategy.most else FULL_MICRO - in_use


def _asked(node: Node, request: PodRequest) -> Iterator[tuple[str, Amount]]:
    """Every resource that the pod requests, as it is on the node with the pod."""
    for name, need in needs_of(request):
        used, size = amount_of(node, name)
        yield name, Amount(used + need, size)


def needs_of(request: PodRequest) -> Iterator[tuple[str, int]]:
    """A pod's requests, by resource."""
    needs = (
        (CPU_NAME, request.cpu_milli),
        (MEMORY_NAME, request.memory_bytes),
        *request.extended,
    )
    for name, need in needs:
        if need:
            yield name, need


class BinpackTerm:
    """An entry in `terms.TERMS`."""

    name = "binpack"
    arguments = _BINPACK

    def weights(self, use: PluginUse) -> Binpack | None:
        weight = number(use, _BINPACK, "binpack.weight")
        listed = {
            CPU_NAME: number(use, _BINPACK, "binpack.cpu"),
            MEMORY_NAME: number(use, _BINPACK, "binpack.memory"),
            **dict(by_prefix(use, "binpack.resources.")),
        }
        return Binpack(weight, listed) if weight else None

    def most_micro(self, weights: Binpack) -> int:
        return weights.weight * FULL_MICRO

    def micro(self, node: Node, request: PodRequest, weights: Binpack) -> int:
        return binpack_micro(weights, _asked(node, request))


class StrategyFitTerm:
    """An entry in `terms.TERMS`."""

    name = "resource-strategy-fit"
    arguments = _RESOURCE_STRATEGY_FIT

    def weights(self, use: PluginUse) -> StrategyFit | None:
        weight = number(use, _RESOURCE_STRATEGY_FIT, "resourceStrategyFitWeight")
        found: dict[str, Strategy] = {}
        for prefix, most in (("most.", True), ("least.", False)):
            for name, each in by_prefix(use, prefix):
                found[name] = Strategy(most, each)
        if not found:
            found = {CPU_NAME: Strategy(False, 1), MEMORY_NAME: Strategy(False, 1)}
        wild = {name.removesuffix("*"): s for name, s in found.items() if name.endswith("*")}
        exact = {name: s for name, s in found.items() if not name.endswith("*")}
        prefixes = tuple(sorted(wild.items(), key=lambda item: (-len(item[0]), item[0])))
        return StrategyFit(weight, exact, prefixes) if weight else None

    def most_micro(self, weights: StrategyFit) -> int:
        return weights.weight * FULL_MICRO

    def micro(self, node: Node, request: PodRequest, weights: StrategyFit) -> int:
        return fit_micro(weights, _asked(node, request))
