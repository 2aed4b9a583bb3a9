"""What users read in pod conditions and Events: the classic sentence, from counted reasons."""

from allotment_proto.events import Refusal
from allotment_proto.facts import Problem

MESSAGE_CHARS_MAX = 1000
GOES_ON = ("has ", "is ", "may ", "of ", "takes ")
"""How a message begins that makes one sentence with the queue that it is about."""


def problem_text(problem: Problem) -> str:
    """One line: the code, the place, the value and what would be right."""
    is_new = problem.place.startswith("queue ") and not problem.message.startswith(GOES_ON)
    colon = ":" if is_new or problem.place == "its group" else ""
    return f"{problem.code}: {problem.place}{colon} {problem.message}"


def refusal_text(refusal: Refusal) -> str:
    """``0/5 nodes are available: 3 NoGPU, 2 TaintNotTolerated.``: sorted, so it is stable. What the
    refusal notes follows, a sentence each.
    """
    if refusal.problem is not None:
        return cut(problem_text(refusal.problem))
    counts = ", ".join(f"{count} {code}" for code, count in refusal.reasons)
    said = f"0/{refusal.nodes} nodes are available" + (f": {counts}." if counts else ".")
    return cut(" ".join([said, *(f"{note[:1].upper()}{note[1:]}." for note in refusal.notes)]))


def cut(text: str) -> str:
    """A text that API servers take as an Event's note."""
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
