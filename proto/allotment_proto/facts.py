"""Normalised facts about pods and nodes, as the log carries them.

Everything is a frozen struct of integers, strings and tuples: hashable, comparable, and free of
units in doubt (``cpu_milli``, ``memory_bytes``, ``memory_mib``, ``cores_pct``). Structs that occur
many times in one record are array-like, so their fields may only ever be appended.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

AMOUNT_MOST = 1 << 62
"""More than there is of anything; free and used amounts still fit 64 bits."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MOST)]
"""How much or how many. A record that says less than nothing cannot be read."""
Seq = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A place in the log, or a resourceVersion."""
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number that may be below 0."""
Amounts = tuple[tuple[str, Amount], ...]
"""Extended resources, sorted by name: ``(("nvidia.com/gpu", 2),)``. Plain integer counts."""


def refuse_twins(what: str, names: Sequence[str]) -> None:
    """Raise ValueError if a name that tells things apart occurs twice."""
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{what} {twin!r} occurs twice; each may occur once")


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


class SubGroups(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of a PodGroup's `spec.subGroupPolicy`: pods that its selector matches make a sub
    group for each combination of values of the labels `keys`. `size` pods make one whole, and
    `least` whole ones are part of the group's minimum.
    """

    name: str
    size: Int64 = 1
    least: Int64 = 0
    selector: tuple[Expression, ...] = ()
    keys: tuple[str, ...] = ()


class TaskTopology(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which tasks of a group belong on one node or apart, by the names of tasks: pairs of each
    entry, or with one name its pods among each other. `order` is that of tasks within a node.
    """

    affinity: tuple[tuple[str, ...], ...] = ()
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = ()


class NodeTerm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node selector term: all its label expressions and all its field expressions must hold."""

    labels: tuple[Expression, ...]
    fields: tuple[Expression, ...] = ()


class Preference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node selector term that earns its weight (1 … 100) on nodes that match it."""

    weight: Int64
    term: NodeTerm


class Constraints(msgspec.Struct, frozen=True, gc=False):
    """Where a pod may run. `affinity` terms are alternatives; none means no requirement.

    `volumes` are the places from which the pod's volumes can be reached: of every volume that says
    so its alternatives, one of which must match. `preferred` decides between nodes.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[Preference, ...] = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()


class HostPort(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A port of the host that a container takes; `ip` ``0.0.0.0`` is every address."""

    protocol: str
    ip: str
    port: Int64


class PodTerm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods, and what counts as one place: pods of the namespaces (none named: of all) whose labels
    meet every expression of the selector, on nodes with the same value of the label
    `topology_key`. An empty selector meets every pod.
    """

    topology_key: str
    namespaces: tuple[str, ...]
    selector: tuple[Expression, ...]


class PodPreference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod near such pods is worth: below 0 if it would rather be away from them."""

    weight: Int64
    term: PodTerm


class Spread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topology spread constraint about pods of the term's namespace.

    `is_required`: a place may hold at most `max_skew` more of them than the place with the fewest
    (of fewer places than `min_domains` that is 0), otherwise such places only score less.
    `counts_self`: the pod itself is one of them. Which nodes make a place: those that the pod's
    selector and affinity match (`honors_affinity`), those whose taints it tolerates
    (`honors_taints`).
    """

    term: PodTerm
    max_skew: Int64
    is_required: bool
    counts_self: bool
    min_domains: Int64 = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class PodSubject(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod as the rules of others see it: its namespace, and those of its labels that any of these
    rules looks at; `topology_key` is the label whose values are the rules' places.
    """

    topology_key: str
    namespace: str
    labels: tuple[tuple[str, str], ...]


class Company(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a pod says about other pods.

    `near`: required affinity; all terms at once, and `near_self` says that the pod meets them
    itself. `away`: required anti-affinity. `preferred`: both kinds of preference. `repelled` and
    `wanted` are this pod as others' required anti-affinity, and their preferences, see it, where
    any of them is about it: a cycle fills them in, the log never holds them. `sole` are its claims
    (``namespace/name``, sorted) that serve one pod at a time (access mode ReadWriteOncePod).
    """

    ports: tuple[HostPort, ...] = ()
    near: tuple[PodTerm, ...] = ()
    near_self: bool = False
    away: tuple[PodTerm, ...] = ()
    preferred: tuple[PodPreference, ...] = ()
    spread: tuple[Spread, ...] = ()
    repelled: tuple[PodSubject, ...] = ()
    wanted: tuple[PodSubject, ...] = ()
    sole: tuple[str, ...] = ()


ALONE = Company()
"""Nothing is said of other pods, as is usual."""


class Selection(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which cards a pod accepts. ``None`` means the pod said nothing about it.

    `counted` are the resources without a device family (``nvidia.com/gpu``) whose cards the lists
    of types are about as well, sorted. `avoided` (``shunned`` on the wire) are single cards (node,
    family, card id) on which pods of its owner could not start. With `pieces_below_mib` only MIG
    instances with less memory than that will do, with `backlog_below` only nodes with fewer pods
    that their device plugins have still to serve. `whole_words` are those words of the lists of
    types that some model has as a whole word: they mean no model of which they are a mere part. A
    cycle fills in these four, the log never holds them.
    """

    mode: str | None = None
    use_types: tuple[str, ...] | None = None
    nouse_types: tuple[str, ...] | None = None
    use_ids: tuple[str, ...] | None = None
    nouse_ids: tuple[str, ...] | None = None
    indexes: tuple[Int64, ...] | None = None
    avoided: tuple[tuple[str, str, str], ...] = msgspec.field(default=(), name="shunned")
    counted: tuple[str, ...] = ()
    pieces_below_mib: Int64 = 0
    backlog_below: Int64 = 0
    whole_words: tuple[str, ...] = ()


class DeviceRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one container asks of one device family, per card.

    `memory_pct` counts when it is above 0 (then `memory_mib` is 0 and the amount depends on the
    card); `cores_pct` 100 means the card alone. `chip` is the one model that will do, if the family
    has several (Ascend's common word). `templates` are names of pieces that will do, the best in
    front, for families that cut cards by name.
    """

    family: str
    container: Amount
    container_name: str
    count: Amount
    memory_mib: Amount
    memory_pct: Amount
    cores_pct: Amount
    chip: str = ""
    templates: tuple[str, ...] = ()


class Attachment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A volume that has to be attached to the pod's node by a driver, known by its claim
    (``namespace/name``). Without a claim: so many that no other pod has, as a cycle asks for them.
    """

    driver: str
    claim: str
    count: Amount = 1


class LocalVolume(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A free PersistentVolume: `terms` are alternatives, one of which a node must
    match (none: any node).
    """

    name: str
    terms: tuple[NodeTerm, ...] = ()


class LocalClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A claim, by name, that is to be bound to one of these volumes, the best in front."""

    claim: str
    volumes: tuple[LocalVolume, ...]


class PodRequest(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Everything that decides where a pod fits. Pods with an equal request share all work."""

    cpu_milli: Amount = 0
    memory_bytes: Amount = 0
    extended: Amounts = ()
    devices: tuple[DeviceRequest, ...] = ()
    selection: Selection = Selection()
    constraints: Constraints = Constraints()
    apart: tuple[str, ...] = ()
    """Tags (`PodObserved.tags`) of pods with which no card may be shared."""
    company: Company = ALONE
    unrequested: tuple[Amount, Amount] = msgspec.field(default=(0, 0), name="unsaid")
    """Milli-CPUs and bytes that Kubernetes' scores add for containers that request none (100 mCPU
    and 200 MiB each), so that no pod counts as nothing."""
    attachments: tuple[Attachment, ...] = ()
    """Volumes of drivers that some node has a limit for, sorted."""
    images: tuple[str, ...] = ()
    """The image of each container, if the policy weighs where images are."""


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of one card held by one container of a pod.

    `instance` says which piece of the card it is, in the family's words: a MIG instance as
    ``group2-1`` (geometry and position), an Ascend share as ``Ascend310P/vir01`` (common word and
    template; empty for a whole card, ``hami-core`` for a soft slice), a MindCluster template as
    ``vir02``.
    `memory_mib` is what was asked for; a MIG instance may have more, and that is what is charged.
    """

    family: str
    container: Amount
    card: str
    memory_mib: Amount
    cores_pct: Amount
    instance: str = ""


class Profile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A kind of MIG instance in a geometry: its name, its memory, how many of it there are.

    `memory_mib` is in the unit in which the node registers memory.
    """

    name: str
    memory_mib: Amount
    count: Amount


class Geometry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One way to cut a card: profiles in the configuration's order (positions count through)."""

    name: str
    profiles: tuple[Profile, ...]


NO_TABLE = -2


class CardFact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One card as its device plugin registered it. `slots` is how many pods may share it.

    `table` is the position in `Inventory.tables` of the geometries into which it can be cut, −1 for
    a card that is not cut by geometry, `NO_TABLE` for one that would have to be, but into what is
    unknown: it takes nothing. `network` groups cards that are wired together, −1 unknown.
    `unhealthy_by` names what declares the card unhealthy, if that is not its device plugin.
    """

    id: str
    index: Int64
    model: str
    slots: Amount
    memory_mib: Amount
    cores_pct: Amount
    healthy: bool
    mode: str
    table: Int64 = -1
    network: Int64 = -1
    unhealthy_by: str = ""


class Inventory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The cards of one device family on one node, in index order."""

    family: str
    mode: str
    cards: tuple[CardFact, ...]
    tables: tuple[tuple[Geometry, ...], ...] = ()

    def __post_init__(self) -> None:
        refuse_twins("card id", [card.id for card in self.cards])


class Typical(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One shape of a mix: what such pods ask for, how many of a million have it, and what one of
    them takes of cards, in thousandths of a usual card.

    `request` has at most one device request and no constraints on nodes.
    """

    request: PodRequest
    weight_ppm: Int64
    worth_milli: Amount

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
    """How to choose, parsed from the configuration file; see `allotment.core.config.policy`.

    `Policy()` is what is built in. Weights are plain integers; `device_policy` is a name of
    `core.placement.policies`, `host_policy` is ``binpack``, ``spread`` or ``none``. `mix` is what
    was learned of the pods (`MixLearned`), empty in a file's policy.

    `actions` and `tiers` are in the file's order. The arguments of the plugins ``deviceshare`` and
    ``allotment`` are fields of the policy and not repeated in `tiers`; `configurations` are the
    file's arguments by action (and MindCluster's ``init-params``).

    `gpushare_kind` says what the family ``gpushare`` serves: ``memory`` or ``number`` only, or both
    when empty. `exclusive_rules` are label maps, sorted by label: pods that carry all labels of a
    rule share no card with one another. `mig_order` is how the geometry of an empty card is chosen:
    ``least-stranded``, ``listed`` (the table's first that fits), or ``best-fit``: as the first, and
    no card gives a larger instance where another one can give a smaller. `device_config` names the
    ConfigMap of the device configuration, namespace and name. `fit_weight` is what a pod is worth
    that needs all it is given of a card. `namespace_turns` is whether namespaces take turns where
    nothing else orders pods and groups; else the older comes first. A node on which
    `plugin_backlog` pods with devices wait for its device plugins is skipped while another one
    takes the pod (0: none is; see `core.placement.least_busy`).
    """

    scheduler_names: tuple[str, ...] = ("allotment",)
    device_policy: str = "binpack"
    device_weight: Int64 = 10
    host_policy: str = "binpack"
    host_weight: Int64 = 1
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
    fit_weight: Int64 = 0
    namespace_turns: bool = False
    plugin_backlog: Int64 = 0
