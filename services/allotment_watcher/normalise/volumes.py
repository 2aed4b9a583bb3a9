"""From where a pod's volumes can be reached, by its claims: what PersistentVolumes and classes say;
and how many of them a node can have attached, by its CSINode.

A claim that is bound is where its volume is. One that waits for its first consumer can be had where
its class may make volumes; the node is written on it before the pod is bound, so that one is made
there. One of a class that makes no volumes gets an existing one: the fact names those that it can
have, and which it gets is decided together with the node. Everything else is not ready: the pod is
refused with the reason, and recorded again once that changes.

Of volumes that have to be attached only those count whose driver some node has a limit for. Their
driver is that of the volume, or of the class that will make it.
Source: Kubernetes' `volumebinding`, `volumezone` and `nodevolumelimits`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from allotment.core import reasons, units
from allotment.core.placement.rules.selectors import holds
from allotment_proto.facts import (
    Amounts,
    Attachment,
    Expression,
    LocalClaim,
    LocalVolume,
    NodeTerm,
    Problem,
)
from allotment_watcher import objects
from allotment_watcher.normalise.constraints import node_terms

BOUND_BY = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
WAITS = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
ZONE_SEPARATOR = "__"
FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
LOCAL_MOST = 256
"""So many volumes are named for a claim, so that no fact grows without bounds."""

Reach = tuple[NodeTerm, ...]
"""Alternatives, one of which a node must match."""


class Wanted(NamedTuple):
    """What a pod's claims want: all of `reach` from its node, and the names of those on which the
    node is to be written; `attachments` are its volumes that nodes have limits for."""

    reach: tuple[Reach, ...] = ()
    waiting: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    local: tuple[LocalClaim, ...] = ()
    """Claims that get a volume which is there already, with those that they can have."""
    sole: tuple[str, ...] = ()
    """Claims (``namespace/name``, sorted) that serve one pod at a time."""


NOTHING = Wanted()


class NotReady(Exception):
    """Raised for a claim that cannot be had yet; the problem says why and what would help."""

    def __init__(self, claim: str, message: str) -> None:
        self.problem = Problem(reasons.VOLUME_NOT_READY, f"PersistentVolumeClaim {claim}", message)
        super().__init__(message)


def claims_of(pod: objects.PodObject) -> tuple[str, ...]:
    """The names of the claims that a pod's volumes are, in its namespace."""
    found = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(dict.fromkeys(found))


