"""Every function of which vectors tell is run: one small question each, and the right answer."""

from typing import Any

import pytest

from tests.compat.file import Vector
from tests.compat.runners import RUNNERS
from tests.compat.verdicts import MATCHED, MISMATCHED, judge
from tests.unit.compat_cases import CASES


def vector(function: str, given: dict[str, Any], expected: dict[str, Any]) -> Vector:
    return Vector(id=function, kind="k", function=function, input=given, expected=expected)


@pytest.mark.parametrize("function", sorted(CASES))
def test_the_right_answer_matches(function: str) -> None:
    verdict = judge(vector(function, *CASES[function]))
    assert verdict.outcome == MATCHED, verdict


@pytest.mark.parametrize("function", sorted(CASES))
def test_every_expected_field_is_compared(function: str) -> None:
    """With any one field of the answer altered, nothing matches any more."""
    given, expected = CASES[function]
    for field in expected:
        altered = {**expected, field: _other(expected[field])}
        assert judge(vector(function, given, altered)).outcome != MATCHED, field


def test_every_function_has_a_case() -> None:
    assert set(RUNNERS) == {*CASES, "scenario"}


def test_a_lock_that_is_held_is_a_mismatch_where_it_should_be_free() -> None:
    given = {"existing_lock_age_minutes": 4}
    assert judge(vector("lock_node", given, {"error": None})).outcome == MISMATCHED


def _other(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return None if value in ("held", "none") else f"not {value}"
        case list():
            return [*value, "more"]
        case dict():
            return {key: _other(item) for key, item in value.items()}
        case _:
            return ["something"]
