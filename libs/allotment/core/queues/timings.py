"""The steps of a round, for whoever wants to time them.

The core knows no clock: an `OnStep` is called when a step has just ended. Nothing is decided by it.
"""

from collections.abc import Callable
from typing import Final

OnStep = Callable[[str, str], None]
"""Called with a kind and a name when that has just ended."""

SESSION: Final = "session"
"""The session is open, all of its plugins included."""
PLUGIN: Final = "plugin"
"""The plugin of that name is open."""
ACTION: Final = "action"
"""The action of that name is through."""


Checkpoint = Callable[[], None]
"""Called again and again within a long step, every few milliseconds. It may raise an error of its
own to abandon the round; whoever does that runs no further round on the same views.
"""


def unending() -> None:
    """The checkpoint of a round that nobody abandons."""


def untimed(kind: str, name: str) -> None:
    """For a round that nobody times."""
