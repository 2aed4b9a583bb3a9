"""When the PodGroup of a lone pod can wait.

A pod that has no owner and asks for nothing in its PodGroup's name (a queue, preemption …) is
scheduled the same with and without one, and making one costs the API server several times what
binding the pod does. So while many such pods wait for the scheduler's first answer (a node, or why
not), their PodGroups come after it, and then one by one: the next burst may be on its way.
"""

import msgspec

from allotment.adapters.kube.objects import PodSpecGlimpse
from allotment_controller.objects import PodObject

BURST_MIN = 32
"""Fewer pods than this that wait are no burst: their PodGroups are made at once."""
RECHECK_S = 2.0
WAIT_MOST_S = 30.0
CATCH_UP_EVERY_S = 0.02
"""Between the PodGroups of pods that waited."""
Place = tuple[str, str]


class _Waiting(msgspec.Struct):
    since_s: float
    """When the pod was first seen without a PodGroup."""
    is_untried: bool
    """The scheduler has neither bound nor refused it yet."""
    waited: bool = False
    turn_s: float | None = None
    """When its PodGroup is to be made, once it has waited for long enough."""


class Backlog:
    """Lone pods without a PodGroup, and how many of them the scheduler has not tried yet."""

    def __init__(self) -> None:
        self._pods: dict[Place, _Waiting] = {}
        self._untried = 0
        self._last_turn_s = 0.0

    def observe(
        self,
        place: Place,
        pod: PodObject,
        glimpse: PodSpecGlimpse,
        now_s: float,
    ) -> None:
        """Take note of a lone pod that wants a PodGroup, as it is now."""
        before = self._pods.get(place)
        is_untried = not glimpse.node_name and not any(
            condition.type == "PodScheduled" for condition in pod.status.conditions or ()
        )
        self._untried += is_untried - (before is not None and before.is_untried)
        if before is None:
            self._pods[place] = _Waiting(now_s, is_untried)
        else:
            before.is_untried = is_untried

    def forget(self, place: Place) -> None:
        """The pod has a PodGroup, or is gone."""
        before = self._pods.pop(place, None)
        self._untried -= before is not None and before.is_untried

    def delay_s(self, place: Place, now_s: float) -> float:
        """How long the pod is left without a PodGroup before it is checked again; 0: now."""
        waiting = self._pods.get(place)
        if waiting is None:
            return 0.0
        left_s = waiting.since_s + WAIT_MOST_S - now_s
        if self._untried >= BURST_MIN and left_s > 0:
            waiting.waited = True
            return min(RECHECK_S, left_s)
        if not waiting.waited:
            return 0.0
        if waiting.turn_s is None:
            waiting.turn_s = self._last_turn_s = max(now_s, self._last_turn_s + CATCH_UP_EVERY_S)
        return max(0.0, waiting.turn_s - now_s)
