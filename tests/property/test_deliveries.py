"""A device plugin that picks by stamp and number alone serves every pod with its own record.

One node, its kubelet's line, and a plugin as the real one is, against the rules of the binder:
`bindable` with what `Unserved` and `Deleted` hold back. Pods die in every way between Binding and
Allocate.
"""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.explain.rows.acknowledgement import LATE_AFTER_S
from allotment.core.ledger.state import apply
from allotment_binder.pacer import Pacer
from allotment_binder.records import PASSED_AFTER_S, Deleted, Erased, Unserved
from allotment_proto.events import Bound, PodGone
from tests.build import card, decided, holding, node, placement, pod, policy, state_of
from tests.pacing import bindable

PODS = 8
STEPS = st.sampled_from(
    ("admit", "admit", "refuse", "delete", "erase", "start", "away", "relist", "wait")
)


class Scene:
    """The log's state, the binder's memory, and a node: who is in line, which records stand."""

    def __init__(self, wanted: list[int]) -> None:
        self.now_s = 0.0
        self.wanted = {str(n): number for n, number in enumerate(wanted)}
        cards = [card(index, slots=100, memory_mib=10**6, cores_pct=10**4) for index in range(2)]
        self.state = state_of(policy(), node("n", cards), *(pod(uid) for uid in self.wanted))
        self.held = {
            uid: tuple(holding(f"GPU-{index}", memory_mib=int(uid) + 1) for index in range(number))
            for uid, number in self.wanted.items()
        }
        places = [
            placement(uid, "n", *held, stamp_s=int(uid) + 1) for uid, held in self.held.items()
        ]
        apply(self.state, decided(*places), self.state.seq + 1)
        self.pacer = Pacer(self.state)
        self.unserved = Unserved(lambda: self.now_s)
        self.deleted = Deleted(lambda: self.now_s)
        self.line: deque[str] = deque()
        self.records: dict[str, int] = {}
        """Uid → stamp, of the records that stand."""
        self.gone: set[str] = set()
        self.served: dict[str, str] = {}
        self.rv = 1

    def tell(self, event: Any, uid: str) -> None:
        decided_place, served = self.pacer.place_of(uid), self.pacer.served(uid)
        apply(self.state, event, self.state.seq + 1)
        self.unserved.look(self.state, uid, served)
        if decided_place is not None and uid not in self.state.pods:
            self.deleted.hold(decided_place, self.pacer.served_before(uid))
        self.pacer.look(uid)

    def see(self, uid: str, phase: str, bind_phase: str) -> None:
        if uid in self.gone:
            return
        self.rv += 1
        seen = pod(
            uid,
            rv=self.rv,
            node="n",
            holdings=self.held[uid],
            phase=phase,
            bind_phase=bind_phase,
        )
        self.tell(seen, uid)

    def bind(self) -> None:
        blocked = self.unserved.places(self.state) | self.deleted.places(
            lambda uid: self.pacer.place_of(uid) is not None
        )
        plain = bindable(self.state, self.pacer.sent, blocked)
        ready = self.pacer.ready(blocked)
        assert ready == plain
        for allocation in ready:
            uid = allocation.uid
            self.line.append(uid)
            self.records[uid] = allocation.stamp_s
            name = {"uid": uid, "namespace": "default", "name": uid}
            self.pacer.ended(uid)
            self.tell(Bound(**name, node="n", decision=allocation.seq), uid)
            self.see(uid, "Pending", "allocating")

    def admit(self) -> None:
        """Allocate for the first in line: the smallest stamp with the right number."""
        if not self.line:
            return
        uid = self.line.popleft()
        fitting = [u for u in self.records if self.wanted[u] == self.wanted[uid]]
        if not fitting:
            self.see(uid, "Failed", "allocating")
            return
        taken = min(fitting, key=self.records.__getitem__)
        del self.records[taken]
        self.served[uid] = taken
        self.see(taken, "Pending" if taken == uid else self.phase(taken), "success")
        if taken != uid:
            self.see(uid, "Running", "allocating")

    def phase(self, uid: str) -> str:
        known = self.state.pods.get(uid)
        return "Pending" if known is None else known.fact.phase

    def refuse(self) -> None:
        """Kubelet refuses the first in line before it asks the plugin."""
        if self.line:
            self.see(self.line.popleft(), "Failed", "allocating")

    def delete(self) -> None:
        """By force: the last one in line, which stays in it."""
        uid = self.line[-1] if self.line else None
        if uid is not None and uid not in self.gone:
            self.gone.add(uid)
            self.records.pop(uid, None)
            self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=10**6), uid)

    def erase(self) -> None:
        for fact in self.unserved.due(self.state, swap_equal=False):
            self.records.pop(fact.uid, None)
            self.rv += 1
            self.unserved.erased(self.state, fact.uid, Erased(self.rv))

    def start(self) -> None:
        for uid in list(self.served):
            if uid not in self.gone and self.phase(uid) == "Pending":
                self.see(uid, "Running", "success")

    def away(self) -> None:
        """The plugin restarts: whoever is in line fails."""
        while self.line:
            self.refuse()

    def relist(self) -> None:
        """Who is gone is not listed any more, and the order of the rest is any."""
        self.line = deque(uid for uid in reversed(self.line) if uid not in self.gone)

    def wait(self) -> None:
        """Long enough for kubelet to come to the next in line: no pod is skipped for longer."""
        while self.line and self.line[0] in self.gone:
            self.admit()
        self.now_s += PASSED_AFTER_S


@given(
    st.lists(st.integers(1, 2), min_size=PODS, max_size=PODS),
    st.lists(STEPS, min_size=20, max_size=40),
)
def test_nobody_is_served_with_anothers_record(wanted: list[int], steps: list[str]) -> None:
    scene = Scene(wanted)
    scene.bind()
    for step in steps:
        getattr(scene, step)()
        scene.bind()
        assert all(uid == taken for uid, taken in scene.served.items()), scene.served
        assert scene.unserved.corrections(scene.state) == []
    for _ in range(4 * PODS):
        for step in ("erase", "wait", "bind", "admit", "start"):
            getattr(scene, step)()
    assert not scene.state.reserved, "nobody waits for ever"
    assert all(uid == taken for uid, taken in scene.served.items()), scene.served
    assert scene.now_s < 40 * LATE_AFTER_S
