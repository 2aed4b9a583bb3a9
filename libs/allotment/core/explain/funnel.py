"""How many nodes are left after each step of the predicate, and why the others are not."""

from collections import Counter
from collections.abc import Iterable

from allotment.core.explain.schema import Step
from allotment.core.ledger.state import ClusterState
from allotment.core.placement.rules.interpod import look_around
from allotment.core.placement.rules.predicates import STEPS, fits
from allotment_proto.facts import PodRequest

FITS = "fits"

STEP_KEYS = (
    "nodeReady",
    "nodeConstraints",
    "volumes",
    "queueNodes",
    "otherPods",
    "volumeLimits",
    "hostRoom",
    "devices",
    "gpuModel",
    "sharing",
    "gpuMemory",
    "gpuCompute",
    "otherResources",
    "keptForOthers",
)
"""The stable names of `predicates.STEPS`, in the same order."""
SAID_IF_LOST = frozenset(("volumes", "queueNodes", "otherPods", "volumeLimits", "keptForOthers"))
"""Steps that few pods have: left out where they cost no node."""


def codes(state: ClusterState, request: PodRequest) -> list[str]:
    """Every present node's first obstacle, or `FITS`."""
    nodes = [node for node in state.nodes.values() if node.fact is not None]
    around = look_around(nodes, request)
    answers = (fits(node, request, state.policy, around=around) for node in nodes)
    return [answer if isinstance(answer, str) else FITS for answer in answers]


def funnel(answers: Iterable[str]) -> list[Step]:
    counts = Counter(answers)
    left = counts.total()
    counts.pop(FITS, None)
    steps = [Step(step="all", text="all nodes", left=left, lost=0, reasons={})]
    known: set[str] = set()
    named = [(key, text, found) for key, (text, found) in zip(STEP_KEYS, STEPS, strict=True)]
    for _, _, found in named:
        known |= found
    if unnamed := frozenset(counts.keys() - known):
        named.append(("other", "everything else", unnamed))
    for key, text, found in named:
        here = sorted(((c, counts[c]) for c in found if counts[c]), key=lambda i: (-i[1], i[0]))
        lost = sum(count for _, count in here)
        if not lost and key in SAID_IF_LOST:
            continue
        left -= lost
        steps.append(Step(step=key, text=text, left=left, lost=lost, reasons=dict(here)))
    return steps
