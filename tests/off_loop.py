"""A fold's `off_loop` for a state that nothing moves by itself: the work is done at once."""

from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


class AtOnce:
    """Whatever stands in for a `Fold` and has no event loop to keep free."""

    async def off_loop(self, work: Callable[[], Made]) -> Made:
        return work()
