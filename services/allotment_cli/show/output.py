"""What is printed and where: data on stdout, everything about the data on stderr.

What is wider than the terminal is wrapped between words: a line of prose as a whole, a row of a
table cell by cell. Nothing is ever cut, so that a name can be copied from every screen. Columns for
which a narrow terminal has no room are left out and named on stderr; `-o wide` wraps nothing and
leaves none out. Where no terminal reads, prose is 100 columns wide and rows are whole, each on one
line, for grep and awk; COLUMNS is as good as a terminal of that width. Colour is used on terminals
only, not under NO_COLOR, and nothing is said by colour alone.

Names and messages come from any client of the cluster, so nothing reaches a terminal but through
here: what it would not print as itself is escaped, a line break included.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click
import msgspec
from click.core import ParameterSource

from allotment.adapters.telemetry.log import printable

GAP = "  "
PIPED_COLUMNS = 100
"""How wide a screen is that is not read on a terminal. COLUMNS says otherwise."""
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

    __slots__ = ("indent", "is_bold")
    indent: int
    is_bold: bool

    def __new__(cls, text: str, indent: int) -> "Prose":
        made = super().__new__(cls, text)
        made.indent, made.is_bold = indent, False
        return made


class _Layout:
    """The columns of one table, as wide as its widest cells so far."""

    def __init__(
        self,
        headers: Sequence[str],
        right: Iterable[str],
        indent: str,
        optional: Sequence[str],
    ) -> None:
        flush = set(right)
        self._headers = headers
        self._optional = [headers.index(header) for header in optional]
        self.flush = [header in flush for header in headers]
        self.widths = [0] * len(headers)
        self.indent = indent
        self._least = [0] * len(headers)
        """How narrow a column may become: numbers and words stay whole."""
        self.take(headers, breaks=True)

    def take(self, cells: Sequence[str], *, breaks: bool = False) -> None:
        """Make room for the cells of a row. Amounts, which are flush right, stay on one line unless
        it `breaks`, as headers do.
        """
        for at, cell in enumerate(cells):
            self.widths[at] = max(self.widths[at], len(cell))
            is_whole = self.flush[at] and not breaks
            parts = [cell] if is_whole else [p for w in cell.split(" ") for p in _parts(w)]
            self._least[at] = max(self._least[at], *map(len, parts), 0)

    def left_out(self, width: int | None) -> list[str]:
        """The headers of the columns that a screen has no room for."""
        shown = self.within(width)
        return [header for at, header in enumerate(self._headers) if at not in shown]

    def within(self, width: int | None) -> dict[int, int]:
        """The columns that are shown on a screen, with their widths: the widest become narrower, as
        far as they may; where that is not enough, the optional ones are left out, one by one.
        """
        found = dict(enumerate(self.widths))
        if width is None:
            return found
        optional = iter(self._optional)
        while self._over(found, self._least, width) > 0:
            left_out = next(optional, None)
            if left_out is None:
                break
            del found[left_out]
        over = self._over(found, self.widths, width)
        while over > 0:
            may = [at for at, now in found.items() if now > self._least[at]]
            if not may:
                break
            found[max(may, key=lambda at: found[at])] -= 1
            over -= 1
        return found

    def _over(self, shown: Iterable[int], widths: Sequence[int], width: int) -> int:
        """By how much these columns are too wide."""
        cells = [widths[at] for at in shown]
        return len(self.indent) + len(GAP) * (len(cells) - 1) + sum(cells) - width


class Row(str):
    """A row of a table, its cells escaped; a narrow screen shows cells on several lines."""

    __slots__ = ("cells", "is_bold", "layout")
    cells: Sequence[str]
    layout: _Layout
    is_bold: bool

    def __new__(cls, cells: Sequence[str], layout: _Layout) -> "Row":
        made = super().__new__(cls, _padded(cells, layout.within(None), layout))
        made.cells, made.layout, made.is_bold = cells, layout, False
        return made

    def lines(self, width: int | None) -> list[str]:
        """As it is shown on a screen."""
        widths = self.layout.within(width)
        folded = {at: _folded(self.cells[at], wide) for at, wide in widths.items()}
        shown = []
        for number in range(max(map(len, folded.values()), default=0)):
            line = [""] * len(self.cells)
            for at, parts in folded.items():
                line[at] = parts[number] if number < len(parts) else ""
            shown.append(_padded(line, widths, self.layout))
        return [_bold(line) if self.is_bold else tinted(line) for line in shown]


def _padded(cells: Sequence[str], widths: Mapping[int, int], layout: _Layout) -> str:
    padded = [
        cells[at].rjust(width) if layout.flush[at] else cells[at].ljust(width)
        for at, width in widths.items()
    ]
    return (layout.indent + GAP.join(padded)).rstrip()


def _parts(word: str) -> list[str]:
    """A word in parts, each up to a comma: lists of names are broken there, too."""
    return re.findall(r"[^,]*,+|[^,]+", word)


def _folded(cell: str, width: int) -> list[str]:
    """A cell on lines of this width; a word that is wider stays whole."""
    if len(cell) <= width:
        return [cell]
    out: list[str] = []
    for word in cell.split(" "):
        glue = " "
        for part in [word] if len(word) <= width else _parts(word):
            if out and len(out[-1]) + len(glue) + len(part) <= width:
                out[-1] += glue + part
            else:
                out.append(part)
            glue = ""
    return out


def screen_width() -> int:
    """The columns of the terminal, or those of a screen without one."""
    return shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns


def row_width() -> int | None:
    """How wide rows of tables may be; None where what reads them wants them whole."""
    is_told = os.environ.get("COLUMNS", "").isdecimal()
    return screen_width() if is_told or sys.stdout.isatty() else None


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """The lines, wrapped where they are wider; with None as they are."""
    return [part for line in lines for part in _wrapped(line, width)]


def _wrapped(line: str, width: int | None) -> list[str]:
    if isinstance(line, Row):
        return line.lines(width)
    if not isinstance(line, Prose) or width is None:
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


def emit(lines: Iterable[str], *, wide: bool = False) -> None:
    """Data lines to stdout, wrapped at the width of the screen unless `wide`."""
    width, of_rows = (None, None) if wide else (screen_width(), row_width())
    left_out: dict[str, None] = {}
    for line in lines:
        is_row = isinstance(line, Row)
        if isinstance(line, Row) and line.is_bold:  # the headers, of each table once
            left_out.update(dict.fromkeys(line.layout.left_out(of_rows)))
        for part in _wrapped(line, of_rows if is_row else width):
            shown = part
            if isinstance(line, Prose):
                shown = _bold(part) if line.is_bold else tinted(part)
            click.echo(shown if isinstance(shown, _Styled) else printable(shown))
    if left_out:
        note(f"no room for {', '.join(left_out)}: -o wide shows all columns")


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
    """The options on the running command's command line that name the log."""
    import shlex

    ctx, found = click.get_current_context(silent=True), []
    while ctx is not None:
        for name in ("file", "nats", "home", "context", "kubeconfig"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                found += [f"--{name}", shlex.quote(str(ctx.params[name]))]
        ctx = ctx.parent
    return found


def heading(text: str) -> str:
    """A heading, a line of its own: bold on a terminal. That of a table may be its first row."""
    if isinstance(text, Row | Prose):
        text.is_bold = True
        return text
    return _bold(text)


def _bold(text: str) -> str:
    shown = printable(text)
    return _Styled(click.style(shown, bold=True) if _colour() else shown)


def tinted(line: str) -> str:
    """A line: on a terminal its words of `TINTS` have their colour."""
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

    Columns named in `right` are flush right. Empty cells show ``-``, or nothing in columns that are
    named in `blank` or have no name. `optional` are left out, the first one first, on screens on
    which the others would have no room.
    """

    def __init__(
        self,
        headers: Sequence[str],
        *,
        right: Iterable[str] = (),
        indent: str = "",
        blank: Iterable[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        self._headers = headers
        self._layout = _Layout(headers, right, indent, optional)
        self._empty = ["" if header in {"", *blank} else "-" for header in headers]

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """The headers and these rows."""
        shown = self._take(rows)
        return [Row(self._headers, self._layout), *(Row(cells, self._layout) for cells in shown)]

    def more(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Further rows, without headers."""
        return [Row(cells, self._layout) for cells in self._take(rows)]

    def _take(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        shown = [
            [printable(cell) or empty for cell, empty in zip(row, self._empty, strict=True)]
            for row in rows
        ]
        for cells in shown:
            self._layout.take(cells)
        return shown


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Iterable[str] = (),
    indent: str = "",
    blank: Iterable[str] = (),
    optional: Sequence[str] = (),
) -> list[str]:
    """A `Table` with all its rows."""
    made = Table(headers, right=right, indent=indent, blank=blank, optional=optional)
    return made.lines(rows)


def bar(used: int, total: int, width: int = 20) -> str:
    """``[######....]``: a part that is in use at all shows, and only a full one is full."""
    if total <= 0:
        return "[" + "." * width + "]"
    filled = min(max(used, 0), total) * width // total
    if used > 0:
        filled = max(filled, 1)
    return "[" + "#" * filled + "." * (width - filled) + "]"
