"""Names of pods and groups as users type them."""

from allotment_cli.errors import CliError


def pod_name(text: str, kind: str = "pod") -> tuple[str, str]:
    """``ns/name``, or ``name`` in namespace ``default``. Raises `CliError` for anything else."""
    namespace, slash, name = text.rpartition("/")
    if not slash:
        namespace = "default"
    if not namespace or not name or "/" in namespace:
        raise CliError(f"{text!r} names no {kind}", "give NAMESPACE/NAME, or NAME in default")
    return namespace, name
