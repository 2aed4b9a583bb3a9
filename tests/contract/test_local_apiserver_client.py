"""The official Python client, unmodified, against the local API server."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException
from tests.contract.local_apiserver import node, pod, process

# Its types promise models; it takes and gives dictionaries as well.
kube: Any = kubernetes
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with process() as url:
        configuration = kube.client.Configuration()
        configuration.host = url
        with kube.client.ApiClient(configuration) as api_client:
            yield api_client


@pytest.fixture
def core(client: Any) -> Any:
    return kube.client.CoreV1Api(client)


def test_the_life_of_a_pod(core: Any) -> None:
    created = core.create_namespaced_pod("default", pod("life"))
    assert created.status.phase == "Pending"
    binding = {
        "metadata": {"name": "life", "uid": created.metadata.uid, "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    core.create_namespaced_pod_binding("life", "default", binding, _preload_content=False)
    bound = core.read_namespaced_pod("life", "default")
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == {"a": "b"}
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_binding("life", "default", binding, _preload_content=False)
    assert refused.value.status == 409
    core.patch_namespaced_pod_status("life", "default", {"status": {"phase": "Running"}})
    listed = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=n1")
    assert [item.status.phase for item in listed.items] == ["Running"]
    core.delete_namespaced_pod("life", "default", grace_period_seconds=0)
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_pod("life", "default")
    assert missing.value.status == 404


def test_a_watch_hears_of_nodes(core: Any) -> None:
    watch = kube.watch.Watch()
    version = core.list_node().metadata.resource_version
    writer = threading.Timer(0.1, lambda: core.create_node(node("watched")))
    writer.start()
    seen = []
    for event in watch.stream(core.list_node, resource_version=version, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        watch.stop()
    writer.join()
    assert seen == [("ADDED", "watched")]


def test_leases_config_maps_and_both_faces_of_events(client: Any, core: Any) -> None:
    coordination = kube.client.CoordinationV1Api(client)
    lease = {
        "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "a", "renewTime": "2026-03-01T12:00:00.123456Z"},
    }
    coordination.create_namespaced_lease("default", lease)
    held = coordination.read_namespaced_lease("leader", "default")
    assert held.spec.renew_time == datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    core.create_namespaced_config_map("default", {"metadata": {"name": "c"}, "data": {"k": "v"}})
    assert core.read_namespaced_config_map("c", "default").data == {"k": "v"}
    event = {
        "metadata": {"name": "p.1"},
        "eventTime": "2026-03-01T12:00:00.123456Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Scheduled",
        "action": "Binding",
        "type": "Normal",
        "note": "Successfully assigned default/p to n1",
        "reportingController": "allotment",
        "reportingInstance": "allotment-binder",
    }
    kube.client.EventsV1Api(client).create_namespaced_event("default", event)
    (seen,) = core.list_namespaced_event("default", field_selector="involvedObject.name=p").items
    assert seen.message == "Successfully assigned default/p to n1"
    assert seen.reporting_component == "allotment"


def test_custom_objects(client: Any) -> None:
    extensions = kube.client.ApiextensionsV1Api(client)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    extensions.create_custom_resource_definition(
        {
            "metadata": {"name": "queues.test.allotment.dev"},
            "spec": {
                "group": "test.allotment.dev",
                "scope": "Cluster",
                "names": {"kind": "Queue", "plural": "queues"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                    }
                ],
            },
        }
    )
    custom = kube.client.CustomObjectsApi(client)
    where = ("test.allotment.dev", "v1", "queues")
    body = {
        "apiVersion": "test.allotment.dev/v1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"weight": 1},
        "status": {"dropped": True},
    }
    created = custom.create_cluster_custom_object(*where, body)
    assert "status" not in created
    status = {"status": {"state": "Open"}}
    patched = custom.patch_cluster_custom_object_status(*where, "q", status)
    assert patched["status"] == {"state": "Open"}
    assert patched["spec"] == {"weight": 1}
    assert len(custom.list_cluster_custom_object(*where)["items"]) == 1
