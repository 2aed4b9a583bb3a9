"""Every compatibility vector matches, or deviates by declaration: `make compat`, case by case."""

from pathlib import Path

import pytest
from tests.compat import file
from tests.compat.file import Vector
from tests.compat.report import lines, report
from tests.compat.verdicts import DEVIATES, MATCHED, judge, judge_all

FILE = Path(__file__).parents[3] / "shared" / "spec" / "deviceshare-vectors.json"
VECTORS = file.read(FILE) if FILE.exists() else ()
pytestmark = pytest.mark.skipif(not VECTORS, reason=f"{FILE} is not there")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_vector(vector: Vector) -> None:
    """Whatever differs is excused by what the vector exercises."""
    verdict = judge(vector)
    told = verdict.why_not or [found for found in verdict.differences if not found.quirk]
    assert verdict.outcome in (MATCHED, DEVIATES), told


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """The report, for whoever runs with -s or reads the log."""
    found = report(FILE.name, judge_all(VECTORS))
    with capsys.disabled():
        print()
        print("\n".join(line for line in lines(found) if line.startswith("all ")))
    assert found.matched + found.deviates == found.vectors
