"""Claims, volumes and classes as Kubernetes has them → from where a pod can reach its volumes."""

import json
from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment_proto.facts import Expression, NodeTerm
from allotment_watcher import objects
from allotment_watcher.normalise.volumes import NotReady, Reach, Volumes, claims_of
from tests.unit.kube_json import Json, container, pod_json

WAITING = {"volumeBindingMode": "WaitForFirstConsumer"}
SMALL = {"requests": {"storage": "10Gi"}}


def on_zone(zone: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def in_zone(*zones: str) -> Reach:
    return tuple(NodeTerm((Expression("zone", "In", (zone,)),)) for zone in zones)


class Store:
    """What the API server has, written as people write it."""

    def __init__(self) -> None:
        self.volumes = Volumes()

    def claim(self, name: str = "data", status: str = "Pending", **given: Any) -> None:
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **given.pop("metadata", {})}
        document = {"metadata": meta, "spec": given, "status": {"phase": status}}
        self.volumes.claims[f"ns/{name}"] = _read(document, objects.ClaimObject)

    def volume(self, name: str, status: str = "Available", **given: Any) -> None:
        meta = {"name": name, **given.pop("metadata", {})}
        document = {"metadata": meta, "spec": given, "status": {"phase": status}}
        self.volumes.volumes[name] = _read(document, objects.VolumeObject)

    def storage_class(self, name: str, **given: Any) -> None:
        meta = {"name": name, **given.pop("metadata", {})}
        self.volumes.classes[name] = _read({"metadata": meta, **given}, objects.ClassObject)

    def reach(self, *claims: str) -> tuple[Reach, ...]:
        return self.volumes.wanted("ns", claims or ("data",)).reach

    def refusal(self) -> str:
        with pytest.raises(NotReady) as raised:
            self.reach()
        problem = raised.value.problem
        assert (problem.code, problem.place) == (
            reasons.VOLUME_NOT_READY,
            "PersistentVolumeClaim ns/data",
        )
        return problem.message


def _read(document: Json, kind: Any) -> Any:
    return msgspec.json.decode(json.dumps(document), type=kind)


def test_the_claims_of_a_pod() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    pod = _read(pod_json(container(), volumes=volumes), objects.PodObject)
    assert claims_of(pod) == ("data", "p-b")


def test_a_bound_claim_is_where_its_volume_is() -> None:
    store = Store()
    store.claim(status="Bound", volumeName="v")
    store.volume("v", "Bound", nodeAffinity=on_zone("a"))
    assert store.reach() == (in_zone("a"),)


def test_a_volume_without_affinity_can_be_reached_from_everywhere() -> None:
    store = Store()
    store.claim(status="Bound", volumeName="v")
    store.volume("v", "Bound")
    assert store.reach() == ()


def test_zone_labels_of_a_volume_bind_nodes_that_have_such_labels() -> None:
    store, key = Store(), "topology.kubernetes.io/zone"
    store.claim(status="Bound", volumeName="v")
    store.volume("v", "Bound", metadata={"labels": {key: "a__b"}})
    here = NodeTerm((Expression(key, "In", ("a", "b")),))
    assert store.reach() == ((here, NodeTerm((Expression(key, "DoesNotExist", ()),))),)


def test_all_claims_must_be_reached() -> None:
    store = Store()
    for name, zone in (("data", "a"), ("more", "b")):
        store.claim(name, status="Bound", volumeName=name)
        store.volume(name, "Bound", nodeAffinity=on_zone(zone))
    assert store.reach("data", "more") == (in_zone("a"), in_zone("b"))


