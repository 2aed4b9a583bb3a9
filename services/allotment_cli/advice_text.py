"""What would make it fit, on a screen: of pods, of groups, and of manifests."""

from collections.abc import Sequence

from allotment.core.explain.schema import Counterfactual
from allotment.core.explain.words import advice_title, fit_text
from allotment_cli.output import heading, table


def advice_lines(found: Sequence[Counterfactual], *, never: bool = False) -> list[str]:
    """A heading and a line a change; nothing without any."""
    if not found:
        return []
    _, *lines = table(("", " "), [[each.text, fit_text(each)] for each in found], indent="  ")
    return ["", heading(advice_title(found, never=never)), *lines]
