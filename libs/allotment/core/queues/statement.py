"""What a round tried, and how to take it back: the one undo of queues, places and victims."""

from collections.abc import Callable


class Statement:
    """The operations of a round in order. Whoever changes something notes how to take it back; what
    was done since a checkpoint is rolled back together, the last operation first.
    """

    def __init__(self) -> None:
        self._undos: list[Callable[[], None]] = []
        self.stretch = 0
        """A number for the time since the last checkpoint or rollback: what was copied in this
        stretch may be changed in place, since nobody can go back into its middle."""

    def __len__(self) -> int:
        return len(self._undos)

    def did(self, undo: Callable[[], None]) -> None:
        """Something was done that `undo` takes back."""
        self._undos.append(undo)

    def checkpoint(self) -> int:
        """The operations so far, for `rollback`."""
        self.stretch += 1
        return len(self._undos)

    def rollback(self, checkpoint: int = 0) -> None:
        """Take back what was done since the checkpoint."""
        self.stretch += 1
        while len(self._undos) > checkpoint:
            self._undos.pop()()
