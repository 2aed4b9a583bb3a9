"""The Store in process: what fake kubelets and tests rely on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_local.apiserver.errors import ApiError, JsonObject
from allotment_local.apiserver.resources import CONFIG_MAPS, EVENTS, NODES, PODS, ResourceKey
from allotment_local.apiserver.store import Store
from tests.contract.local_apiserver import Clock, counting_ids, new_store, node, pod


def _refusal(code: int) -> Any:
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def _on_node(store: Store, name: str, **metadata: Any) -> JsonObject:
    body = pod(name, nodeName="n")
    body["metadata"].update(metadata)
    return store.create(PODS, "default", body)


def test_objects_handed_out_never_change() -> None:
    store = new_store()
    given_body = node("n")
    first = store.create(NODES, "", given_body)
    assert given_body == node("n")
    snapshot = repr(first)
    second = store.merge_patch(NODES, "", "n", {"metadata": {"labels": {"a": "b"}}})
    store.merge_patch(NODES, "", "n", {"status": {"phase": "x"}}, subresource="status")
    assert repr(first) == snapshot
    assert second["status"] is first["status"]


def test_updates_refuse_a_stale_version() -> None:
    store = new_store()
    first = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "c"}})
    store.update(CONFIG_MAPS, {**first, "data": {"a": "1"}})
    with _refusal(409):
        store.update(CONFIG_MAPS, {**first, "data": {"a": "2"}})
    with _refusal(404):
        store.update(CONFIG_MAPS, {"metadata": {"name": "absent", "namespace": "default"}})


def test_a_kubelet_sets_status_and_ends_its_pod() -> None:
    store = new_store()
    created = _on_node(store, "p")
    status = {"status": {"phase": "Running"}}
    running = store.merge_patch(PODS, "default", "p", status, subresource="status")
    assert running["status"]["phase"] == "Running"
    ending = store.delete(PODS, "default", "p")
    assert ending is not None
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
    with _refusal(409):
        store.delete(PODS, "default", "p", grace_seconds=0, uid="another")
    uid = created["metadata"]["uid"]
    assert store.delete(PODS, "default", "p", grace_seconds=0, uid=uid) is None
    with _refusal(404):
        store.get(PODS, "default", "p")


def test_a_pod_that_has_ended_needs_no_grace() -> None:
    store = new_store()
    _on_node(store, "p")
    store.merge_patch(PODS, "default", "p", {"status": {"phase": "Failed"}}, subresource="status")
    assert store.delete(PODS, "default", "p") is None


@pytest.mark.parametrize(("own_s", "kept_s"), [(1 << 62, 1 << 33), (1 << 40, 1 << 33), (-5, 1)])
def test_no_grace_period_keeps_a_pod_and_what_ends_with_it_from_being_deleted(
    own_s: int, kept_s: int
) -> None:
    """The date of its deadline does not exist: its owner's other pods stayed as well."""
    store = new_store()
    owner = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "owner"}})["metadata"]
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}]
    for name, grace_s in (("a", own_s), ("b", 30)):
        body = pod(name, nodeName="n", terminationGracePeriodSeconds=grace_s)
        body["metadata"]["ownerReferences"] = owners
        store.create(PODS, "default", body)
    store.delete(CONFIG_MAPS, "default", "owner")
    ending = [store.get(PODS, "default", name)["metadata"] for name in ("a", "b")]
    assert [meta.get("deletionGracePeriodSeconds") for meta in ending] == [kept_s, 30]


def test_a_finalizer_outlives_the_kubelet() -> None:
    store = new_store()
    _on_node(store, "p", finalizers=["test/hold"])
    store.delete(PODS, "default", "p")
    held = store.delete(PODS, "default", "p", grace_seconds=0)
    assert held is not None
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    store.merge_patch(PODS, "default", "p", {"metadata": {"finalizers": None}})
    with _refusal(404):
        store.get(PODS, "default", "p")


