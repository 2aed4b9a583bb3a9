"""What a row keeps beside ranks where plugins count, or weights are so great that totals end early.

A rank tells the total only. The plugins' parts of it are kept, because a placement names them.
"""

from collections.abc import Sequence

import numpy as np

from allotment.core.placement.board.images import Images
from allotment.core.placement.board.packing import Ints


class More:
    """By position (N,), in micro-points. What is said of a position holds where the pod fits."""

    def __init__(
        self,
        positions: int,
        names: Sequence[str],
        constant_micro: int,
        worths: Sequence[tuple[str, Ints]] = (),
        images: tuple[Images, int] | None = None,
        *,
        is_cut: bool,
    ) -> None:
        self.names = names
        self.micro = np.zeros((len(names) + 1, positions), np.int64)
        """(P + 1, N): each plugin's term by what is in use; the sum of all terms, without what
        compares nodes and without the constant."""
        self.constant_micro = constant_micro
        """What every node earns where none is better than another."""
        self.worths = worths
        """What nodes are worth to the pod or to its queue, each with the name of its term."""
        self.images = images
        """What positions earn for images that they have, and what one point of it is worth."""
        is_fixed = worths or images is not None
        self.fixed: Ints = np.zeros(positions if is_fixed else 0, np.int64)
        """What positions earn whatever is in use there: all of these."""
        self.is_cut = is_cut
        """Whether totals may have been cut off: then they do not tell the sum of the terms."""
        self.is_relative = False
        """Whether nodes are compared with each other; then the next three are kept."""
        self.alone_micro: Ints = self.micro[-1]
        """The sum of all terms without what compares nodes; also kept where totals are cut."""
        self.kept = np.zeros(positions, np.int64)
        """A rank's lowest bits."""
        self.relative_micro: Ints = np.zeros(positions, np.int64)
        """What a node earns beside the others."""

    def take_over_fixed(self, at: Ints) -> None:
        """Add up anew what positions earn whatever is in use there."""
        if not len(self.fixed):
            return
        fixed: Ints = np.zeros(len(at), np.int64)
        for _, column in self.worths:
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
        for name, micro in self.worths:
            plugins[name] = int(micro[position])
        return list(plugins.items())

    def sum_at(self, position: int, total_micro: int) -> int:
        """The sum of all terms at a position, also where the total of its rank was cut off."""
        if self.is_relative or self.is_cut:
            return int(self.alone_micro[position]) + self._earned(position)
        return total_micro

    def _earned(self, position: int) -> int:
        return int(self.relative_micro[position]) if self.is_relative else self.constant_micro
