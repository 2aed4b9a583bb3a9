"""Normalised facts about pods and nodes, as the log carries them.

Everything is a frozen struct of integers, strings and tuples: hashable, comparable, and free of
units in doubt (``cpu_milli``, ``memory_bytes``, ``memory_mib``, ``cores_pct``). Structs that occur
many times in one record are array-like, so their fields may only ever be appended.
"""

import msgspec

Amounts = tuple[tuple[str, int], ...]
"""Extended resources, sorted by name: ``(("nvidia.com/gpu", 2),)``. Plain integer counts."""


class Problem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bad input, named: what is wrong (`code`), where (`place`), and what would be right."""

    code: str
    place: str
    message: str


class Taint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: str
    value: str
    effect: str


class Toleration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`operator` is ``Equal`` or ``Exists``; an empty key with ``Exists`` tolerates everything."""

    key: str
    operator: str
    value: str
    effect: str


class Expression(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One requirement on a node: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...]


class NodeTerm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node selector term: all its label expressions and all its field expressions must hold."""

    labels: tuple[Expression, ...]
    fields: tuple[Expression, ...] = ()


class Constraints(msgspec.Struct, frozen=True, gc=False):
    """Where a pod may run. `affinity` terms are alternatives; none means no requirement."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class Selection(msgspec.Struct, frozen=True, gc=False):
    """Which cards a pod accepts. ``None`` means the pod said nothing about it."""

    mode: str | None = None
    use_types: tuple[str, ...] | None = None
    nouse_types: tuple[str, ...] | None = None
    use_ids: tuple[str, ...] | None = None
    nouse_ids: tuple[str, ...] | None = None
    indexes: tuple[int, ...] | None = None


class DeviceRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one container asks of one device family, per card.

    `memory_pct` counts when it is above 0 (then `memory_mib` is 0 and the amount depends on the
    card); `cores_pct` 100 means the card alone.
    """

    family: str
    container: int
    container_name: str
    count: int
    memory_mib: int
    memory_pct: int
    cores_pct: int


class PodRequest(msgspec.Struct, frozen=True, gc=False):
    """Everything that decides where a pod fits. Pods with an equal request share all work."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    extended: Amounts = ()
    devices: tuple[DeviceRequest, ...] = ()
    selection: Selection = Selection()
    constraints: Constraints = Constraints()


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of one card held by one container of a pod."""

    family: str
    container: int
    card: str
    memory_mib: int
    cores_pct: int


class CardFact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One card as its device plugin registered it. `slots` is how many pods may share it."""

    id: str
    index: int
    model: str
    slots: int
    memory_mib: int
    cores_pct: int
    healthy: bool
    mode: str


class Inventory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The cards of one device family on one node, in index order."""

    family: str
    mode: str
    cards: tuple[CardFact, ...]


class Typical(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One shape of a mix: what such pods ask for, how many of a million have it, and what one of
    them takes of cards, in thousandths of a usual card.

    `request` has at most one device request and no constraints on nodes.
    """

    request: PodRequest
    weight_ppm: int
    worth_milli: int

    @property
    def ask(self) -> DeviceRequest | None:
        return self.request.devices[0] if self.request.devices else None


class Policy(msgspec.Struct, frozen=True, gc=False):
    """How to choose, parsed from the configuration file; see `allotment.core.policy`.

    Weights are plain integers; `device_policy` is a name of `allotment.core.policies`,
    `host_policy` is ``binpack``, ``spread`` or ``none``. `mix` is what was learned of the pods
    (`MixLearned`), empty in a file's policy.
    """

    scheduler_names: tuple[str, ...] = ("allotment",)
    device_policy: str = "binpack"
    device_weight: int = 10
    host_policy: str = "binpack"
    host_weight: int = 1
    families: tuple[str, ...] = ("vgpu", "gpushare")
    multi_container: bool = False
    mix: tuple[Typical, ...] = ()
