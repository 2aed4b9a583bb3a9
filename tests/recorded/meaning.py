"""What a log comes to: who holds which cards, who waits, and the hash of everything."""

from collections.abc import Sequence
from typing import Any

from allotment.core.logport import Record
from tests.golden.interpreter import fold, state_sha256
from tests.golden.lines import cards_of


def meaning_of(records: Sequence[Record]) -> dict[str, Any]:
    state = fold(list(records))
    held = {uid: pod.allocation for uid, pod in state.pods.items() if pod.allocation is not None}
    return {
        "seq": state.seq,
        "state_sha256": state_sha256(state),
        "pending": sorted(state.pending),
        "held": {
            uid: " ".join((one.phase, one.node, *(cards_of((h,)) for h in one.holdings)))
            for uid, one in sorted(held.items())
        },
    }
