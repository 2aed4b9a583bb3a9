"""The collector rests while a fold grows, and is back afterwards whatever happened."""

import gc

import pytest

from allotment.adapters.heap import uncollected


def test_it_rests_inside_and_is_back_after() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()
