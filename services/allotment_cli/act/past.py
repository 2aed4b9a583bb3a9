"""`--at` of commands that otherwise ask Kubernetes: they answer from the log then."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click

from allotment.answers.cluster import Access
from allotment.answers.folding import AsOf, Folded, as_of, fold_at
from allotment.answers.source import Origin
from allotment_cli.options.params import at_option
from allotment_cli.options.source import choose_cluster, open_source


class Past(NamedTuple):
    """What the options say about which log is to answer, and as of when."""

    at: str | None
    file: Path | None
    nats: str | None

    def __bool__(self) -> bool:
        return any(given is not None for given in self)


def past_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a log, given to the command as one `past`: with any of them the log answers,
    not Kubernetes.
    """

    @wraps(command)
    def called(
        *args: Any, at: str | None, file: Path | None, nats: str | None, **others: Any
    ) -> Any:
        return command(*args, past=Past(at, file, nats), **others)

    given: Any = called
    for decorate in (
        click.option("--nats", metavar="URL", help="Answer from the log at this NATS server."),
        click.option(
            "--file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Answer from an exported log (allot log -o jsonl).",
        ),
        at_option,
    ):
        given = decorate(given)
    return given  # type: ignore[no-any-return]


def fold_past(access: Access, past: Past) -> Folded:
    """The log at the moment. Raises `AllotError`."""
    choose_cluster(access.kubeconfig, access.context)
    return anyio.run(_fold, Origin(access.home, past.nats, past.file), past.at)


async def _fold(origin: Origin, at: str | None) -> Folded:
    async with open_source(origin) as source:
        return await fold_at(source, at)


def moment_of(folded: Folded | None) -> AsOf | None:
    """For a document: of which moment it is, None if Kubernetes answered."""
    return None if folded is None else as_of(folded)
