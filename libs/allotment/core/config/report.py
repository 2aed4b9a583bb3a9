"""What is to be said about a configuration file, each with its place."""

from collections.abc import Iterable
from difflib import get_close_matches

from allotment.core.config.document import Entry, Mark, Sequence, Value, is_empty, show


class Report:
    """Collects what is wrong: `problems` refuse the file, `warnings` do not.

    Both read ``<source>:<line>:<column>: <what> is <value>; wanted: <remedy>`` or alike.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def fail(self, mark: Mark | None, message: str) -> None:
        self.problems.append(f"{self._place(mark)}: {message}")

    def warn(self, mark: Mark, message: str) -> None:
        self.warnings.append(f"{self._place(mark)}: {message}")

    def wrong(self, what: str, value: Value, wanted: str) -> None:
        """A problem with a value: what it is and what would be right."""
        self.fail(value.mark, f"{what} is {show(value)}; wanted: {wanted}")

    def ignored(self, what: str, value: Value, wanted: str, instead: str) -> None:
        """A warning about a value that is left aside, and what counts instead."""
        self.warn(value.mark, f"{what} is {show(value)}; wanted: {wanted}; {instead}")

    def unknown_keys(self, what: str, entries: Iterable[Entry], known: tuple[str, ...]) -> None:
        for entry in entries:
            if entry.key not in known:
                self.warn(
                    entry.mark, f"unknown key {entry.key} {what}, ignored; {hint(entry.key, known)}"
                )

    def list_of(self, what: str, value: Value | None, wanted: str) -> tuple[Value, ...]:
        """The items of a list; a value that is none is a problem, no value is an empty list."""
        if value is None or isinstance(value, Sequence):
            return () if value is None else value.items
        self.wrong(what, value, wanted)
        return ()

    def name(self, what: str, mark: Mark, value: Value | None) -> None:
        """Say that a thing has no name that is a text."""
        if value is None or is_empty(value):
            self.fail(mark, f"{what} has no name; wanted: a mapping with a name")
        else:
            self.wrong(f"the name of {what}", value, "a text")

    def _place(self, mark: Mark | None) -> str:
        return f"{self.source}:{mark.line}:{mark.column}" if mark else self.source


def hint(word: str, known: Iterable[str]) -> str:
    """The nearest known spelling, or all of them."""
    names = tuple(known)
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(word.lower(), by_lower, 1)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"known are {', '.join(names)}" if names else "none are known"
