"""What is printed and where: data on stdout, everything about the data on stderr.

Columns are padded, never cut and never wrapped, whatever the terminal: a line is a row. Colour is
used on terminals only, not under NO_COLOR, and nothing is said by colour alone.

Names and messages come from whoever may create an object, so nothing reaches a terminal but through
here: what it would not print as itself is escaped, a line break included. A line stays a line.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence

import click
import msgspec
from click.core import ParameterSource

from allotment.adapters.telemetry.log import printable

GAP = "  "
READERS = frozenset(("blame", "explain", "get", "ledger", "log", "story", "trace"))
"""Commands that take the options which say where the log is."""
DOCUMENTS = ("json", "yaml")
"""Formats of `-o` in which the whole answer is one document."""
TINTS = {
    **dict.fromkeys(("Pending", "Reserved", "Terminating", "Cordoned", "Unknown"), "yellow"),
    **dict.fromkeys(("Failed", "NotReady", "Gone", "Unhealthy", "UNHEALTHY"), "red"),
    **dict.fromkeys(("Oversold", "OVERSOLD"), "red"),
}
"""Words that ask for a look, and their colour. Names of objects have no capital letters."""
_TINTED = re.compile(rf"(?<![\w/.-])({'|'.join(TINTS)})(?![\w/.-])")


class _Styled(str):
    """A line that is escaped already and has colours of ours."""

    __slots__ = ()


class Prose(str):
    """A line of words, which a narrow terminal shows on several: those after the first begin at
    column `indent`.
    """

    __slots__ = ("indent",)
    indent: int

    def __new__(cls, text: str, indent: int) -> "Prose":
        made = super().__new__(cls, text)
        made.indent = indent
        return made


def screen_width() -> int | None:
    """The columns of the terminal; None if stdout is none: then nothing is wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """The lines, with prose broken between words where it is wider. Nothing is ever cut: a word
    that is wider by itself stays whole.
    """
    if width is None:
        return list(lines)
    return [part for line in lines for part in _wrapped(line, width)]


def _wrapped(line: str, width: int) -> list[str]:
    if not isinstance(line, Prose):
        return [line]
    shown = printable(line)
    if len(shown) <= width:
        return [shown]
    head, words = shown[: line.indent], shown[line.indent :].split(" ")
    out, current = [], head + words[0]
    for word in words[1:]:
        if len(current) + 1 + len(word) > width:
            out.append(current.rstrip())
            current = " " * line.indent + word
        else:
            current += f" {word}"
    return [*out, current.rstrip()]


def emit(lines: Iterable[str]) -> None:
    """Data lines to stdout."""
    for line in lines:
        click.echo(line if isinstance(line, _Styled) else printable(line))


def emit_json(value: object) -> None:
    """One JSON document, indented, to stdout."""
    click.echo(json_text(value))


def emit_document(value: object, output: str) -> None:
    """One document in one of `DOCUMENTS`, to stdout: the same facts in either."""
    click.echo(yaml_text(value) if output == "yaml" else json_text(value))


def emit_json_line(values: Iterable[object]) -> None:
    """A JSON document a line, to stdout."""
    for value in values:
        click.echo(printable_json(msgspec.json.encode(value).decode()))


def yaml_text(value: object) -> str:
    """The JSON document as YAML: what is no printable ASCII is escaped."""
    import yaml

    plain = msgspec.json.decode(msgspec.json.encode(value))
    return yaml.safe_dump(plain, sort_keys=False, width=2**31).rstrip("\n")


def json_text(value: object) -> str:
    """The same document for programs, in printable characters for people."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "\n".join(map(printable_json, text.split("\n")))


def printable_json(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def note(text: str) -> None:
    """Something about the data, to stderr."""
    click.echo(printable(text), err=True)


def suggest(command: str) -> None:
    """The one command worth running next, about the same log as the one that runs."""
    words = command.split(" ")
    same_log = _same_log() if words[0] == "allot" and words[1] in READERS else []
    at = words.index("show") if "show" in words else len(words)
    note(f"next: {' '.join([*words[:at], *same_log, *words[at:]])}")


def _same_log() -> list[str]:
    """The options by which the running command was told on its command line where the log is."""
    ctx, found = click.get_current_context(silent=True), []
    while ctx is not None:
        for name in ("file", "nats", "home", "context", "kubeconfig"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                found += [f"--{name}", shlex.quote(str(ctx.params[name]))]
        ctx = ctx.parent
    return found


def heading(text: str) -> str:
    """A heading, a line of its own: bold on a terminal."""
    shown = printable(text)
    return _Styled(click.style(shown, bold=True) if _colour() else shown)


def tinted(line: str) -> str:
    """A line of a table: on a terminal its words of `TINTS` have their colour."""
    shown = printable(line)
    if not _colour():
        return shown
    return _Styled(_TINTED.sub(lambda found: click.style(found[0], fg=TINTS[found[0]]), shown))


def _colour() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


class Table:
    """Plain columns whose widths last, so that later rows stand under the first ones.

    Columns named in `right` are flush right. Empty cells show ``-``.
    """

    def __init__(
        self, headers: Sequence[str], *, right: Iterable[str] = (), indent: str = ""
    ) -> None:
        self._headers = headers
        self._flush = [header in set(right) for header in headers]
        self._widths = [len(header) for header in headers]
        self._indent = indent

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """The headers and these rows."""
        shown = self._take(rows)
        return [self._line(self._headers), *map(self._tinted, shown)]

    def more(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Further rows, without headers."""
        return [self._tinted(row) for row in self._take(rows)]

    def _take(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        shown = [[printable(cell) or "-" for cell in row] for row in rows]
        columns = zip(*shown, strict=True) if shown else ((),) * len(self._headers)
        self._widths = [
            max([width, *map(len, column)])
            for width, column in zip(self._widths, columns, strict=True)
        ]
        return shown

    def _line(self, cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, self._widths, self._flush, strict=True)
        ]
        return (self._indent + GAP.join(padded)).rstrip()

    def _tinted(self, cells: Sequence[str]) -> str:
        return tinted(self._line(cells))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Iterable[str] = (),
    indent: str = "",
) -> list[str]:
    """A `Table` with all its rows."""
    return Table(headers, right=right, indent=indent).lines(rows)


def bar(used: int, total: int, width: int = 20) -> str:
    """``[######....]``: a part that is in use at all shows, and only a full one is full."""
    if total <= 0:
        return "[" + "." * width + "]"
    filled = min(max(used, 0), total) * width // total
    if used > 0:
        filled = max(filled, 1)
    return "[" + "#" * filled + "." * (width - filled) + "]"
