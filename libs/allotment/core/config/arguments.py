"""One argument: its value in the policy's units, or a word about why the default stays."""

import re
from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Decimal

from allotment.core.config.document import Entry, Mark, Scalar, Value, is_text, show
from allotment.core.config.known import ELSEWHERE, NO_EFFECT, PLUGINS
from allotment.core.config.report import Report, hint
from allotment.core.plugin_arguments import Argument, Kind
from allotment.core.plugin_arguments import Arguments as Declared
from allotment.core.units import duration_ms

Plain = int | bool | str
Arguments = dict[str, Plain]

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INTEGER_TEXT = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_DECIMAL_TEXT = re.compile(r"[-+]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})", re.ASCII)
_DIGITS_MOST = 15
_TOO_MUCH = 1_000_000_000_000_000


def read_known(report: Report, owner: str, entries: Iterable[Entry], known: Declared) -> Arguments:
    """The arguments of a table, those that are given and usable; every other is said."""
    found: Arguments = {}
    for entry in entries:
        argument = known.get(entry.key)
        if argument is None:
            unknown(report, owner, entry, tuple(known))
        elif not argument.is_used:
            report.warn(entry.mark, f"{entry.key} of {owner}: {NO_EFFECT}")
        else:
            value = read(report, f"{entry.key} of {owner}", entry.value, argument)
            if value is not None:
                found[entry.key] = value
    return found


def unknown(report: Report, owner: str, entry: Entry, known: tuple[str, ...]) -> None:
    """Warn of an argument that is not known, with the nearest that is."""
    key = entry.key
    others = [name for name, arguments in PLUGINS.items() if key in arguments]
    if key in ELSEWHERE:
        remedy = ELSEWHERE[key]
    elif others:
        remedy = f"it belongs to the plugin {others[0]}"
    else:
        remedy = hint(key, known) if known else "it takes none"
    report.warn(entry.mark, f"unknown argument {key} of {owner}, ignored; {remedy}")


def read(report: Report, what: str, value: Value, argument: Argument) -> int | bool | None:
    """The value in the policy's units; None, and a warning or a problem, if it cannot be used."""
    wanted, default = argument.kind.value, f"the default{_shown_default(argument)} stays"
    if argument.kind is Kind.BOOLEAN:
        truth = boolean(value)
        if truth is None:
            report.ignored(what, value, wanted, default)
        return truth
    number = _number(report, what, value, argument.kind)
    if number is None:
        report.ignored(what, value, wanted, default)
    elif number < argument.least:
        least = _shown(argument.kind, argument.least)
        report.ignored(what, value, f"at least {least}", default)
    elif number > argument.most:
        most = _shown(argument.kind, argument.most)
        report.wrong(what, value, f"{wanted}, at most {most}")
    else:
        return number
    return None


def boolean(value: Value) -> bool | None:
    """YAML's booleans and the texts that Go takes for one."""
    if isinstance(value, Scalar) and isinstance(value.value, bool):
        return value.value
    if is_text(value) and value.text in _TRUE | _FALSE:
        return value.text in _TRUE
    return None


def integer(value: Value) -> int | None:
    """An integer of YAML, or a text that is one: who quotes a weight means the number. (Volcano
    takes its default for a quoted one, without a word.)
    """
    if is_text(value):
        return int(value.text) if _INTEGER_TEXT.fullmatch(value.text) else None
    if not isinstance(value, Scalar) or isinstance(value.value, bool):
        return None
    return value.value if isinstance(value.value, int) else None


def _decimal(value: Value) -> Decimal | None:
    """A number with a fraction, also a quoted one."""
    if is_text(value):
        return Decimal(value.text) if _DECIMAL_TEXT.fullmatch(value.text) else None
    number = value.value if isinstance(value, Scalar) else None
    return number if isinstance(number, Decimal) else None


def _number(report: Report, what: str, value: Value, kind: Kind) -> int | None:
    if kind is Kind.DURATION:
        return duration_ms(value.text) if is_text(value) else None
    whole = integer(value)
    if kind is Kind.INTEGER:
        return whole
    if whole is not None:
        return whole * 1_000
    decimal = _decimal(value)
    return None if decimal is None else _thousandths(report, what, decimal, value.mark)


def _thousandths(report: Report, what: str, number: Decimal, mark: Mark) -> int | None:
    if not number.is_finite():
        return None
    if number.adjusted() >= _DIGITS_MOST:  # beyond every limit; spelling it out could cost much
        return -_TOO_MUCH if number < 0 else _TOO_MUCH
    scaled = number.scaleb(3) if number.adjusted() > -_DIGITS_MOST else Decimal(0)
    rounded = int(scaled.to_integral_value(ROUND_HALF_EVEN))
    if rounded != scaled:
        report.warn(mark, f"{what} is rounded to {_shown(Kind.DECIMAL, rounded)}")
    return rounded


def _shown_default(argument: Argument) -> str:
    if argument.kind is Kind.DURATION:
        return ""
    return f" {_shown(argument.kind, argument.default)}"


def _shown(kind: Kind, number: int) -> str:
    """A number in the policy's units as the file would write it."""
    match kind:
        case Kind.BOOLEAN:
            return "true" if number else "false"
        case Kind.DECIMAL:
            return f"{Decimal(number).scaleb(-3).normalize():f}"
        case Kind.DURATION:
            return f"{number} ms"
        case Kind.INTEGER:
            return str(number)


def text_of(report: Report, what: str, value: Value, default: str) -> str:
    """A text; another value is left aside, as in Volcano."""
    if is_text(value):
        return value.text
    report.warn(
        value.mark, f"{what} is {show(value)}; wanted: a text; the default {default!r} stays"
    )
    return default
