"""What a page says when what was asked for does not exist."""

import difflib
from collections.abc import Callable, Iterable

import msgspec

NEAREST = 5
_NAMES_LOOKED_AT = 20_000


class Near(msgspec.Struct, frozen=True):
    """A name that was perhaps meant, and where it is."""

    name: str
    path: str


class NotFound(msgspec.Struct, frozen=True):
    """There is no such thing at the moment of the page: `what` is its kind, in words."""

    what: str
    name: str
    nearest: tuple[Near, ...] = ()


def not_found(
    what: str, name: str, names: Iterable[str], path_of: Callable[[str], str]
) -> NotFound:
    """That there is none of that name, and which others are like it."""
    known = [known for known, _ in zip(names, range(_NAMES_LOOKED_AT), strict=False)]
    close = difflib.get_close_matches(name, known, n=NEAREST, cutoff=0.5)
    close += [each for each in known if name and name in each and each not in close][:NEAREST]
    return NotFound(what, name, tuple(Near(each, path_of(each)) for each in close[:NEAREST]))