def test_a_claim_that_waits_for_its_pod_goes_where_its_class_may_make_volumes() -> None:
    store = Store()
    store.claim(storageClassName="fast", resources=SMALL)
    store.storage_class("fast", provisioner="x", **WAITING)
    assert store.reach() == ()
    term = {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
    store.storage_class("fast", provisioner="x", allowedTopologies=[term], **WAITING)
    assert store.reach() == ((NodeTerm((Expression("zone", "In", ("a", "b")),)),),)


def test_the_default_class_counts_for_claims_that_name_none() -> None:
    store, key = Store(), "storageclass.kubernetes.io/is-default-class"
    store.claim(resources=SMALL)
    assert "not bound" in store.refusal()
    store.storage_class("fast", metadata={"annotations": {key: "true"}}, provisioner="x", **WAITING)
    assert store.reach() == ()


def test_a_claim_whose_volume_is_being_made_has_its_node() -> None:
    store = Store()
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
    store.claim(metadata=chosen, storageClassName="fast")
    store.storage_class("fast", provisioner="x", **WAITING)
    assert store.reach() == ((NodeTerm((), (Expression("metadata.name", "In", ("n1",)),)),),)


def test_a_claim_that_waits_is_told_its_node_and_a_bound_one_is_not() -> None:
    store = Store()
    store.claim("bound", status="Bound", volumeName="v")
    store.volume("v", "Bound")
    store.claim("waits", storageClassName="fast")
    store.storage_class("fast", provisioner="x", **WAITING)
    assert store.volumes.wanted("ns", ("waits", "bound")).waiting == ("waits",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "does not exist"),
        ({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}, "being deleted"),
        ({"status": "Lost"}, "lost its volume"),
        ({"status": "Bound", "volumeName": "gone"}, "volume gone, which does not exist"),
        ({"storageClassName": "gone"}, "storage class gone, which does not exist"),
        ({"storageClassName": ""}, "not bound to a volume yet"),
        ({"storageClassName": "now"}, "not bound to a volume yet"),
        ({"storageClassName": "local"}, "create such a PersistentVolume"),
    ],
)
def test_what_is_not_ready(given: dict[str, Any] | None, words: str) -> None:
    store = Store()
    store.storage_class("now", provisioner="x", volumeBindingMode="Immediate")
    store.storage_class("local", provisioner="kubernetes.io/no-provisioner", **WAITING)
    if given is not None:
        store.claim(**given)
    assert words in store.refusal()


def there(store: Store, name: str, size: str = "10Gi", **given: Any) -> None:
    """A local volume that anybody may have."""
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "nodeAffinity": on_zone(name),
        **given,
    }
    store.volume(name, **spec)


def local(store: Store, **given: Any) -> list[str]:
    """The volumes that a claim can have, the best in front."""
    store.storage_class("local", provisioner="kubernetes.io/no-provisioner", **WAITING)
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], **given}
    store.claim(resources=SMALL, **spec)
    wanted = store.volumes.wanted("ns", ("data",))
    assert (wanted.reach, wanted.waiting) == ((), ())
    (claim,) = wanted.local
    assert claim.claim == "data"
    assert all(v.terms == in_zone(v.name) for v in claim.volumes)
    return [volume.name for volume in claim.volumes]


def test_a_claim_can_have_every_local_volume_that_will_do_the_smallest_in_front() -> None:
    store = Store()
    there(store, "large", "1Ti")
    there(store, "exact", "10Gi")
    there(store, "b", "20Gi")
    there(store, "a", "20Gi")
    there(store, "small", "9Gi")
    there(store, "other-class", storageClassName="fast")
    there(store, "many", accessModes=["ReadWriteMany"])
    there(store, "block", volumeMode="Block")
    there(store, "used", status="Bound", claimRef={"namespace": "ns", "name": "x", "uid": "u"})
    there(store, "promised", claimRef={"namespace": "ns", "name": "x"})
    there(store, "left", status="Released")
    there(store, "going", metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert local(store) == ["exact", "a", "b", "large"]


def test_a_claim_gets_the_volumes_that_it_selects() -> None:
    store = Store()
    there(store, "slow", metadata={"labels": {"disk": "hdd"}})
    there(store, "fast", metadata={"labels": {"disk": "ssd"}})
    there(store, "blank")
    assert local(store, selector={"matchLabels": {"disk": "ssd"}}) == ["fast"]
    anything_but = {"key": "disk", "operator": "NotIn", "values": ["hdd"]}
    assert local(store, selector={"matchExpressions": [anything_but]}) == ["blank", "fast"]


@pytest.mark.parametrize("uid", ["", "uid-data"])
def test_a_volume_that_names_the_claim_is_the_only_one(uid: str) -> None:
    store = Store()
    there(store, "free")
    there(store, "mine", "50Gi", claimRef={"namespace": "ns", "name": "data", "uid": uid})
    assert local(store) == ["mine"]


def test_a_volume_that_was_given_to_an_earlier_claim_of_the_name_is_not_for_this_one() -> None:
    store = Store()
    there(store, "free")
    there(store, "theirs", claimRef={"namespace": "ns", "name": "data", "uid": "an earlier one"})
    assert local(store) == ["free"]
