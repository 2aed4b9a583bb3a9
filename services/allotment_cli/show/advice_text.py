"""What would make it fit, on a screen: of pods, of groups, and of manifests."""

from collections.abc import Sequence

from allotment.core.explain.rows.schema import Counterfactual
from allotment.core.explain.rows.words import advice_title, fit_text, gang_advice_title, line_text
from allotment_cli.show.output import Prose, heading, table


def advice_lines(found: Sequence[Counterfactual], *, never: bool = False) -> list[str]:
    """A heading and a line a change; nothing without any."""
    return _lines(advice_title(found, never=never), found) if found else []


def gang_advice_lines(found: Sequence[Counterfactual]) -> list[str]:
    """The same of a group."""
    return _lines(gang_advice_title(found), found) if found else []


def _lines(title: str, found: Sequence[Counterfactual]) -> list[str]:
    rows = [[each.text, fit_text(each), line_text(each.change)] for each in found]
    _, *lines = table(("", " ", "  "), rows, indent="  ")
    return ["", heading(Prose(title, 2)), *lines]
