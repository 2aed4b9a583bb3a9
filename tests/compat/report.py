"""Verdicts → what is shown: a table by function, then every deviation and every mismatch."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from allotment_cli.show.output import heading, table
from tests.compat.verdicts import (
    DEVIATES,
    MATCHED,
    MISMATCHED,
    NOT_RUN,
    OUTCOMES,
    Difference,
    Verdict,
)

SHOWN_MAX = 300
"""Characters of one value in the text report; the JSON report has all of it."""


class Count(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the vectors of one function came out. `kinds` is what they are about."""

    function: str
    kinds: tuple[str, ...]
    vectors: int
    matched: int
    deviates: int
    mismatched: int
    not_run: int


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole run. Vectors that matched are only counted."""

    file: str
    vectors: int
    matched: int
    deviates: int
    mismatched: int
    not_run: int
    functions: tuple[Count, ...]
    deviations: tuple[Verdict, ...]
    mismatches: tuple[Verdict, ...]
    cannot_run: tuple[Verdict, ...]

    @property
    def is_compatible(self) -> bool:
        return not (self.mismatched or self.not_run)


def report(file: str, verdicts: Sequence[Verdict]) -> Report:
    total = Counter(verdict.outcome for verdict in verdicts)
    return Report(
        file=file,
        vectors=len(verdicts),
        matched=total[MATCHED],
        deviates=total[DEVIATES],
        mismatched=total[MISMATCHED],
        not_run=total[NOT_RUN],
        functions=_counts(verdicts),
        deviations=_with(verdicts, DEVIATES),
        mismatches=_with(verdicts, MISMATCHED),
        cannot_run=_with(verdicts, NOT_RUN),
    )


def lines(found: Report) -> list[str]:
    """The report as text."""
    rows = [
        [c.function, "+".join(c.kinds), *map(str, (c.vectors, *_outcomes(c)))]
        for c in found.functions
    ]
    rows.append(["all", "", *map(str, (found.vectors, *_outcomes(found)))])
    numbers = ("VECTORS", "MATCHED", "DEVIATE", "MISMATCHED", "NOT RUN")
    out = table(("FUNCTION", "KIND", *numbers), rows, right=numbers)
    if found.deviations:
        out += ["", heading(f"Deliberate deviations: {found.deviates}"), *_deviations(found)]
    if found.mismatches:
        out += ["", heading(f"Mismatched: {found.mismatched}")]
        for verdict in found.mismatches:
            out += [f"{verdict.id} ({verdict.function})", *map(_difference, verdict.differences)]
    if found.cannot_run:
        out += ["", heading(f"Not run: {found.not_run}")]
        out += [f"{v.id} ({v.function}): {v.why_not}" for v in found.cannot_run]
    return out


def _outcomes(count: Count | Report) -> tuple[int, int, int, int]:
    return (count.matched, count.deviates, count.mismatched, count.not_run)


def _counts(verdicts: Sequence[Verdict]) -> tuple[Count, ...]:
    by_function: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_function.setdefault(verdict.function, []).append(verdict)
    counts = []
    for function, group in sorted(by_function.items()):
        outcomes = Counter(verdict.outcome for verdict in group)
        matched, deviates, mismatched, not_run = (outcomes[name] for name in OUTCOMES)
        counts.append(
            Count(
                function=function,
                kinds=tuple(sorted({verdict.kind for verdict in group})),
                vectors=len(group),
                matched=matched,
                deviates=deviates,
                mismatched=mismatched,
                not_run=not_run,
            )
        )
    return tuple(counts)


def _with(verdicts: Sequence[Verdict], outcome: str) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.outcome == outcome)


def _deviations(found: Report) -> list[str]:
    rows = [
        [verdict.id, reason.quirk, reason.why]
        for verdict in found.deviations
        for reason in verdict.reasons
    ]
    return table(("VECTOR", "QUIRK", "WHY"), rows)


def _difference(difference: Difference) -> str:
    excused = f" [{difference.quirk}]" if difference.quirk else ""
    return (
        f"  {difference.field}{excused}: "
        f"expected {_shown(difference.expected)}, got {_shown(difference.got)}"
    )


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
