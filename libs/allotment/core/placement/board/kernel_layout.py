"""How a request is told to the compiled loops: numbers only, at places that have names here.

All are in one array, because every array that is handed over costs as much as scoring five nodes:
first what stands at the places of the plan, then the arrays whose sizes are said there:

    asks[ASK_COUNT, FIELDS, KIND_COUNT], extended[EXTENDED_COUNT, EXTENDED_FIELDS],
    terms[TERMS_LENGTH], means[MEAN_COUNT, MEAN_FIELDS], shares[SHARE_COUNT, SHARE_FIELDS]
"""

from collections.abc import Callable
from typing import Any, TypeVar

_Part = TypeVar("_Part", bound=Callable[..., Any])

PARTS: list[Callable[..., Any]] = []
"""The functions that compiled ones call, which a compiler has to know."""


def part(function: _Part) -> _Part:
    """Marks one of them."""
    PARTS.append(function)
    return function


# Places in the plan.
(
    NEED_PODS,
    NEED_CPU,
    NEED_MEMORY,
    CHARGE_CPU,
    CHARGE_KIB,
    POLICY,
    DEVICE_WEIGHT,
    HOST_POLICY,
    HOST_WEIGHT,
    KIND_MASK,
    AMOUNT_SHIFT,
    HAS_MASK,
    MAY_EXCEED,
    IS_CUT_OFF,
    CONSTANT_MICRO,
    FIT_WEIGHT,
    IMAGE_MICRO,
    ASK_COUNT,
    KIND_COUNT,
    EXTENDED_COUNT,
    MEAN_COUNT,
    SHARE_COUNT,
    PLAN_LENGTH,
) = range(23)
NONE, BINPACK, SPREAD = range(3)
"""What `POLICY` and `HOST_POLICY` say."""

# Fields of the asks. What is not said by kind stands at every kind.
(
    NEED,
    RANK,
    AMOUNT,
    AFTER,
    CHARGED_MIB,
    SPARE_MIB,
    SIZE_MIB,
    DIVISOR_MIB,
    NUMBER,
    ORDER,
    EACH_ONCE,
    FIT_MICRO,
    FIELDS,
) = range(13)
BY_USE, BY_HOLDERS, BY_PLACE = range(3)
"""What `ORDER` says: what a key's amount counts."""

# Fields of an extended resource.
EXTENDED_ROW, EXTENDED_COLUMN, EXTENDED_NEED, EXTENDED_FIELDS = range(4)

# Places in the terms.
(
    HAS_NODEORDER,
    LEAST,
    MOST,
    BALANCED,
    COMPARES,
    LOAD_CPU,
    LOAD_MEMORY,
    WITH_CPU,
    WITH_MEMORY,
    GPU_ROW,
    GPU_NEED,
    TERMS_LENGTH,
) = range(12)

# Fields of the means and of their shares.
MEAN_CPU, MEAN_MEMORY, MEAN_CONSTANT, MEAN_DIVISOR, MEAN_FIELDS = range(5)
SHARE_MEAN, SHARE_ROW, SHARE_NEED, SHARE_WEIGHT, SHARE_FIELDS = range(5)