def test_subscribers_hear_each_write_in_order_also_those_of_subscribers() -> None:
    store = new_store()
    first: list[tuple[str, str]] = []
    second: list[tuple[str, str]] = []

    def copies(type_: str, obj: JsonObject) -> None:
        first.append((type_, obj["metadata"]["name"]))
        if obj["metadata"]["name"] == "a" and type_ == "ADDED":
            store.create(CONFIG_MAPS, "default", {"metadata": {"name": "b"}})
            store.delete(CONFIG_MAPS, "default", "a")

    store.subscribe(CONFIG_MAPS, copies)
    stop = store.subscribe(CONFIG_MAPS, lambda t, o: second.append((t, o["metadata"]["name"])))
    store.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
    assert first == second == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    stop()
    stop()
    store.delete(CONFIG_MAPS, "default", "b")
    assert len(second) == 3


def test_a_broken_subscriber_harms_neither_the_writer_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = new_store()
    heard: list[str] = []

    def broken(_type: str, _obj: JsonObject) -> None:
        raise RuntimeError("this subscriber is broken")

    store.subscribe(NODES, broken)
    store.subscribe(NODES, lambda type_, _obj: heard.append(type_))
    store.create(NODES, "", node("n"))
    assert heard == ["ADDED"]
    assert "this subscriber is broken" in caplog.text


def test_a_write_that_changes_nothing_is_no_write() -> None:
    store = new_store()
    store.create(CONFIG_MAPS, "default", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    version = store.resource_version
    store.merge_patch(CONFIG_MAPS, "default", "c", {"data": {"a": "1", "gone": None}})
    assert store.resource_version == version


def test_versions_are_encoded_once() -> None:
    store = new_store()
    store.create(NODES, "", node("n"))
    entry = store.entry(NODES, "", "n")
    assert entry.encoded is entry.encoded
    assert entry.encoded is store.collection(NODES).entries()[0].encoded


def test_an_unknown_resource_is_not_served() -> None:
    store = new_store()
    with _refusal(404):
        store.list(ResourceKey("nobody", "things"))


def test_events_do_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment_local.apiserver.store.EVENTS_MAX", 3)
    store = new_store()
    for number in range(5):
        about = {"kind": "Pod", "name": "p", "namespace": "default"}
        store.create(
            EVENTS, "default", {"metadata": {"name": f"e{number}"}, "involvedObject": about}
        )
    names = [event["metadata"]["name"] for event in store.list(EVENTS)[0]]
    assert names == ["e2", "e3", "e4"]


def test_the_clock_and_the_ids_are_the_ones_given() -> None:
    clock = Clock()
    store = Store(clock=clock, ids=counting_ids(), first_resource_version=1000)
    clock.advance(61.5)
    created = store.create(NODES, "", node("n"))
    assert created["metadata"]["creationTimestamp"] == "2026-03-01T12:01:01Z"
    assert created["metadata"]["uid"].startswith("uid-")
    assert int(created["metadata"]["resourceVersion"]) > 1000


_steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "patch", "delete", "finalize"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["1", "2"]),
    ),
    max_size=30,
)


@given(_steps)
@settings(max_examples=60, deadline=None)
def test_whoever_follows_the_writes_knows_what_a_list_says(steps: list[Any]) -> None:
    store = new_store()
    followed: dict[str, JsonObject] = {}
    versions: list[int] = []
    refusals: set[int] = set()

    def follow(type_: str, obj: JsonObject) -> None:
        name = obj["metadata"]["name"]
        versions.append(int(obj["metadata"]["resourceVersion"]))
        assert (name in followed) is (type_ != "ADDED")
        if type_ == "DELETED":
            del followed[name]
        else:
            followed[name] = obj

    store.subscribe(CONFIG_MAPS, follow)
    for step, name, value in steps:
        try:
            if step == "create":
                hold = ["test/hold"] if value == "2" else []
                body = {"metadata": {"name": name, "finalizers": hold}}
                store.create(CONFIG_MAPS, "default", body)
            elif step == "patch":
                store.merge_patch(CONFIG_MAPS, "default", name, {"data": {"v": value}})
            elif step == "delete":
                store.delete(CONFIG_MAPS, "default", name)
            else:
                patch = {"metadata": {"finalizers": None}}
                store.merge_patch(CONFIG_MAPS, "default", name, patch)
        except ApiError as refusal:
            refusals.add(refusal.code)
    listed, version = store.list(CONFIG_MAPS)
    assert {obj["metadata"]["name"]: obj for obj in listed} == followed
    assert refusals <= {404, 409}
    assert versions == sorted(set(versions))
    assert not versions or versions[-1] <= version
