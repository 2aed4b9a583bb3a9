"""A bench wants the scoring loops as machine code: they are made before one begins."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _made_before(compiled_loops: object) -> None: ...
