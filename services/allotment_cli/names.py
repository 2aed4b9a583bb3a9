"""Names of pods, groups and nodes as users type them."""

from collections.abc import Iterable
from difflib import get_close_matches

from allotment_cli.errors import CliError

USUAL_NAMESPACE = "default"


def pod_name(text: str, kind: str = "pod", namespace: str | None = None) -> tuple[str, str]:
    """``ns/name``, or ``name`` in the namespace of `-n`, or else in the usual one.

    Raises `CliError` for anything else.
    """
    given, slash, name = text.rpartition("/")
    if slash and namespace is not None and given != namespace:
        raise CliError(
            f"{kind} {text} is not in namespace {namespace}, which -n names",
            "give the namespace once",
        )
    space = given if slash else namespace or usual_namespace()
    if not space or not name or "/" in space:
        raise CliError(
            f"{text!r} is not the name of a {kind}",
            "give NAMESPACE/NAME, or NAME in the default namespace, or NAME with -n NAMESPACE",
        )
    return space, name


def usual_namespace() -> str:
    """Where a name is for which no namespace is given."""
    return USUAL_NAMESPACE


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy for a name that is not known: the nearest that is, or else what to run."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise


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
