"""Options that several commands share, spelt as kubectl spells them, and kinds of values."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from allotment.core.errors import AllotError
from allotment_cli.options import completion

F = TypeVar("F", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`: text, or one of these. `output.DOCUMENTS` are one document, for `emit_document`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(("text", *formats)),
        default="text",
        help="How to print the answer.",
    )


def at_option(command: F) -> F:
    """`--at`: the moment that is asked for."""
    return click.option(
        "--at", metavar="MOMENT", help="As of a sequence, 14:03, -15m or RFC 3339 (default: now)."
    )(command)


def namespace_option(command: F) -> F:
    """`-n` of a command about one object: where a name is that is given without a namespace.

    Give the value to `names.pod_name`.
    """
    return click.option(
        "-n",
        "--namespace",
        shell_complete=completion.namespaces,
        help="Namespace of the name (default: default; that of the kubeconfig's context where a"
        " cluster is read).",
    )(command)


def namespaces_options(command: F) -> F:
    """`-n` and `-A` of a command about many objects, as `namespace` and `all_namespaces`."""
    for decorate in (
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."),
        click.option(
            "-n",
            "--namespace",
            shell_complete=completion.namespaces,
            help="Only this namespace (default: that of the kubeconfig's context, or default).",
        ),
    ):
        command = decorate(command)
    return command


def watch_option(command: F) -> F:
    """`-w`: go on with what changes."""
    return click.option(
        "-w", "--watch", is_flag=True, help="Then show what is new or changes, until stopped."
    )(command)


SELECTOR_FORMS = "write KEY=VALUE, KEY!=VALUE, KEY, !KEY, or 'KEY in (A, B)', with commas between"


def label_test(text: str | None) -> Callable[[Mapping[str, str]], bool]:
    """`-l`: a test of labels; without a text everything passes. Raises `AllotError`."""
    if text is None:
        return lambda labels: True
    from allotment_local.apiserver.errors import ApiError
    from allotment_local.apiserver.selectors import compile_labels

    try:
        return compile_labels(text)
    except ApiError as error:
        raise AllotError(f"-l {text!r} is not a label selector", SELECTOR_FORMS) from error


class Finite(click.FloatRange):
    """A number in a range; NaN, which no comparison refuses, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def can_be_written(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file in a directory that is not there, before any work is done."""
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"directory {str(value.parent)!r} does not exist.", ctx, param)
    return value
