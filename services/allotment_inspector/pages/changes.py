"""Changes that would make something fit, as rows of a table: of a pod's advice and of a gang's."""

import msgspec

from allotment.core.explain.schema import Change, Counterfactual
from allotment.core.explain.words import fit_text


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
        text=found.text, then=fit_text(found), line=_line(found.change), change=found.change
    )


_OF_A_MANIFEST = frozenset(("metadata", "spec"))
"""Where a pointer begins that is one into a manifest; others are about this explanation."""


def _line(change: Change) -> str:
    """Where the change is made, as one writes paths and values of manifests; empty where what is
    asked for is spread over several lines.
    """
    steps = [step.replace("~1", "/").replace("~0", "~") for step in change.path.split("/")[1:]]
    if not steps or steps[0] not in _OF_A_MANIFEST:
        return ""
    is_key = len(steps) > 2 and steps[-2] in ("annotations", "labels", "nodeSelector")
    path = f"{'.'.join(steps[:-1])}: {steps[-1]}" if is_key else ".".join(steps)
    of = f"{change.target}, " if change.target else ""
    if change.op == "remove":
        return f"{of}− {path}"
    value = change.value
    if isinstance(value, dict):
        shown = ", ".join(f"{key}={each}" for key, each in value.items())
    elif isinstance(value, tuple):
        shown = ",".join(value)
    else:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{of}{path}: {shown}"
