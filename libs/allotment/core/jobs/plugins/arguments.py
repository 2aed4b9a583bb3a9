"""Plugin arguments as users write them: `--name=value`, `-name=value`, `--name value`, `--flag`."""

from collections.abc import Mapping, Sequence

from allotment.core.units import natural


def read(arguments: Sequence[str]) -> Mapping[str, str]:
    """Values by name; a flag without a value is "true"."""
    found: dict[str, str] = {}
    waiting = ""
    for argument in arguments:
        if argument.startswith("-"):
            name, equals, value = argument.lstrip("-").partition("=")
            found[name] = value if equals else "true"
            waiting = "" if equals else name
        elif waiting:
            found[waiting] = argument
            waiting = ""
    return found


def is_set(given: Mapping[str, str], name: str, default: bool) -> bool:
    """A switch; Go's spellings of true."""
    text = given.get(name)
    return default if text is None else text in ("true", "True", "TRUE", "t", "T", "1")


def port(given: Mapping[str, str], name: str, default: int) -> int:
    """A port number; the default when it is none."""
    number = natural(given.get(name, "")) or 0
    return number if 0 < number < 65536 else default
