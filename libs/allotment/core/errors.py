"""How a question ends that cannot be answered: what is wrong, and what to do."""

from collections.abc import Sequence


class AllotError(Exception):
    """Raised when a question cannot be answered; a command that asked ends with exit code 2.

    `message` is what is wrong. `remedy` is what would be right, or a command to run; `more` is what
    else is wrong, a line each.

    >>> raise AllotError("there is no node gpu-9 at seq 31", "see: allot get nodes")
    Traceback (most recent call last):
    allotment.core.errors.AllotError: there is no node gpu-9 at seq 31; see: allot get nodes
    """

    def __init__(self, message: str, remedy: str = "", more: Sequence[str] = ()) -> None:
        super().__init__("; ".join(filter(None, (message, *more, remedy))))
        self.message = message
        self.remedy = remedy
        self.more = more


def innermost(error: BaseException) -> BaseException:
    """What went wrong first, however many task groups it came through."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
