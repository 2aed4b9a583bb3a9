"""Probable mistakes in a synthetic workload: pods that no node of it can ever take."""

from collections import Counter
from collections.abc import Iterator

from allotment.core import reasons
from allotment.core.config.report import hint
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import refuse
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.rules.predicates import fits
from allotment_board import NodeRanker
from allotment_lab.engine import Simulation, last_obstacle
from allotment_lab.simulate.recipe import PodShape, Recipe
from allotment_proto.facts import PodRequest, Policy
from allotment_watcher.normalise.lens import BUILT_IN, CPU, MEMORY


def doubts(recipe: Recipe, policy: Policy) -> list[str]:
    """A line for each resource that no node has, and for each other shape of pods of which no node
    could hold one when empty.
    """
    state = Simulation(recipe.nodes, policy, NodeRanker).state
    listed = {name for node in recipe.nodes for name, _ in node.extended}
    words = sorted({*listed, *_not_listed(recipe), CPU, MEMORY})
    found: list[str] = []
    for index, shape in enumerate(recipe.pods):
        pods = f"pods[{index}] {shape.fact.name}"
        absent = [n for n, amount in shape.fact.request.extended if amount and n not in listed]
        found += [f"{pods}: no node has {name}; {hint(name, words)}" for name in absent]
        if not absent:
            found += [f"{pods}: {what}" for what in _too_large(shape, state)]
    return found


def _not_listed(recipe: Recipe) -> Iterator[str]:
    """Resources that pods can ask for although no node lists them."""
    for family in {books.family for node in recipe.nodes for books in node.inventories}:
        yield from FAMILIES[family].unadvertised(BUILT_IN)


def _too_large(shape: PodShape, state: ClusterState) -> Iterator[str]:
    """Why no empty node takes such a pod; None as soon as one does."""
    request = shape.fact.request
    codes: Counter[str] = Counter()
    for node in state.nodes.values():
        answer = fits(node, request, state.policy)
        if not isinstance(answer, str):
            return
        codes[answer] += 1
    code = last_obstacle(refuse(state, shape.fact, request, len(state.nodes), tuple(codes.items())))
    why = f"{code}, {reasons.REASONS[code].text}{_asked(code, request)}"
    yield f"no node could hold even one when empty; last obstacle: {why}"


def _asked(code: str, request: PodRequest) -> str:
    """What a pod asks of each card, where that is what is too much."""
    if code != reasons.INSUFFICIENT_GPU_MEMORY:
        return ""
    most_mib = max(ask.memory_mib for ask in request.devices)
    return f": it asks for {most_mib:,} MiB of a card" if most_mib else ""
