"""What a row keeps of its terms besides ranks: images, and each plugin's part of the total.

A rank tells the total only. The parts are kept where plugins count, or weights are large enough to
cut totals, because a placement names them.
"""

from collections.abc import Sequence

import numpy as np

from allotment.core.placement.rules.images import KIB_PER_MIB, LEAST_KIB, MOST_KIB, POINTS
from allotment_board.columns import Columns
from allotment_board.packing import Bools, Ints
from allotment_proto.facts import PodRequest

_NAMES_MAX = 512
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
            if len(self._sizes) >= _NAMES_MAX:
                del self._sizes[next(iter(self._sizes))]
            positions = range(len(self._columns))
            found = np.array([self._size(position, name) for position in positions], np.int64)
            self._sizes[name] = found
        return found

    def _size(self, position: int, name: str) -> int:
        fact = self._columns.facts[position]
        return 0 if fact is None else dict(fact.images).get(name, 0)


class Images:
    """The points for one request's images by position, in one epoch of the columns: `rules.images`
    on columns.

    What is where changes with the nodes' facts only, so the points are reckoned again only when
    some fact changed, and then for all positions: one node more with an image is worth something
    to every other that has it.
    """

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


class More:
    """By position (N,), in micro-points. What is said of a position holds where the pod fits."""

    def __init__(
        self,
        positions: int,
        names: Sequence[str],
        constant_micro: int,
        bonuses: Sequence[tuple[str, Ints]] = (),
        images: tuple[Images, int] | None = None,
        *,
        is_capped: bool,
    ) -> None:
        self.names = names
        self.micro = np.zeros((len(names) + 1, positions), np.int64)
        """(P + 1, N): each plugin's term by what is in use; the sum of all terms, without what
        compares nodes and without the constant."""
        self.constant_micro = constant_micro
        """What every node earns where none is better than another."""
        self.bonuses = bonuses
        """What nodes are worth to the pod or to its queue, each with the name of its term."""
        self.images = images
        """What positions earn for images that they have, and what one point of it is worth."""
        is_fixed = bonuses or images is not None
        self.fixed: Ints = np.zeros(positions if is_fixed else 0, np.int64)
        """What positions earn whatever is in use there: all of these."""
        self.is_capped = is_capped
        """Whether totals may have been cut off: then they do not tell the sum of the terms."""
        self.is_relative = False
        """Whether nodes are compared with each other; then the next three are kept."""
        self.alone_micro: Ints = self.micro[-1]
        """The sum of all terms without what compares nodes; also kept where totals are cut."""
        self.kept = np.zeros(positions, np.int64)
        """A rank's lowest bits."""
        self.relative_micro: Ints = np.zeros(positions, np.int64)
        """What a node earns compared with the others."""

    def take_over_fixed(self, at: Ints) -> None:
        """Recompute what positions earn whatever is in use there."""
        if not len(self.fixed):
            return
        fixed: Ints = np.zeros(len(at), np.int64)
        for _, column in self.bonuses:
            fixed += column.take(at)
        if self.images is not None:
            images, point_micro = self.images
            fixed += images.points.take(at) * point_micro
        self.fixed[at] = fixed

    def terms_at(self, position: int) -> list[tuple[str, int]]:
        """The plugins' terms of the score at a position, by name."""
        plugins = {
            name: int(part[position]) for name, part in zip(self.names, self.micro, strict=False)
        }
        if "nodeorder" in plugins:
            plugins["nodeorder"] += self._earned(position)
            if self.images is not None:
                images, point_micro = self.images
                plugins["nodeorder"] += int(images.points[position]) * point_micro
        for name, micro in self.bonuses:
            plugins[name] = int(micro[position])
        return list(plugins.items())

    def sum_at(self, position: int, total_micro: int) -> int:
        """The sum of all terms at a position, also where the total of its rank was cut off."""
        if self.is_relative or self.is_capped:
            return int(self.alone_micro[position]) + self._earned(position)
        return total_micro

    def _earned(self, position: int) -> int:
        return int(self.relative_micro[position]) if self.is_relative else self.constant_micro
