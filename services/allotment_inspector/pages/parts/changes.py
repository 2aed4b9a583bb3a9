"""Changes that would make something fit, as rows of a table: of a pod's advice and of a gang's."""

import msgspec

from allotment.core.explain.rows.schema import Change, Counterfactual
from allotment.core.explain.rows.words import fit_text, line_text


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change in words, what it brings, and where it is made: a line of a manifest, or of another
    object's.
    """

    text: str
    then: str
    line: str
    change: Change


def change_row(found: Counterfactual) -> ChangeRow:
    """A change as a row."""
    return ChangeRow(
        text=found.text, then=fit_text(found), line=line_text(found.change), change=found.change
    )
