"""What a round is through with, told to whoever wants to time it.

The core knows no clock: a `Lap` hears that something has just ended, and what came before it is not
its business. Nothing is decided by it.
"""

from collections.abc import Callable
from typing import Final

Lap = Callable[[str, str], None]
"""Called with a kind and a name when that has just ended."""

SESSION: Final = "session"
"""The session is open, all of its plugins included."""
PLUGIN: Final = "plugin"
"""The plugin of that name is open."""
ACTION: Final = "action"
"""The action of that name is through."""


def untimed(kind: str, name: str) -> None:
    """Nobody wants to know."""
