"""Names that a log does not know: what was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

from allotment.core.errors import AllotError


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy for a name that is not known: the nearest that is, or else what to run."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise


def no_such_node(name: str, known: Iterable[str], seq: int) -> AllotError:
    """What to raise for a node that is not there: misspelt, or gone."""
    close = get_close_matches(name, list(known), n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return AllotError(
        f"there is no node {name} at seq {seq}",
        f"{guess}if it went, its records say when: allot log --node {name}",
    )


def near(namespace: str, name: str, known: Iterable[str]) -> str:
    """The nearest of the known ``ns/name``: in the namespace one alike, or else the same in
    another. Empty if none is near.
    """
    pairs = [tuple(each.partition("/")[::2]) for each in known]
    here = [other for space, other in pairs if space == namespace]
    if close := get_close_matches(name, here, n=1):
        return f"{namespace}/{close[0]}"
    begins = [other for other in here if other.startswith(name)]
    if begins:
        return f"{namespace}/{min(begins)}"
    return next((f"{space}/{other}" for space, other in sorted(pairs) if other == name), "")
