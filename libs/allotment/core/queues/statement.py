"""What a round tried, and how to take it back: the one undo of queues, places and victims."""

from collections.abc import Callable


class Statement:
    """The operations of a round, in order. The code that changes something records how to undo it.
    A rollback undoes everything since a checkpoint, the last operation first.
    """

    def __init__(self) -> None:
        self._undos: list[Callable[[], None]] = []
        self.stretch = 0
        """A number for the stretch since the last checkpoint or rollback. What was copied in this
        stretch may be changed in place, because no rollback ends within it.
        """

    def __len__(self) -> int:
        return len(self._undos)

    def did(self, undo: Callable[[], None]) -> None:
        """Record an operation that `undo` takes back."""
        self._undos.append(undo)

    def checkpoint(self) -> int:
        """The number of operations so far, for `rollback`."""
        self.stretch += 1
        return len(self._undos)

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo what was done since the checkpoint."""
        self.stretch += 1
        while len(self._undos) > checkpoint:
            self._undos.pop()()
