"""How the command says that it cannot answer: one line for what is wrong, one for what to do."""

from collections.abc import Sequence
from typing import IO, Any

import click

from allotment.adapters.telemetry.log import printable


def innermost(error: BaseException) -> BaseException:
    """What went wrong first, however many task groups it came through."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class CliError(click.ClickException):
    """Raised when a question cannot be answered. Ends the command with exit code 2.

    `remedy` is what would be right, or a command to run; `more` is what else is wrong, a line each.
    """

    exit_code = 2

    def __init__(self, message: str, remedy: str = "", more: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.more = more

    def show(self, file: IO[Any] | None = None) -> None:
        for text in filter(None, (self.message, *self.more, self.remedy)):
            click.echo(f"allot: {printable(text)}", err=True, file=file)
