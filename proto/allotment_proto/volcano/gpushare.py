"""GPU sharing and GPU number: cards derived from node capacity, and the index annotation on pods.

Source: volcano `pkg/scheduler/api/devices/nvidia/gpushare` and `volcano-sh/devices`.
"""

from allotment_proto.facts import CardFact, Holding, Problem
from allotment_proto.volcano import keys

FAMILY = "gpushare"
MODEL = "shared GPU"
"""Of cards whose node has no `PRODUCT_LABEL`."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
SLOTS_UNLIMITED = 1_000_000
"""The legacy plugin does not limit how many pods share a card."""
INDEX_DIGITS_MAX = 9
UUID_PREFIX = "GPU-"


def cards_from_capacity(
    memory_mib: int, number: int, unhealthy: frozenset[int], model: str = MODEL
) -> tuple[CardFact, ...]:
    """Cards 0..number−1 with an equal share of the memory; unhealthy ones are kept, marked."""
    if number <= 0:
        return ()
    return tuple(
        CardFact(
            id=str(index),
            index=index,
            model=model,
            slots=SLOTS_UNLIMITED,
            memory_mib=memory_mib // number,
            cores_pct=100,
            healthy=index not in unhealthy,
            unhealthy_by=f"annotation {keys.GPU_UNHEALTHY_IDS}" * (index in unhealthy),
            mode="",
        )
        for index in range(number)
    )


def decode_indexes(text: str, place: str) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """A comma list of card indexes, trimmed; items that are not whole numbers are reported."""
    indexes: list[int] = []
    problems: list[Problem] = []
    for item in text.split(","):
        word = item.strip()
        if _is_index(word):
            indexes.append(int(word))
        elif word:
            problems.append(
                Problem("BrokenIndexList", place, f"{word[:80]!r} is not a card index (0, 1, 2, …)")
            )
    return tuple(sorted(set(indexes))), tuple(problems)


def decode_unhealthy(text: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """Cards that a node's annotation names as unhealthy: by index, and whatever else is written
    there, each once, sorted.
    """
    words = {word for item in text.split(",") if (word := item.strip())}
    indexes = frozenset(int(word) for word in words if _is_index(word))
    return indexes, tuple(sorted(word for word in words if not _is_index(word)))


def _is_index(word: str) -> bool:
    return len(word) <= INDEX_DIGITS_MAX and word.isascii() and word.isdigit()


def binding_annotations(holdings: tuple[Holding, ...], stamp_s: int) -> dict[str, str]:
    """The two annotations that travel in the Binding of a GPU-share pod."""
    indexes = sorted({int(h.card) for h in holdings})
    return {
        keys.GPU_INDEX: ",".join(str(index) for index in indexes),
        keys.PREDICATE_TIME: str(stamp_s * 1_000_000_000),
    }
