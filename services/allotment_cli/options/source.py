"""The options that say where the log is, and which cluster; and what they name, opened."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from allotment.answers import kubeconfig, source
from allotment.answers.kubeconfig import Choice
from allotment.answers.source import DEFAULT_HOME, Origin, Source
from allotment_cli.show.progress import TERMINAL

if TYPE_CHECKING:
    from allotment.adapters.log.connection import Connection
    from allotment.answers.cluster import Access, Cluster

F = TypeVar("F", bound=Callable[..., Any])


def complete_context(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the contexts of the kubeconfig that the options name, or of the usual one."""
    named = ctx.params.get("kubeconfig") or ctx.meta.get(f"{__name__}.kubeconfig")
    found = kubeconfig.contexts_of(kubeconfig.files_of(named))
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads the log, given to it as one `origin`.

    `--context` and `--kubeconfig` are kept with the command's context, for `open_source`.
    """

    @wraps(command)
    def called(*args: Any, home: Path, nats: str | None, file: Path | None, **others: Any) -> Any:
        return command(*args, origin=Origin(home, nats, file), **others)

    given: Any = called
    for decorate in (
        click.option(
            "--context",
            shell_complete=complete_context,
            help="Read the log of this kubeconfig context's cluster.",
            expose_value=False,
            callback=_kept,
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Read the log of this file's cluster.",
            expose_value=False,
            callback=_kept,
        ),
        click.option(
            "--file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Read an exported log (allot log -o jsonl) instead of a live one.",
        ),
        archive_option,
        click.option(
            "--nats",
            envvar="ALLOT_NATS_URL",
            metavar="URL",
            callback=_servers,
            help="NATS server. [ALLOT_NATS_URL]",
        ),
        home_option,
    ):
        given = decorate(given)
    return given  # type: ignore[no-any-return]


def _servers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from allotment.adapters.service.settings import NATS_URLS

    if value and not re.match(NATS_URLS, value):
        raise click.BadParameter(
            f"{value!r} is not the address of a server: write nats://HOST:PORT or tls://HOST:PORT, "
            "several of one cluster separated by commas"
        )
    return value


def _archive(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    from allotment.adapters.archive.store import normal

    try:
        _kept(ctx, parameter, normal(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _kept(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.meta[f"{__name__}.{parameter.name}"] = value


def choose_cluster(kubeconfig: Path | None, context: str | None) -> None:
    """Let the running command read the log of this cluster, as if its options named it here."""
    ctx = click.get_current_context()
    ctx.meta[f"{__name__}.kubeconfig"], ctx.meta[f"{__name__}.context"] = kubeconfig, context


def chosen_cluster() -> Choice | None:
    """The cluster that the options of the running command name; None if they name none."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return None
    found = Choice(ctx.meta.get(f"{__name__}.kubeconfig"), ctx.meta.get(f"{__name__}.context"))
    return None if found == Choice() else found


def home_option(command: F) -> F:
    """Where local mode keeps its state."""
    return click.option(
        "--home",
        envvar="ALLOT_HOME",
        default=DEFAULT_HOME,
        show_default=True,
        type=click.Path(path_type=Path, file_okay=False),
        callback=lambda ctx, parameter, value: value.expanduser(),
        help="State of local mode. [ALLOT_HOME]",
    )(command)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that speaks to Kubernetes, given to it as one `access`."""

    @wraps(command)
    def called(
        *args: Any, home: Path, kubeconfig: Path | None, context: str | None, **others: Any
    ) -> Any:
        from allotment.answers.cluster import Access

        return command(*args, access=Access(home, kubeconfig, context), **others)

    given: Any = called
    for decorate in (
        click.option(
            "--context",
            envvar="ALLOT_KUBE_CONTEXT",
            shell_complete=complete_context,
            help="Context of the kubeconfig.",
        ),
        click.option(
            "--kubeconfig",
            envvar="ALLOT_KUBECONFIG",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Which cluster (default: KUBECONFIG, local mode if it runs, ~/.kube/config).",
        ),
        home_option,
    ):
        given = decorate(given)
    return given  # type: ignore[no-any-return]


def archive_option(command: F) -> F:
    """Where the archive is; kept with the command's context."""
    return click.option(
        "--archive",
        envvar="ALLOT_ARCHIVE",
        metavar="URL",
        help="Where records that left NATS are, if not where the log says: a directory or"
        " s3://BUCKET/PREFIX. [ALLOT_ARCHIVE]",
        expose_value=False,
        callback=_archive,
    )(command)


def chosen_archive() -> str | None:
    """The URL of the archive that the options of the running command name."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(f"{__name__}.archive")


def open_source(origin: Origin) -> AbstractAsyncContextManager[Source]:
    """The log of the running command's options. Raises `AllotError`."""
    return source.open_source(named(origin), TERMINAL)


def open_as_admin(origin: Origin) -> AbstractAsyncContextManager["Connection"]:
    """NATS of the running command's options, as an administrator. Raises `AllotError`."""
    return source.open_as_admin(named(origin), TERMINAL)


def open_cluster(access: "Access") -> AbstractAsyncContextManager["Cluster"]:
    """The API server of these options. Raises `AllotError`."""
    from allotment.answers import cluster  # its client takes long to load

    return cluster.open_cluster(access, TERMINAL)


def cluster_of(origin: Origin) -> Choice | None:
    """The cluster whose log the running command's options read; None where they name none."""
    return source.cluster_of(named(origin))


def named(origin: Origin) -> Origin:
    """With the cluster that the options of the running command name."""
    return origin._replace(cluster=chosen_cluster(), archive=chosen_archive())
