"""The steps of a round, for callers that time them.

The core has no clock: it calls an `OnStep` at the end of each step, which decides nothing.
"""

from collections.abc import Callable
from typing import Final

OnStep = Callable[[str, str], None]
"""Called with a kind and a name at the end of that step."""

SESSION: Final = "session"
"""The session is open, with all of its plugins."""
PLUGIN: Final = "plugin"
"""The plugin of that name is open."""
ACTION: Final = "action"
"""The action of that name has ended."""


Checkpoint = Callable[[], None]
"""Called every few milliseconds within a long step. It may raise an error of its own to abandon the
round; after that, run no further round on the same views.
"""


def unending() -> None:
    """The checkpoint of a round that cannot be abandoned."""


def untimed(kind: str, name: str) -> None:
    """The `OnStep` of a round that is not timed."""
