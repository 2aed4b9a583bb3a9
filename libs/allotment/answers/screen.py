"""What a person sees while an answer is on its way."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Screen(Protocol):
    """Shows a person what is said about an answer, and how far it is."""

    def note(self, text: str) -> None:
        """Something about the data."""
        ...

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """While the body runs, of `total` units of work. What it gets is called with how much was
        done since the last call.
        """
        ...

    def waiting(self, text: str) -> AbstractContextManager[None]:
        """While the body runs, whose progress is unknown."""
        ...


class Unseen:
    """A `Screen` that shows nothing."""

    def note(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda done: None

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        yield


UNSEEN = Unseen()
