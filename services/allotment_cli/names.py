"""Names of pods and groups as users type them."""

from collections.abc import Iterable
from difflib import get_close_matches

from allotment_cli.errors import CliError


def pod_name(text: str, kind: str = "pod") -> tuple[str, str]:
    """``ns/name``, or ``name`` in namespace ``default``. Raises `CliError` for anything else."""
    namespace, slash, name = text.rpartition("/")
    if not slash:
        namespace = "default"
    if not namespace or not name or "/" in namespace:
        raise CliError(
            f"{text!r} is not the name of a {kind}", "give NAMESPACE/NAME, or NAME in default"
        )
    return namespace, name


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
