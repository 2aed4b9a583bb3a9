"""What a connection remembers of what its server said stays small, whatever that is."""

import pytest
from nats.errors import Error

from allotment.adapters.log.connection import ERROR_CHARS_MAX, ERRORS_KEPT_MAX, Connection


@pytest.mark.anyio
async def test_the_newest_forbidden_subjects_are_known_and_texts_are_cut() -> None:
    connection = Connection("test", 1.0)
    for number in range(3 * ERRORS_KEPT_MAX):
        text = f'permissions violation for publish to "a.{number}"' + "x" * 1_000_000
        await connection._on_error(Error(text))
    assert not connection.forbids("a.0")
    assert connection.forbids(f"a.{3 * ERRORS_KEPT_MAX - 1}")
    kept = sum(map(len, connection.permission_errors)) + sum(map(len, connection._errors))
    assert kept <= 2 * ERRORS_KEPT_MAX * ERROR_CHARS_MAX
