"""PodGroups, Queues and PriorityClasses: what the watcher reads of them, as leniently as it can.

Of a spec the fields are remembered, too, as they were written: an unknown one is ignored by the API
server and by all that read the object, so a misspelt limit is no limit.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from allotment.adapters.kube.objects import PhaseStatus
from allotment.core.placement.unserved import nearest
from allotment_watcher.objects import Amounts, Int32, LabelSelector, Meta


class SubGroupPolicy(msgspec.Struct, rename="camel"):
    name: str = ""
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None


class GroupSpec(msgspec.Struct, rename="camel"):
    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    min_resources: Amounts = None
    sub_group_policy: list[SubGroupPolicy] | None = None


class GroupObject(msgspec.Struct):
    metadata: Meta
    written: dict[str, Any] | None = msgspec.field(name="spec", default=None)
    status: PhaseStatus | None = None

    def spec(self) -> GroupSpec:
        """The spec as it is read."""
        return msgspec.convert(self.written or {}, GroupSpec)

    def __post_init__(self) -> None:
        self.spec()  # what cannot be read is said when the object is decoded


class Guarantee(msgspec.Struct):
    resource: Amounts = None


class Affinity(msgspec.Struct):
    required: list[str] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[str] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class QueueAffinity(msgspec.Struct, rename="camel"):
    node_group_affinity: Affinity | None = None
    node_group_anti_affinity: Affinity | None = None


class QueueSpec(msgspec.Struct):
    weight: Int32 | None = None
    capability: Amounts = None
    deserved: Amounts = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    priority: Int32 | None = None
    parent: str | None = None
    affinity: QueueAffinity | None = None


class QueueStatus(msgspec.Struct):
    state: str | None = None


class QueueObject(msgspec.Struct):
    metadata: Meta
    written: dict[str, Any] | None = msgspec.field(name="spec", default=None)
    status: QueueStatus | None = None

    def spec(self) -> QueueSpec:
        """The spec as it is read."""
        return msgspec.convert(self.written or {}, QueueSpec)

    def __post_init__(self) -> None:
        self.spec()


class PriorityClassObject(msgspec.Struct, rename="camel"):
    metadata: Meta
    value: Int32 = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


_UNREAD: Mapping[type[msgspec.Struct], frozenset[str]] = {
    QueueSpec: frozenset(("type", "dequeueStrategy", "extendClusters")),
    GroupSpec: frozenset(("networkTopology",)),
    SubGroupPolicy: frozenset(("networkTopology",)),
}
"""Fields of Volcano's that nothing here reads."""
_Spec = TypeVar("_Spec", bound=msgspec.Struct)


def unknown_fields(written: Any, kind: type[_Spec], place: str) -> Iterator[tuple[str, str]]:
    """The fields of a spec that do not exist, by path, each with the one that was probably meant,
    if one is alike."""
    if not isinstance(written, dict):
        return
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in written.items():
        if name in known:
            for part, inner in _structs_in(known[name], value, f"{place}.{name}"):
                yield from unknown_fields(part, inner[0], inner[1])
        elif name not in _UNREAD.get(kind, ()):
            near = nearest(name, {*known, *_UNREAD.get(kind, ())})
            inside = name if kind is Guarantee else ""
            meant = f"{place}.{near}" if near else f"{place}.resource.{inside}" if inside else ""
            yield f"{place}.{name}", meant


def _structs_in(
    kind: Any, value: Any, place: str
) -> Iterator[tuple[Any, tuple[type[msgspec.Struct], str]]]:
    """The parts of a value that are structs themselves: the part, its type and its path."""
    for each in getattr(kind, "__args__", (kind,)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            yield value, (each, place)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from _structs_in(each, item, f"{place}[{number}]")
