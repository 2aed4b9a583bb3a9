"""What objects say of their part in groups and queues: annotations, and labels in their place.

Source: Volcano's scheduling.volcano.sh API; annotations win over labels of the same name.
"""

from collections.abc import Mapping

from allotment.core.jobs.keys import GROUP_NAME, PREEMPTABLE, TASK_SPEC
from allotment.core.queues.card_names import alternatives

TASK_PRIORITY = "volcano.sh/task-priority"
CARD_NAME = "volcano.sh/card.name"
TRUE = frozenset(("1", "t", "T", "true", "True", "TRUE"))
"""What Go's strconv.ParseBool takes for true; everything else counts as false."""
PRIORITY_MAX = 2**31 - 1
NEVER_PREEMPTS = "Never"
"""The `preemptionPolicy` of pods and PriorityClasses for which nobody is evicted."""

Texts = Mapping[str, str]


def group_of(namespace: str, annotations: Texts) -> str:
    """``<namespace>/<name>`` of a pod's PodGroup, empty without one. Only this annotation links."""
    name = annotations.get(GROUP_NAME)
    return f"{namespace}/{name}" if name else ""


def role_of(annotations: Texts, labels: Texts) -> str:
    return annotations.get(TASK_SPEC) or labels.get(TASK_SPEC) or ""


def priority_of(annotations: Texts, of_spec: int | None) -> int:
    """A pod's priority: its own annotation if that is a whole number, else its spec's, else 0."""
    text = annotations.get(TASK_PRIORITY, "")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        return max(-PRIORITY_MAX, min(int(text), PRIORITY_MAX))
    return of_spec or 0


def is_preemptable(annotations: Texts, labels: Texts, *, otherwise: bool) -> bool:
    text = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    return otherwise if text is None else text in TRUE


def card_names_of(annotations: Texts) -> tuple[str, ...]:
    return alternatives(annotations.get(CARD_NAME, ""))
