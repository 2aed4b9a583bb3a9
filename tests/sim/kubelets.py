"""The nodes' kubelets and device plugins: one pod at a time, slowly, and as nasty as real ones.

A kubelet hears of pods in the order in which their Bindings were committed, and asks its device
plugin for one after the other; each Allocate takes its time. The plugin serves the record with the
smallest stamp and the right number of devices, whosever it is. Pods die on the way: refused before
the plugin is asked or after it has served them, while it restarts, deleted by force while they wait
for their turn (the kubelet admits them all the same). A kubelet that lost its watch
lists what it missed by the second of its creation, and those of one second in any order.

The promise: whoever is served is served with his own record.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.auditor import require

if TYPE_CHECKING:
    from tests.sim.world import World

ALLOCATE_MS = (0, 5, 40, 150)
LONG_MS = (150, 400, 1_000)
"""Where pods are deleted by force: as long as it takes to bind another one meanwhile."""


class Kubelets:
    """Those of all nodes. That a Node object goes does not stop the kubelet behind it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._allocate_ms = world.dice.choice(LONG_MS if world.faults.forced else ALLOCATE_MS)
        self._lines: dict[str, deque[str]] = {}
        """The first one is being admitted."""
        self._missed: dict[str, list[str]] = {}
        """Of kubelets without a watch: the pods that were bound meanwhile."""
        self._away_until_ms: dict[str, int] = {}

    def hear(self, uid: str, node: str) -> None:
        """A pod was bound to the node, with a record for its plugin."""
        if node in self._missed:
            self._missed[node].append(uid)
            return
        line = self._lines.setdefault(node, deque())
        line.append(uid)
        if len(line) == 1:
            self._world.later(self._world.dice.randint(1, 20), partial(self._begin, node))

    def is_waiting(self, uid: str) -> bool:
        """Whether a kubelet has not come to a pod that was bound, or is with it now."""
        heard = (*self._lines.values(), *self._missed.values())
        return any(uid in uids for uids in heard)

    def lose_watch(self, node: str) -> None:
        """The kubelet hears of nothing until it has listed its pods afresh."""
        if node not in self._missed:
            self._missed[node] = []
            self._world.later(self._world.dice.randint(20, 400), partial(self._list, node))

    def restart_plugin(self, node: str) -> None:
        """Pods that reach admission meanwhile fail."""
        self._away_until_ms[node] = self._world.now_ms + self._world.dice.randint(20, 300)

    def _list(self, node: str) -> None:
        world = self._world
        there = [uid for uid in self._missed.pop(node) if uid in world.api.pods]
        order = {uid: world.dice.random() for uid in there}
        there.sort(key=lambda uid: (world.api.pods[uid].created_ms // 1000, order[uid]))
        for uid in there:
            self.hear(uid, node)

    def _begin(self, node: str) -> None:
        world, uid = self._world, self._lines[node][0]
        pod = world.api.pods.get(uid)
        if pod is None and not world.faults.forced:
            self._next(node)
        elif pod is not None and (world.dice.random() < world.faults.refused or self._away(node)):
            self._fail(node, uid)
        else:
            world.later(self._allocate_ms, partial(self._serve, node))

    def _serve(self, node: str) -> None:
        """The plugin's Allocate is through."""
        world, uid = self._world, self._lines[node][0]
        if self._away(node):
            self._fail(node, uid)
            return
        taken = world.api.allocate(uid, node)
        world.say(f"kubelet: {uid} is served with the record of {taken or 'nobody'}")
        wanted = uid if uid in world.api.pods else ""
        require(taken == wanted, f"{uid} is served with the record of {taken or 'nobody'}")
        if world.dice.random() < world.faults.refused_late:
            self._fail(node, uid)
        else:
            self._next(node)

    def _fail(self, node: str, uid: str) -> None:
        self._world.say(f"kubelet: {uid} is refused")
        self._world.api.fail(uid)
        self._next(node)

    def _next(self, node: str) -> None:
        line = self._lines[node]
        line.popleft()
        if line:
            self._world.later(0, partial(self._begin, node))

    def _away(self, node: str) -> bool:
        return self._world.now_ms < self._away_until_ms.get(node, 0)
