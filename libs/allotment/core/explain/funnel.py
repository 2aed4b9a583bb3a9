"""How many nodes are left after each step of the predicate, and why the others are not."""

from collections import Counter
from collections.abc import Iterable

from allotment.core import reasons
from allotment.core.explain.schema import Step
from allotment.core.ledger.state import ClusterState
from allotment.core.placement.rules.interpod import look_around
from allotment.core.placement.rules.predicates import fits
from allotment.core.reasons import CODES_AT, STEP_NUMBER, STEPS
from allotment_proto.facts import PodRequest

FITS = "fits"
OTHER = reasons.Step("other", "everything else")


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
    named = [(step, CODES_AT[step.key]) for step in STEPS]
    if unnamed := tuple(counts.keys() - STEP_NUMBER.keys()):
        named.append((OTHER, unnamed))
    for step, found in named:
        here = sorted(((c, counts[c]) for c in found if counts[c]), key=lambda i: (-i[1], i[0]))
        lost = sum(count for _, count in here)
        if not lost and step.is_rare:
            continue
        left -= lost
        steps.append(Step(step=step.key, text=step.text, left=left, lost=lost, reasons=dict(here)))
    return steps
