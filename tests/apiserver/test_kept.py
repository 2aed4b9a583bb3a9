"""What the services keep and show in Kubernetes besides pods, and how they prove who they are."""

from random import Random
from unittest.mock import MagicMock

import anyio
import msgspec
import pytest
from tests.apiserver.servers import Api, Json, done, make_account, pod, refused
from tests.waiting import until

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.events import micro_time
from allotment.adapters.kube.kept_text import KeptText, TextUnavailable
from allotment.adapters.kube.objects import AnnotatedObject
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import Added, Deleted, WatchEvent
from allotment_watcher.lease_mirror import LeaseMirror

pytestmark = pytest.mark.anyio
TIME_NS = 1_790_000_000_123_456_789
LEASES = "coordination.k8s.io/v1"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_a_text_is_kept_in_a_config_map(api: Api) -> None:
    kept = KeptText(api.client, api.namespace, "kept")
    assert await kept.read() is None
    for text in ("one", "two"):
        await kept.write(text)
        assert await kept.read() == text
    elsewhere = KeptText(api.client, f"{api.namespace}-absent", "kept")
    assert await elsewhere.read() is None
    with pytest.raises(TextUnavailable, match="not found"):
        await elsewhere.write("one")


async def test_one_config_map_is_followed_by_its_name(api: Api) -> None:
    """As the watcher follows the policy: others of the namespace are not its business."""
    heard: list[WatchEvent[AnnotatedObject]] = []

    async def hear(event: WatchEvent[AnnotatedObject]) -> None:
        heard.append(event)

    path = f"{api.at('configmaps')}?fieldSelector=metadata.name%3Dmine"
    decoder = msgspec.json.Decoder(AnnotatedObject)
    reflector = Reflector(api.client, path, decoder, hear, random=Random(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reflector.run)
        await until(lambda: heard)
        for name in ("other", "mine"):
            await api.create("configmaps", {"metadata": {"name": name}})
        for name in ("other", "mine"):
            done(await api.client.delete(api.at("configmaps", name)))
        await until(lambda: any(isinstance(event, Deleted) for event in heard))
        tasks.cancel_scope.cancel()
    assert sum(isinstance(event, Added) for event in heard) == 1


async def test_a_lease_shows_who_is_active(api: Api) -> None:
    mirror = LeaseMirror(api.client, MagicMock(), api.namespace, MagicMock())
    for holder, time_ns in (("binder-0", TIME_NS), ("binder-1", TIME_NS + 10**9)):
        await mirror.copy("binder", holder, time_ns)
        lease = await api.read(api.at("leases", "allotment-binder", LEASES))
        assert lease["spec"]["holderIdentity"] == holder
        assert lease["spec"]["renewTime"] == micro_time(time_ns)


async def test_a_pod_has_the_priority_of_its_class(api: Api) -> None:
    name = api.namespace  # classes are the whole cluster's
    made = {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"}
    done(await api.client.create(CLASSES, made))
    try:
        urgent = (await api.pod("a", priorityClassName=name))["spec"]
        assert (urgent["priority"], urgent["preemptionPolicy"]) == (7, "Never")
        plain = (await api.pod("b"))["spec"]
        assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
        absent: Json = pod("c", priorityClassName="absent")
        refused(await api.client.create(api.at("pods"), absent), 403, "Forbidden")
        patch = {"value": 8}
        refused(await api.client.patch(f"{CLASSES}/{name}", patch), 422, "Invalid")
    finally:
        done(await api.client.delete(f"{CLASSES}/{name}"))


async def test_a_claim_says_on_which_node_its_volume_is_wanted(api: Api) -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "absent",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    bound = {**claim, "status": {"phase": "Bound"}}  # which is a controller's to say
    made = await api.create("persistentvolumeclaims", bound)
    assert made["status"] == {"phase": "Pending"}
    path = api.at("persistentvolumeclaims", "c")
    meta = {
        "uid": made["metadata"]["uid"],
        "resourceVersion": made["metadata"]["resourceVersion"],
        "annotations": {"volume.kubernetes.io/selected-node": "n"},
    }
    changed = done(await api.client.patch(path, {"metadata": meta}))
    assert changed["metadata"]["annotations"] == meta["annotations"]
    refused(await api.client.patch(path, {"metadata": meta}), 409, "Conflict")


async def test_a_token_that_is_over_is_read_again(api: Api) -> None:
    token = None
    if api.real:
        await make_account(api, "rotated")
        token = await api.token("rotated", api.namespace)
    async with connect(api.kubeconfig("rotated", "over")) as client:
        api.kubeconfig("rotated", token)
        done(await client.get("/version"))
        answer = await client.get(api.at("pods"))
        if api.real:
            said = refused(answer, 403, "Forbidden").message  # known, and without any right
            assert f"system:serviceaccount:{api.namespace}:rotated" in said
        else:
            done(answer)
