"""What a page says when what was asked for does not exist."""

import difflib
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice, pairwise

import msgspec

from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.asked import natural

NEAREST = 5
_NAMES_LOOKED_AT = 20_000
_NAMES_COMPARED = 100
"""To compare two names letter by letter takes some 100 µs, so of thousands only those are compared
that have the most in common."""
_CHARS_COMPARED = 120
_ALIKE = 0.5


class Near(msgspec.Struct, frozen=True):
    """A name that was perhaps meant, and where it is."""

    name: str
    path: str


class NotFound(msgspec.Struct, frozen=True):
    """There is no such thing at the moment of the page: `what` is its kind, in words. `later` is
    the record that was asked for, if it was written after the moment. Up to `gone_seq` the log
    cannot be read, and `gone` says why and what to do.
    """

    what: str
    name: str
    nearest: tuple[Near, ...] = ()
    later: int = 0
    gone_seq: int = 0
    gone: str = ""

    def of(self, moment: Moment) -> "NotFound":
        """The same, with what cannot be known."""
        return msgspec.structs.replace(self, gone_seq=moment.gone_seq, gone=moment.gone)


def no_record(moment: Moment, what: str, digits: str, nearest: tuple[Near, ...]) -> NotFound:
    """That there is no such record up to the moment, or not one of this kind."""
    seq = natural(digits) or 0
    return NotFound(what, digits, nearest, seq if moment.seq < seq <= moment.head_seq else 0)


def not_found(
    what: str, name: str, names: Iterable[str], path_of: Callable[[str], str]
) -> NotFound:
    """That there is none of that name, and which others are like it."""
    known = list(islice(names, _NAMES_LOOKED_AT))
    alike = _most_in_common(name[:_CHARS_COMPARED], known)
    close = difflib.get_close_matches(name[:_CHARS_COMPARED], alike, n=NEAREST, cutoff=_ALIKE)
    within = islice((each for each in known if name and name in each), 2 * NEAREST)
    shown = list(dict.fromkeys([*close, *within]))[:NEAREST]
    return NotFound(what, name, tuple(Near(each, path_of(each)) for each in shown))


def _most_in_common(name: str, known: Iterable[str]) -> list[str]:
    """The names that have the most pairs of letters of this one, of equal ones those of nearly its
    length. A name that is too long or too short to be alike is none of them.
    """
    pairs = {first + second for first, second in pairwise(name)}
    size = len(name)
    ranked = (
        (-sum(pair in each for pair in pairs), abs(len(each) - size), each)
        for each in known
        if 2 * min(size, len(each)) >= _ALIKE * (size + len(each))
    )
    return [each for *_, each in nsmallest(_NAMES_COMPARED, ranked)]
