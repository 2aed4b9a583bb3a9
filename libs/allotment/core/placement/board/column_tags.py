"""Which cards have holders with a tag: what pods that keep apart from others ask for.

A card is named by its place in the flattened arrays of the columns.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from allotment.core.placement.board.packing import Bools


class Tags:
    """How many holders with each tag the cards have; cards without any are not in here."""

    def __init__(self) -> None:
        self._cards: dict[str, dict[int, int]] = {}
        self.written: dict[int, dict[str, int]] = {}
        """Per place what was written there last."""

    def write(self, place: int, tags: Mapping[str, int]) -> None:
        """A card's holders have these tags, so many each, and no others."""
        if not tags and place not in self.written:
            return
        for tag, count in self.written.pop(place, {}).items():
            self.count(tag, place, -count)
        for tag, count in tags.items():
            self.count(tag, place, count)
        if tags:
            self.written[place] = dict(tags)

    def count(self, tag: str, place: int, number: int) -> None:
        """So many more holders with a tag on a card."""
        counts = self._cards.setdefault(tag, {})
        now = counts.get(place, 0) + number
        if now:
            counts[place] = now
        else:
            counts.pop(place, None)
            if not counts:
                del self._cards[tag]

    def mask(self, tags: Iterable[str], shape: tuple[int, int]) -> Bools | None:
        """Which cards (N, D) have a holder with one of the tags; None if there are none."""
        places = [place for tag in tags for place in self._cards.get(tag, ())]
        if not places:
            return None
        found = np.zeros(shape, np.bool_)
        found.reshape(-1)[places] = True
        return found
