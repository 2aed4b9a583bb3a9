"""What pods of manifests find in their cluster: the queues that namespaces name, and their claims.

The log tells neither. What the manifests make themselves is read from them; for the rest the API
server is asked, where it is known which one. What remains unknown is assumed, and reported.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from allotment.answers.cluster import Cluster, access_of, open_cluster
from allotment.answers.screen import Screen
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.jobs import keys
from allotment.core.jobs.groups import queue_name
from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import Problem
from allotment_proto.volcano.exclusive import group_name
from allotment_watcher import objects
from allotment_watcher.normalise.volumes import (
    NO_PROVISIONER,
    NOTHING,
    WAITS,
    NotReady,
    Volumes,
    Wanted,
)

Document = dict[str, Any]
T = TypeVar("T")
_CLAIMING = (b'"persistentVolumeClaim"', b'"ephemeral"', b'"volumeClaimTemplates"', b'"volumes"')
_NEW = "{} for new claims"
_CLUSTER_WIDE = frozenset(("Namespace", "PersistentVolume", "StorageClass"))


class Surroundings:
    """What is known of a cluster in addition to its log.

    `unasked` is why no API server was asked; empty if one was. `assumed` fills while pods are read.
    """

    def __init__(self, state: ClusterState, unasked: str = "") -> None:
        self.assumed: dict[str, None] = {}
        self._unasked = unasked
        self._queues: dict[str, str | None] = {}
        """What namespaces name, empty for none; None for a namespace that is not there."""
        self._volumes = Volumes()
        self._there: set[str] = set()
        """The claims that the cluster has."""
        nodes = (node.fact for node in state.nodes.values() if node.fact is not None)
        self._limited = frozenset(driver for fact in nodes for driver, _ in fact.volume_limits)
        leaves = {queue.parent for queue in state.queues.values()}
        self._has_choice = state.is_batched and len(state.queues.keys() - leaves) > 1

    def take(self, document: Document) -> bool:
        """Learn from a manifest; false for one that is about none of this."""
        kind, metadata = document["kind"], document.get("metadata") or {}
        name, volumes = str(metadata.get("name", "")), self._volumes
        match kind:
            case "Namespace":
                annotations = metadata.get("annotations") or {}
                named = queue_name(annotations)
                self._queues[name] = named or self._queues.get(name) or ""
            case "PersistentVolumeClaim":
                self.make_claim(metadata["namespace"], name, document.get("spec"))
            case "PersistentVolume":
                volumes.volumes.setdefault(name, _decoded(document, objects.VolumeObject))
            case "StorageClass":
                volumes.classes.setdefault(name, _decoded(document, objects.ClassObject))
            case _:
                return False
        return True

    def make_claim(self, namespace: str, name: str, spec: object) -> None:
        """A claim that comes with the manifests, unless the cluster has it already."""
        document = {"metadata": {"name": name, "namespace": namespace}, "spec": spec or {}}
        key = f"{namespace}/{name}"
        self._volumes.claims.setdefault(key, _decoded(document, objects.ClaimObject))

    async def ask(self, cluster: Cluster, namespaces: Iterable[str], *, claims: bool) -> None:
        """Ask an API server about these namespaces, and with `claims` about what volumes need."""
        for name in namespaces:
            path = f"/api/v1/namespaces/{name}"
            found = await cluster.find(path, f"namespace {name}", objects.NamespaceObject)
            annotations = None if found is None else found.metadata.annotations or {}
            queue = None if annotations is None else queue_name(annotations)
            self._queues[name] = queue
            if not claims or found is None:
                continue
            for each in await cluster.list(
                f"{path}/persistentvolumeclaims", "claims", objects.ClaimObject
            ):
                key = f"{name}/{each.metadata.name}"
                self._volumes.claims[key] = each
                self._there.add(key)
        if claims:
            volumes, classes = "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"
            for volume in await cluster.list(volumes, "volumes", objects.VolumeObject):
                self._volumes.volumes[volume.metadata.name] = volume
            for each_class in await cluster.list(classes, "storage classes", objects.ClassObject):
                self._volumes.classes[each_class.metadata.name] = each_class

    def queue_of(self, namespace: str, annotations: Mapping[str, str], *named: str) -> str:
        """The queue that a namespace names for a pod, or a Job, that says this of itself."""
        if namespace in self._queues:
            found = self._queues[namespace]
            if found is None:
                self._assume(f"namespace {namespace} does not exist; it is made and names no queue")
            return found or ""
        names_none = {*named, queue_name(annotations)} <= {"", keys.DEFAULT_QUEUE}
        if self._has_choice and names_none and not group_name(annotations):
            self._assume(f"namespace {namespace} names no queue{self._why()}")
        return ""

    def wanted(self, namespace: str, claims: Iterable[str]) -> Wanted | Problem:
        """What a pod's claims want of its node, or why they cannot be had."""
        known = []
        for name in claims:
            key = f"{namespace}/{name}"
            claim = self._volumes.claims.get(key)
            if self._is_known(key, claim):
                known.append(name)
                if claim is not None and key not in self._there:
                    self._volumes.claims[key] = self._provisioned(claim)
            elif claim is None:
                self._assume(f"claim {key} is there, within reach of every node{self._why()}")
            else:
                self._assume(
                    f"the volume of claim {key} is made within reach of every node{self._why()}"
                )
        if not known:
            return NOTHING
        try:
            wanted = self._volumes.wanted(namespace, known)
        except NotReady as error:
            return error.problem
        attached = self._volumes.attached(namespace, known, self._limited)[0]
        return wanted._replace(attachments=attached)

    def _is_known(self, key: str, claim: objects.ClaimObject | None) -> bool:
        """Whether it can be said what a claim wants: without an API server its class has to be
        among the manifests.
        """
        if not self._unasked:
            return True
        name = None if claim is None or claim.spec is None else claim.spec.storage_class_name
        return bool(name) and name in self._volumes.classes

    def _provisioned(self, claim: objects.ClaimObject) -> objects.ClaimObject:
        """A new claim whose class makes a volume at once: the pod only waits until it is made, so
        that it is one of a class which makes it where the pod goes.
        """
        spec = claim.spec or objects.ClaimSpec()
        storage = self._volumes.class_of(spec)
        if storage is None or storage.volume_binding_mode == WAITS:
            return claim
        if storage.provisioner == NO_PROVISIONER:
            return claim
        name = _NEW.format(storage.metadata.name)
        waits = msgspec.structs.replace(storage, volume_binding_mode=WAITS)
        self._volumes.classes[name] = waits
        return msgspec.structs.replace(
            claim, spec=msgspec.structs.replace(spec, storage_class_name=name)
        )

    def _assume(self, text: str) -> None:
        self.assumed[text] = None

    def _why(self) -> str:
        return f" ({self._unasked})" if self._unasked else ""


async def surroundings(
    origin: Origin,
    documents: Iterable[Document],
    state: ClusterState,
    screen: Screen,
    *,
    is_past: bool,
) -> Surroundings:
    """What the manifests say, and what their cluster says where it is known which one it is."""
    documents = list(documents)
    unasked, access = ("the API server knows the present only", None)
    if not is_past:
        unasked, access = access_of(origin)
    found = Surroundings(state, unasked)
    namespaces = {
        str(each["metadata"]["namespace"])
        for each in documents
        if each["kind"] not in _CLUSTER_WIDE
    }
    text = msgspec.json.encode(documents)
    try:
        if access is not None:
            with screen.waiting("asking the API server about namespaces and claims"):
                async with open_cluster(access, screen) as cluster:
                    has_claims = any(word in text for word in _CLAIMING)
                    await found.ask(cluster, sorted(namespaces), claims=has_claims)
    except AllotError as error:
        if origin.cluster is not None:
            raise
        found = Surroundings(state, error.message)
    return found


def _decoded(document: Document, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)
