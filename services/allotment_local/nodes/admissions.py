"""The order in which kubelets admit pods: on each node one at a time, in the order of arrival.

A kubelet receives pods in the order in which their Bindings were committed, and admits one after
the other: no device plugin is ever asked for two pods at once. A pod in the queue is admitted
as it was when the kubelet received it, even if it has been force-deleted meanwhile.

A kubelet that lists its pods afresh (it, or the API server, was restarted, or its watch was lost)
admits them by the second of their creation, and those of one second in any order.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from random import Random
from typing import NamedTuple

from allotment_local.nodes.amounts import JsonObject
from allotment_local.nodes.kubelet import Kubelet, Rejection
from allotment_local.nodes.timers import Timers

Steps = Generator[None, None, Rejection | None]


class Heard(NamedTuple):
    """A pod as a node's kubelet received it."""

    node: str
    uid: str
    pod: JsonObject


class _Line:
    """One kubelet's. `steps` is the admission under way."""

    __slots__ = ("heard", "is_serving", "kubelet")

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.heard: deque[Heard] = deque()
        """The first one is being admitted if `is_serving`."""
        self.is_serving = False


class Admissions:
    """The lines of all kubelets. `admitted` is given how each admission ended."""

    def __init__(
        self,
        timers: Timers,
        kubelets: Mapping[str, Kubelet],
        admitted: Callable[[Heard, Rejection | None], None],
        *,
        admit_s: float,
        dice: Random,
    ) -> None:
        self._timers = timers
        self._kubelets = kubelets
        self._admitted = admitted
        self._admit_s = admit_s
        self._dice = dice
        self._lines: dict[str, _Line] = {}
        self._uids: set[str] = set()

    def join(self, heard: Heard) -> None:
        """The node's kubelet hears of a pod that was bound to it."""
        kubelet = self._kubelets[heard.node]
        line = self._lines.get(heard.node)
        if line is None or line.kubelet is not kubelet:
            line = self._lines[heard.node] = _Line(kubelet)
        line.heard.append(heard)
        self._uids.add(heard.uid)
        if not line.is_serving:
            line.is_serving = True
            self._timers.after(self._admit_s, lambda: self._serve(line))

    def join_all(self, batch: Iterable[Heard]) -> None:
        """The node's kubelet has listed its pods afresh."""

        def order(heard: Heard) -> tuple[str, float]:
            return heard.pod["metadata"]["creationTimestamp"], self._dice.random()

        for heard in sorted(sorted(batch, key=lambda heard: heard.uid), key=order):
            self.join(heard)

    def is_in_line(self, uid: str) -> bool:
        return uid in self._uids

    def close(self, node: str) -> None:
        """The node's kubelet is gone, and admits no more pods."""
        line = self._lines.pop(node, None)
        if line is not None:
            self._uids.difference_update(heard.uid for heard in line.heard)
            line.heard.clear()

    def _serve(self, line: _Line) -> None:
        """Begin with the first in line."""
        if line.heard:
            self._advance(line, line.kubelet.admission(line.heard[0].pod))

    def _advance(self, line: _Line, steps: Steps) -> None:
        """Go on until a plugin takes its time, or until the admission has ended."""
        while line.heard:
            try:
                next(steps)
            except StopIteration as ended:
                heard = line.heard.popleft()
                self._uids.discard(heard.uid)
                line.is_serving = bool(line.heard)
                if line.is_serving:
                    self._timers.after(0.0, lambda: self._serve(line))
                self._admitted(heard, ended.value)
                return
            if line.kubelet.allocate_s > 0:
                self._timers.after(line.kubelet.allocate_s, lambda: self._advance(line, steps))
                return
