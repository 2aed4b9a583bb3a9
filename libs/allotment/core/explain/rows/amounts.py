"""Parts of cards in words. Compute is percent of a GPU; of most NPUs it is AI cores."""

from allotment.core.explain.rows.views import PERCENT
from allotment.core.units import bytes_text, mib_text


def whole_of_card(compute: int) -> int:
    """What a whole card counts as, of its own amount of compute: 100, or its AI cores."""
    return 100 if compute in PERCENT else compute


def compute_text(amount: int, whole: int) -> str:
    """``50%``, or ``2 AI cores`` of a card that has `whole` of them and not 100 percent."""
    return f"{amount}%" if whole == 100 else f"{amount} AI core{'s' * (amount != 1)}"


def short_text(memory_mib: int, compute: int, *, is_percent: bool) -> str:
    """``2.9 GiB, 50%``; ``4 AI cores``: for rows of lists."""
    words = [mib_text(memory_mib)] if memory_mib else []
    if compute or not words:
        words.append(compute_text(compute, 100 if is_percent else 0))
    return ", ".join(words)


def part_text(memory_bytes: int, compute: int, whole: int) -> str:
    """``2.9 GiB memory, 50% compute``; of an NPU what is not given out is left out. A pod that
    requests no share of compute is not limited to one.
    """
    if whole == 100:
        share = f"{compute}% compute" if compute else "no compute limit"
        return f"{bytes_text(memory_bytes)} memory, {share}"
    memory = [f"{bytes_text(memory_bytes)} memory"] if memory_bytes else []
    cores = [compute_text(compute, whole)] if compute or not memory else []
    return ", ".join(memory + cores)
