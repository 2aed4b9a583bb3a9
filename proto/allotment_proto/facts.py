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
    card); `cores_pct` 100 means the card alone. `chip` is the one model that will do, if the family
    has several (Ascend's common word). `templates` are names of pieces that will do, the best in
    front, for families that cut cards by name.
    """

    family: str
    container: int
    container_name: str
    count: int
    memory_mib: int
    memory_pct: int
    cores_pct: int
    chip: str = ""
    templates: tuple[str, ...] = ()


class PodRequest(msgspec.Struct, frozen=True, gc=False):
    """Everything that decides where a pod fits. Pods with an equal request share all work."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    extended: Amounts = ()
    devices: tuple[DeviceRequest, ...] = ()
    selection: Selection = Selection()
    constraints: Constraints = Constraints()
    apart: tuple[str, ...] = ()
    """Tags (`PodObserved.tags`) of pods with which no card may be shared."""


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of one card held by one container of a pod.

    `instance` says which piece of the card it is, in the family's words: a MIG instance as
    ``group2-1`` (geometry and position), an Ascend share as ``Ascend310P/vir01`` (common word and
    template, which is empty for a whole card or a soft slice), a MindCluster template as ``vir02``.
    `memory_mib` is what was asked for; a MIG instance may have more, and that is what is charged.
    """

    family: str
    container: int
    card: str
    memory_mib: int
    cores_pct: int
    instance: str = ""


class Profile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A kind of MIG instance in a geometry: its name, its memory, how many of it there are.

    `memory_mib` is in the unit in which the node registers memory.
    """

    name: str
    memory_mib: int
    count: int


class Geometry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One way to cut a card: profiles in the configuration's order (positions count through)."""

    name: str
    profiles: tuple[Profile, ...]


class CardFact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One card as its device plugin registered it. `slots` is how many pods may share it.

    `table` is the position in `Inventory.tables` of the geometries into which it can be cut, −1 for
    a card that is not cut by geometry. `network` groups cards that are wired together, −1 unknown.
    """

    id: str
    index: int
    model: str
    slots: int
    memory_mib: int
    cores_pct: int
    healthy: bool
    mode: str
    table: int = -1
    network: int = -1


class Inventory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The cards of one device family on one node, in index order."""

    family: str
    mode: str
    cards: tuple[CardFact, ...]
    tables: tuple[tuple[Geometry, ...], ...] = ()


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


class PluginUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A plugin as a configuration file uses it, or an action with the arguments that it got there.

    `off` are the switches set to false, `on` those set to true that are false otherwise, both
    sorted. `arguments` are those that the file gives, sorted: an integer, a truth or a text. What
    is a fraction in the file is in thousandths (``overcommit-factor`` 1.2 is 1200), durations are
    in milliseconds. What is not given has the default that `allotment.core.config.uses` tells.
    """

    name: str
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    arguments: tuple[tuple[str, int | bool | str], ...] = ()


BUILT_IN_TIERS = (
    (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance")),
    (
        PluginUse("overcommit"),
        PluginUse("drf"),
        PluginUse("deviceshare"),
        PluginUse("predicates"),
        PluginUse("proportion"),
        PluginUse("nodeorder"),
    ),
)
"""What acts without a configuration file: Volcano's own fallback, and `deviceshare`."""


class Policy(msgspec.Struct, frozen=True, gc=False):
    """How to choose, parsed from the configuration file; see `allotment.core.policy`.

    `Policy()` is what is built in. Weights are plain integers; `device_policy` is a name of
    `allotment.core.policies`, `host_policy` is ``binpack``, ``spread`` or ``none``. `mix` is what
    was learned of the pods (`MixLearned`), empty in a file's policy.

    `actions` and `tiers` are in the file's order. The arguments of the plugins ``deviceshare`` and
    ``allotment`` are fields of the policy and not repeated in `tiers`; `configurations` are the
    file's arguments by action (and MindCluster's ``init-params``).

    `gpushare_kind` says what the family ``gpushare`` serves: ``memory`` or ``number`` only, or both
    when empty. `exclusive_rules` are label maps, sorted by label: pods that carry all labels of a
    rule share no card with one another. `mig_order` is how the geometry of an empty card is chosen:
    ``least-stranded`` or ``listed`` (the table's first that fits). `device_config` names the
    ConfigMap of the device configuration, namespace and name.
    """

    scheduler_names: tuple[str, ...] = ("allotment",)
    device_policy: str = "binpack"
    device_weight: int = 10
    host_policy: str = "binpack"
    host_weight: int = 1
    families: tuple[str, ...] = ("vgpu", "gpushare", "ascend", "mindcluster")
    multi_container: bool = False
    mix: tuple[Typical, ...] = ()
    actions: tuple[str, ...] = ("enqueue", "allocate", "backfill")
    tiers: tuple[tuple[PluginUse, ...], ...] = BUILT_IN_TIERS
    configurations: tuple[PluginUse, ...] = ()
    gpushare_kind: str = ""
    node_lock: bool = False
    device_config: tuple[str, str] = ("kube-system", "volcano-vgpu-device-config")
    exclusive_rules: tuple[tuple[tuple[str, str], ...], ...] = ()
    mig_order: str = "least-stranded"
    namespace_in_metrics: bool = False
