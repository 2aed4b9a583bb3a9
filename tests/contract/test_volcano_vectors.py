"""Every compatibility vector is run, deviates by declaration, or belongs to a later issue."""

from collections import Counter

import pytest
from tests.contract import vectors
from tests.contract.vector_runners import RUNNERS
from tests.contract.vector_scene import Fields
from tests.contract.vectors import DEVIATIONS, Deviation, Vector

VECTORS = vectors.load()
pytestmark = pytest.mark.skipif(not VECTORS, reason=f"{vectors.FILE} is not there")
NOW = [vector for vector in VECTORS if vectors.later(vector) is None]


def _differences(vector: Vector) -> Fields:
    found = RUNNERS[vector["function"]](vector)
    return {field: pair for field, pair in found.items() if pair[0] != pair[1]}


def _excuses(vector: Vector, field: str) -> list[Deviation]:
    name = field.split(".")[-1]
    return [d for d in DEVIATIONS if name in d.fields and d.applies(vector)]


@pytest.mark.parametrize("vector", NOW, ids=lambda vector: vector["id"])
def test_vector(vector: Vector) -> None:
    """Whatever differs is excused by what the vector exercises."""
    assert vector["function"] in RUNNERS, "neither run nor classed as a later issue"
    differences = _differences(vector)
    unexcused = {f: pair for f, pair in differences.items() if not _excuses(vector, f)}
    assert unexcused == {}


def test_every_declared_deviation_is_seen() -> None:
    """A declaration that excuses nothing (any more) is taken out of the table."""
    used: Counter[str] = Counter()
    for vector in NOW:
        for field in _differences(vector):
            used.update(deviation.reason for deviation in _excuses(vector, field))
    unused = [d.rule for d in DEVIATIONS if not used[d.reason] and not d.may_be_unseen]
    assert unused == []


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, for whoever runs with -s or reads the log."""
    same, deviating = 0, Counter[str]()
    for vector in NOW:
        differences = _differences(vector)
        same += not differences
        rules = {_excuses(vector, field)[0].rule for field in differences}
        deviating.update(rules)
    waiting = Counter(vectors.later(vector) for vector in VECTORS)
    waiting.pop(None)
    with capsys.disabled():
        print(f"\n{len(VECTORS)} Volcano vectors: {len(NOW)} run, {same} of them exactly alike")
        for rule, count in sorted(deviating.items()):
            print(f"  {count:>3} deviate by {rule}")
        for reason, count in sorted(waiting.items(), key=str):
            print(f"  {count:>3} not yet: {reason}")
    assert len(NOW) + waiting.total() == len(VECTORS)
