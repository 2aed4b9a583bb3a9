"""Vectors → verdicts: the same answer, another one on purpose, another one, or no answer."""

import traceback
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.compat.deviations import DEVIATIONS, Deviation
from tests.compat.file import Vector
from tests.compat.runners import RUNNERS
from tests.compat.runners.base import CannotRun, Fields

MATCHED = "matched"
DEVIATES = "deviates"
MISMATCHED = "mismatched"
NOT_RUN = "notRun"
OUTCOMES = (MATCHED, DEVIATES, MISMATCHED, NOT_RUN)


class Reason(msgspec.Struct, frozen=True):
    """A declared deviation: the number of the quirk (or the rule) and why."""

    quirk: str
    why: str


class Difference(msgspec.Struct, frozen=True):
    """One field that came out otherwise. `quirk` is empty when no declared deviation covers it."""

    field: str
    expected: Any
    got: Any
    quirk: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one vector. `reasons` are the deviations, `why_not` is why it did not run."""

    id: str
    kind: str
    function: str
    outcome: str
    reasons: tuple[Reason, ...] = ()
    differences: tuple[Difference, ...] = ()
    why_not: str = ""


def judge_all(vectors: Iterable[Vector]) -> list[Verdict]:
    return [judge(vector) for vector in vectors]


def judge(vector: Vector) -> Verdict:
    """Ask the product. A vector that breaks its runner is one that did not run, and says so."""
    runner = RUNNERS.get(vector.function)
    if runner is None:
        return _verdict(vector, NOT_RUN, why_not=f"no runner for function {vector.function!r}")
    try:
        fields = runner(vector)
    except CannotRun as error:
        return _verdict(vector, NOT_RUN, why_not=str(error))
    except Exception as error:  # whatever a vector holds, the others are still to be asked
        return _verdict(vector, NOT_RUN, why_not=_broken(error))
    return _of_fields(vector, fields)


def _of_fields(vector: Vector, fields: Fields) -> Verdict:
    differences: list[Difference] = []
    used: dict[Deviation, None] = {}
    for field, (expected, got) in fields.items():
        if expected == got:
            continue
        excuse = next((d for d in DEVIATIONS if d.covers(field) and d.applies(vector)), None)
        if excuse is not None:
            used[excuse] = None
        differences.append(
            Difference(field, expected, got, excuse.quirk if excuse is not None else "")
        )
    if not differences:
        return _verdict(vector, MATCHED)
    is_declared = all(difference.quirk for difference in differences)
    return _verdict(
        vector,
        DEVIATES if is_declared else MISMATCHED,
        reasons=tuple(Reason(deviation.quirk, deviation.why) for deviation in used),
        differences=tuple(differences),
    )


def _verdict(vector: Vector, outcome: str, **parts: Any) -> Verdict:
    return Verdict(
        id=vector.id, kind=vector.kind, function=vector.function, outcome=outcome, **parts
    )


def _broken(error: Exception) -> str:
    """The error with the place where it came up."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return f"{type(error).__name__}: {error} (at {place})"
