"""What changed, in order: how a view that is kept finds what it has to look at again.

A follower remembers a position and asks for the changes since then. The trail has an end: a
follower that was away for too long gets None, and looks at everything.
"""

from typing import Generic, TypeVar

_T = TypeVar("_T")

NAMES_MAX = 1 << 16


class Trail(Generic[_T]):
    """The last changes, `most` of them or fewer."""

    __slots__ = ("_changes", "_dropped", "most")

    def __init__(self, most: int = NAMES_MAX) -> None:
        self.most = most
        self._changes: list[_T] = []
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def start(self) -> int:
        """The position of the oldest change that is known."""
        return self._dropped

    @property
    def end(self) -> int:
        """The position behind the last change."""
        return self._dropped + len(self._changes)

    def add(self, change: _T) -> None:
        self._changes.append(change)
        if len(self._changes) > self.most:
            forgotten = self.most // 2  # not all: close followers must not start over
            del self._changes[:forgotten]
            self._dropped += forgotten

    def since(self, position: int) -> list[_T] | None:
        """The changes since a position; None if some of them are forgotten."""
        if position < self._dropped:
            return None
        return self._changes[position - self._dropped :]

    def break_off(self) -> None:
        """Things changed that were not noted: all who follow have to look at everything."""
        self._dropped = self.end + 1
        self._changes.clear()
