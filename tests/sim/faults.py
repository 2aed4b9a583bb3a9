"""What may go wrong in a world, and how often: drawn from the seed, so that worlds differ in kind.

About half of all dangers are switched off in any one world. That way some worlds are calm, some
awful, and rare combinations are not always drowned by frequent ones.
"""

import random
from dataclasses import dataclass, fields


@dataclass
class Faults:
    """Probabilities of one trouble per occasion; `heal` ends them all."""

    append_lost: float = 0.3
    append_answer_lost: float = 0.5
    append_late: float = 0.5
    bind_lost: float = 0.3
    bind_answer_lost: float = 0.5
    bind_late: float = 0.5
    bind_denied: float = 0.2
    message_lost: float = 0.4
    message_doubled: float = 0.4
    message_late: float = 0.6
    follower_late: float = 0.7
    crash: float = 0.01
    pod_deleted: float = 0.03
    pod_ended: float = 0.05
    node_changed: float = 0.03
    node_shrunk: float = 0.02
    node_gone: float = 0.02
    policy_changed: float = 0.01
    stolen: float = 0.06
    edited: float = 0.08
    intruded: float = 0.02
    unreadable: float = 0.01
    card_ill: float = 0.15
    refused: float = 0.3
    """A kubelet does not admit a pod, before it asks the device plugin."""
    refused_late: float = 0.1
    """The same after the device plugin has served the pod."""
    plugin_restarted: float = 0.03
    watch_lost: float = 0.03
    """A kubelet hears of no pod for a while, and then lists them all."""
    forced: float = 0.5
    """Kubelets admit pods all the same that were deleted while they waited for their turn. Only
    that binder knows of them which bound them, so there is one, and it alone does not crash."""
    taken_over: float = 0.1
    """A binder begins a life while another one does not know yet that its own is over."""
    cut_off: float = 0.1
    """A binder hears nothing of the log for a while, and goes on with what it knows."""

    def heal(self) -> None:
        for field in fields(self):
            setattr(self, field.name, 0.0)


def draw(dice: random.Random) -> Faults:
    """The mix of one world: each trouble is off, or anywhere up to its worst."""
    mix = Faults()
    for field in fields(Faults):
        worst = getattr(mix, field.name)
        setattr(mix, field.name, dice.random() * worst if dice.random() < 0.5 else 0.0)
    return mix
