"""What changed, in order: how a view that is kept finds what it has to look at again.

A follower remembers a position and asks for the names since then. The trail has an end: a
follower that was away for too long gets None, and looks at everything.
"""

NAMES_MAX = 1 << 16


class Trail:
    """Names of what changed, the last `NAMES_MAX` at most."""

    __slots__ = ("_dropped", "_names")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        """The position behind the last name."""
        return self._dropped + len(self._names)

    def add(self, name: str) -> None:
        self._names.append(name)
        if len(self._names) > NAMES_MAX:
            forgotten = NAMES_MAX // 2  # not all: close followers must not start over
            del self._names[:forgotten]
            self._dropped += forgotten

    def since(self, position: int) -> list[str] | None:
        """The names since a position; None if some of them are forgotten."""
        if position < self._dropped:
            return None
        return self._names[position - self._dropped :]

    def break_off(self) -> None:
        """Things changed that were not noted: all who follow have to look at everything."""
        self._dropped = self.end + 1
        self._names.clear()
