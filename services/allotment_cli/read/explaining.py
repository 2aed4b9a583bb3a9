"""What `explain gang`, `explain queue` and `explain node` have in common: their options, and how an
object of a state is explained at a moment, shown, and shown again.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, TypeVar

import anyio
import click

from allotment.answers.folding import Folded, fold_at
from allotment.answers.source import Origin, Source
from allotment_cli.options.params import at_option, output_option, watch_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.read.watching import LEAVE_OUT_WATCH, check_watch, watch
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, suggest

T = TypeVar("T", covariant=True)
Found = TypeVar("Found")
Command = TypeVar("Command", bound=Callable[..., Any])


class Asked(NamedTuple):
    """What the options say that all of them take."""

    origin: Origin
    at: str | None
    goes_on: bool
    everything: bool
    output: str


class Explain(Protocol[T]):
    """Explains an object of a state; without `advised` it says nothing of changes that would help.
    Raises `AllotError` for an object that the state does not have.
    """

    async def __call__(self, source: Source, folded: Folded, *, advised: bool) -> T: ...


def explanation_options(all_help: str) -> Callable[[Command], Command]:
    """The options, given to the command as one `asked`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def called(
            *args: Any,
            origin: Origin,
            at: str | None,
            watch: bool,
            all_: bool,
            output: str,
            **others: Any,
        ) -> Any:
            if watch:
                check_watch(at, origin.file, output, LEAVE_OUT_WATCH)
            asked = Asked(origin, at, watch, all_, output)
            return command(*args, asked=asked, **others)

        given: Any = called
        for option in (
            output_option(*DOCUMENTS),
            click.option("--all", "all_", is_flag=True, help=all_help),
            watch_option,
            at_option,
            source_options,
        ):
            given = option(given)
        return given  # type: ignore[no-any-return]

    return decorate


def answer(
    asked: Asked,
    explain: Explain[Found],
    lines: Callable[..., list[str]],
    following: Callable[[Found], str],
) -> Found:
    """Explain and show: `lines` are the screen, `following` is the command worth running next, if
    there is one.
    """

    def show(found: Found) -> None:
        if asked.output in DOCUMENTS:
            emit_document(found, asked.output)
            return
        emit(lines(found, everything=asked.everything))
        command = following(found)
        if command:
            suggest(command)

    return anyio.run(_answer, asked, explain, show)


async def _answer(asked: Asked, explain: Explain[Found], show: Callable[[Found], None]) -> Found:
    async with open_source(asked.origin) as source:
        look = partial(explain, source)
        folded = await fold_at(source, asked.at)
        found = await look(folded, advised=True)
        show(found)
        if asked.goes_on:
            await watch(source, folded, look, show)
        return found
