"""The collector rests while a fold grows and is back afterwards whatever happened; in services it
looks seldom, and still looks.
"""

import gc

import pytest

from allotment.adapters.service.heap import YOUNG_OBJECTS, collect_seldom, uncollected


def test_it_rests_inside_and_is_back_after() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()


def test_in_a_service_it_looks_seldom_and_still_looks() -> None:
    before = gc.get_threshold()
    passes: list[str] = []

    def count(phase: str, info: dict[str, int]) -> None:
        passes.append(phase)

    gc.callbacks.append(count)
    try:
        collect_seldom()
        gc.collect()
        passes.clear()
        young: list[list[int]] = [[] for _ in range(YOUNG_OBJECTS // 2)]
        assert not passes, "five thousand new objects are no reason to look"
        young += [[] for _ in range(YOUNG_OBJECTS)]
        assert passes
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*before)
