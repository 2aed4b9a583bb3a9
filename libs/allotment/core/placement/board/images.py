"""`images` on columns: what positions earn for images that they have already.

What is where changes with the nodes' facts only, so the points of a row are reckoned again only
when some fact changed, and then for all positions: one node more with an image is worth something
to every other that has it.
"""

import numpy as np

from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import Bools, Ints
from allotment.core.placement.rules.images import KIB_PER_MIB, LEAST_KIB, MOST_KIB, POINTS
from allotment_proto.facts import PodRequest

NAMES_MAX = 512
_least = np.array(LEAST_KIB)


class ImageSizes:
    """Sizes (N,) in MiB of the images that were asked for, 0 where one is not; in one epoch of the
    columns, and kept up to date: rows share them."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._sizes: dict[str, Ints] = {}
        self._cursor = len(columns.refacted)

    def of(self, name: str) -> Ints:
        """Not to be written to."""
        refacted = self._columns.refacted
        if self._cursor < len(refacted):
            for position in refacted[self._cursor :]:
                for known, sizes in self._sizes.items():
                    sizes[position] = self._size(position, known)
            self._cursor = len(refacted)
        found = self._sizes.get(name)
        if found is None:
            if len(self._sizes) >= NAMES_MAX:
                del self._sizes[next(iter(self._sizes))]
            positions = range(len(self._columns))
            found = np.array([self._size(position, name) for position in positions], np.int64)
            self._sizes[name] = found
        return found

    def _size(self, position: int, name: str) -> int:
        fact = self._columns.facts[position]
        return 0 if fact is None else dict(fact.images).get(name, 0)


class Images:
    """The points for one request's images by position, in one epoch of the columns."""

    def __init__(self, columns: Columns, sizes: ImageSizes, request: PodRequest) -> None:
        self._columns = columns
        self._sizes = sizes
        self._names = request.images
        self._most = np.array(MOST_KIB * len(request.images))
        self._cursor = len(columns.refacted)
        self.points = self._reckon()
        """(N,) 0 … 100."""

    def changed(self) -> Bools:
        """Take over what changed; the positions that earn something else than before."""
        before, refacted = self.points, len(self._columns.refacted)
        if self._cursor < refacted:
            self._cursor = refacted
            self.points = self._reckon()
        differs: Bools = before != self.points
        return differs

    def _reckon(self) -> Ints:
        columns = self._columns
        nodes = max(columns.nodes, 1)
        scaled: Ints = np.zeros(len(columns), np.int64)
        for name in self._names:
            sizes_mib = self._sizes.of(name)
            having = int(np.count_nonzero(sizes_mib))
            scaled += sizes_mib * (KIB_PER_MIB * having) // nodes
        clipped = np.minimum(np.maximum(scaled, _least), self._most)
        points: Ints = (clipped - _least) * POINTS // (self._most - _least)
        return points