class Volumes:
    """Claims, volumes and classes as last seen, by key (``namespace/name`` or name)."""

    def __init__(self) -> None:
        self.claims: dict[str, objects.ClaimObject] = {}
        self.volumes: dict[str, objects.VolumeObject] = {}
        self.classes: dict[str, objects.ClassObject] = {}
        self.nodes: dict[str, objects.CsiNodeObject] = {}

    def limits_of(self, node: str) -> Amounts:
        """By driver how many volumes a node can have attached, for drivers with a limit."""
        found = self.nodes.get(node)
        spec = None if found is None else found.spec
        limits = {
            driver.name: max(driver.allocatable.count, 0)
            for driver in (spec.drivers or () if spec else ())
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        return tuple(sorted(limits.items()))

    def limited(self) -> frozenset[str]:
        """The drivers that some node has a limit for."""
        return frozenset(driver for node in self.nodes for driver, _ in self.limits_of(node))

    def attached(
        self, namespace: str, claims: Iterable[str], limited: frozenset[str]
    ) -> tuple[tuple[Attachment, ...], bool]:
        """The volumes of a pod that count, and whether all of its claims are known."""
        found = []
        is_complete = True
        for name in claims:
            key = f"{namespace}/{name}"
            claim = self.claims.get(key)
            is_complete = is_complete and claim is not None
            driver = "" if claim is None else self._driver(claim.spec or objects.ClaimSpec())
            if driver in limited:
                found.append(Attachment(driver, key))
        return tuple(sorted(found, key=lambda a: (a.driver, a.claim))), is_complete

    def sole(self, namespace: str, claims: Iterable[str]) -> tuple[str, ...]:
        """Those of a pod's claims that serve one pod at a time."""
        keys = sorted(f"{namespace}/{name}" for name in claims)
        return tuple(key for key in keys if _is_sole(self.claims.get(key)))

    def has_sole(self) -> bool:
        """Whether any claim is such a one."""
        return any(map(_is_sole, self.claims.values()))

    def _driver(self, spec: objects.ClaimSpec) -> str:
        """CSI driver that attaches a claim's volume; empty if none does, or it is unknown."""
        volume = self.volumes.get(spec.volume_name or "")
        if volume is not None:
            csi = None if volume.spec is None else volume.spec.csi
            return "" if csi is None else csi.driver
        storage = self.class_of(spec)
        return "" if storage is None else storage.provisioner

    def wanted(self, namespace: str, claims: Iterable[str]) -> Wanted:
        """What the claims of one pod want. Raises `NotReady`."""
        found: list[Reach] = []
        waiting, local = [], []
        for name in claims:
            key = f"{namespace}/{name}"
            volumes = self._there_for(key)
            if volumes:
                local.append(LocalClaim(name, volumes))
                continue
            reach, is_bound = self._of_claim(key)
            found += reach
            if not is_bound:
                waiting.append(name)
        reaches = tuple(dict.fromkeys(terms for terms in found if terms))
        local.sort(key=lambda claim: (len(claim.volumes), claim.claim))
        return Wanted(reaches, tuple(sorted(waiting)), local=tuple(local))

    def _there_for(self, key: str) -> tuple[LocalVolume, ...]:
        """The volumes that a claim can have which waits, and whose class makes none: one that names
        the claim, or those that are free and will do, the smallest in front.
        """
        claim = self.claims.get(key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return ()
        spec = claim.spec or objects.ClaimSpec()
        storage = self.class_of(spec)
        if (
            storage is None
            or spec.volume_name
            or storage.volume_binding_mode != WAITS
            or storage.provisioner != NO_PROVISIONER
        ):
            return ()
        named, free = [], []
        for volume in self.volumes.values():
            if not _will_do(volume, spec, storage.metadata.name):
                continue
            reference = (volume.spec or objects.VolumeSpec()).claim_ref
            if reference is None:
                free.append(volume)
            elif f"{reference.namespace}/{reference.name}" == key and reference.uid in (
                "",
                claim.metadata.uid,
            ):
                named.append(volume)
        chosen = sorted(named or free, key=lambda v: (_size(v), v.metadata.name))
        return tuple(
            LocalVolume(volume.metadata.name, _affinity(volume)) for volume in chosen[:LOCAL_MOST]
        )

    def _of_claim(self, key: str) -> tuple[list[Reach], bool]:
        """What nodes must match, and whether the claim is bound to a volume."""
        claim = self.claims.get(key)
        if claim is None:
            raise NotReady(key, "does not exist; create it")
        if claim.metadata.deletion_timestamp is not None:
            raise NotReady(key, "is being deleted; create it again")
        spec = claim.spec or objects.ClaimSpec()
        annotations = claim.metadata.annotations or {}
        if claim.status is not None and claim.status.phase == "Lost":
            raise NotReady(key, "has lost its volume; restore the volume or recreate both")
        if spec.volume_name and (
            BOUND_BY in annotations or (claim.status is not None and claim.status.phase == "Bound")
        ):
            volume = self.volumes.get(spec.volume_name)
            if volume is None:
                raise NotReady(key, f"is bound to volume {spec.volume_name}, which does not exist")
            return _of_volume(volume), True
        found = [self._unbound(key, spec)]
        if SELECTED_NODE in annotations:
            chosen = Expression("metadata.name", "In", (annotations[SELECTED_NODE],))
            found.append((NodeTerm((), (chosen,)),))
        return found, False

    def _unbound(self, key: str, spec: objects.ClaimSpec) -> Reach:
        storage = self._class(key, spec)
        if storage is None or storage.volume_binding_mode != WAITS:
            raise NotReady(key, "is not bound to a volume yet; see its events for the reason")
        if storage.provisioner == NO_PROVISIONER:
            raise NotReady(
                key,
                f"waits for a volume: class {storage.metadata.name} provisions none, and no "
                "existing volume is free, large enough and as the claim wants it; create such a "
                "PersistentVolume",
            )
        return _of_topologies(storage.allowed_topologies or ())

    def _class(self, key: str, spec: objects.ClaimSpec) -> objects.ClassObject | None:
        name = spec.storage_class_name
        if name and name not in self.classes:
            raise NotReady(key, f"names storage class {name}, which does not exist; create it")
        return self.class_of(spec)

    def class_of(self, spec: objects.ClaimSpec) -> objects.ClassObject | None:
        """The class of a claim, the default one if it names none; None if there is none such."""
        if spec.storage_class_name is not None:
            return self.classes.get(spec.storage_class_name)
        for known in self.classes.values():
            if (known.metadata.annotations or {}).get(DEFAULT_CLASS) == "true":
                return known
        return None


def _is_sole(claim: objects.ClaimObject | None) -> bool:
    spec = None if claim is None else claim.spec
    return spec is not None and ONE_POD in (spec.access_modes or ())


def _will_do(volume: objects.VolumeObject, wanted: objects.ClaimSpec, storage: str) -> bool:
    """Whether a volume is what a claim asks for; other claims may want it as well."""
    spec = volume.spec or objects.VolumeSpec()
    phase = "" if volume.status is None else volume.status.phase or ""
    if volume.metadata.deletion_timestamp is not None or phase not in ("", "Pending", "Available"):
        return False
    if (spec.storage_class_name or "") != storage:
        return False
    if (spec.volume_mode or FILESYSTEM) != (wanted.volume_mode or FILESYSTEM):
        return False
    if not {*(wanted.access_modes or ())} <= {*(spec.access_modes or ())}:
        return False
    asked = _storage((wanted.resources or objects.Resources()).requests)
    if _size(volume) < asked:
        return False
    labels = volume.metadata.labels or {}
    selector = wanted.selector or objects.LabelSelector()
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    return all(
        holds(Expression(e.key, e.operator, tuple(e.values or ())), labels.get(e.key))
        for e in selector.match_expressions or ()
    )


def _size(volume: objects.VolumeObject) -> int:
    return _storage((volume.spec or objects.VolumeSpec()).capacity)


def _storage(amounts: objects.Amounts) -> int:
    """Bytes of storage; of what cannot be read none."""
    try:
        return units.whole_up(str((amounts or {}).get("storage", "0")))
    except units.QuantityError:
        return 0


def _of_volume(volume: objects.VolumeObject) -> list[Reach]:
    """Its node affinity, and the zones that its labels name, for nodes that have such labels."""
    found = [_affinity(volume)]
    labels = volume.metadata.labels or {}
    for key in ZONES:
        if key in labels:
            values = tuple(labels[key].split(ZONE_SEPARATOR))
            here = NodeTerm((Expression(key, "In", values),))
            found.append((here, NodeTerm((Expression(key, "DoesNotExist", ()),))))
    return found


def _affinity(volume: objects.VolumeObject) -> Reach:
    """Empty for a volume that can be reached from everywhere."""
    affinity = (volume.spec or objects.VolumeSpec()).node_affinity
    return node_terms(affinity.required if affinity else None)


def _of_topologies(topologies: Iterable[objects.TopologyTerm]) -> Reach:
    return tuple(
        NodeTerm(
            tuple(
                Expression(e.key, "In", tuple(e.values or ()))
                for e in term.match_label_expressions or ()
            )
        )
        for term in topologies
    )
