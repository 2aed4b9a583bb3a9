"""What tests share lives in modules of its own: a test that moves or goes takes no other along."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
OF_A_TEST = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*(?:test|bench)_\w+", re.MULTILINE)


def test_no_test_imports_from_another() -> None:
    files = TESTS.rglob("*.py")
    found = {str(path.relative_to(TESTS)): OF_A_TEST.findall(path.read_text()) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}
