"""Volcano's words for a refusal, next to our reason codes.

Texts are Volcano's own and reason codes are ours; what is compared is whether both say the same.
"""

from allotment.core import reasons

SHORTAGE = frozenset(reasons.REFUSAL_ORDER)
ANY_SHORTAGE = SHORTAGE | {reasons.NOT_ENOUGH_GPUS_ON_NODE}
SAYS = (
    ("pod required sharing mode", frozenset((reasons.GPU_MODE_MISMATCH,))),
    ("no enough gpu cards on node", frozenset((reasons.NOT_ENOUGH_GPUS_ON_NODE,))),
    ("no GPU matches UUID constraints", frozenset((reasons.GPU_NOT_SELECTED,))),
    ("not enough gpu fitted on this node", SHORTAGE),
    ("no enough gpu memory on node", ANY_SHORTAGE),
    ("no enough gpu number on node", ANY_SHORTAGE),
    ("no enough ascend device available", ANY_SHORTAGE | {reasons.GPU_MODE_MISMATCH}),
    ("vNPU does not support partial memory", frozenset((reasons.INVALID_REQUEST,))),
)
"""How a text begins, and the codes that say so."""


def error_pair(expected: str | None, code: str | None) -> tuple[str | None, str | None]:
    """The expected text, and the same again if our code (None: accepted) says so, else our code."""
    if not expected:
        return expected, expected if code is None else code
    codes = next((codes for text, codes in SAYS if text in expected), None)
    if codes is None:
        return expected, expected if code is not None else None
    return expected, expected if code in codes else code


def message_pair(expected: str | None, code: str | None) -> tuple[str | None, str | None]:
    """A message is there exactly when the pod is refused; its words are Volcano's."""
    return expected, expected if bool(expected) == (code is not None) else (code or "")
