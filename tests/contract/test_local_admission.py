"""The admission policy that local mode's API server enforces: who may write which devices a pod
holds, through every way to write a pod."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from tests.contract.local_apiserver import Api, new_store, pod, running

from allotment_local.apiserver.admission import POLICIES, POLICY_BINDINGS, read_policy
from allotment_local.apiserver.resources import PODS as POD_KEY
from allotment_proto.volcano import keys, reserved

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
RECORD = {keys.DEVICES_TO_ALLOCATE: "GPU-0,NVIDIA,15000,100:;", keys.VGPU_NODE: "n"}
TOKEN = "only the binder has it"
BINDER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    store = new_store()
    policy, binding = read_policy()
    store.create(POLICIES, "", policy)
    store.create(POLICY_BINDINGS, "", binding)
    async with running(store, writer=TOKEN) as found:
        yield found


def annotated(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    body = pod("p", **spec)
    body["metadata"]["annotations"] = annotations
    return body


def binding(annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "target": {"kind": "Node", "name": "n"},
    }


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer guessed"}])
async def test_a_tenant_writes_no_record(api: Api, headers: dict[str, str]) -> None:
    refused = await api.post(PODS, annotated(RECORD, nodeName="n"), status=403, headers=headers)
    assert keys.DEVICES_TO_ALLOCATE in refused["message"]
    assert "only the scheduler and the device plugins write them" in refused["message"]
    await api.post(PODS, annotated({"kept": "1"}, nodeName="n"), headers=headers)
    change = {"metadata": {"annotations": RECORD}}
    for path in (f"{PODS}/p", f"{PODS}/p/status"):
        await api.patch(path, change, status=403, headers=headers)
        await api.patch(path, change, "strategic-merge", status=403, headers=headers)
    whole = await api.get(f"{PODS}/p")
    whole["metadata"]["annotations"] |= RECORD
    await api.call("PUT", f"{PODS}/p", whole, status=403, headers=headers)
    assert (await api.get(f"{PODS}/p"))["metadata"]["annotations"] == {"kept": "1"}


async def test_nor_through_a_binding_of_his_own(api: Api) -> None:
    await api.post(PODS, pod("p"))
    for path in (f"{PODS}/p/binding", "/api/v1/namespaces/default/bindings"):
        await api.post(path, binding(RECORD), status=403)
        await api.post(path, binding({keys.GPU_INDEX: "1"}), status=403)
    await api.post(f"{PODS}/p/binding", binding({"mine": "1"}))


async def test_nor_takes_one_away_but_may_write_all_else(api: Api) -> None:
    api.store.create(POD_KEY, "default", annotated(RECORD, nodeName="n"))
    gone = {"metadata": {"annotations": {keys.VGPU_NODE: None}}}
    await api.patch(f"{PODS}/p", gone, status=403)
    index = {"metadata": {"annotations": {keys.GPU_INDEX: "1"}}}
    await api.patch(f"{PODS}/p", index, status=403)
    await api.patch(f"{PODS}/p", {"metadata": {"annotations": {"allotment.dev/fault": "x"}}})
    await api.patch(f"{PODS}/p", {"metadata": {"labels": {"l": "1"}}})


async def test_what_a_pod_asks_for_is_its_owners(api: Api) -> None:
    await api.post(PODS, annotated({keys.GPU_INDEX: "1", keys.USE_GPUTYPE: "T4"}))


async def test_the_binder_writes_it(api: Api) -> None:
    await api.post(PODS, pod("p"))
    await api.post(f"{PODS}/p/binding", binding(RECORD), headers=BINDER)
    done = {"metadata": {"annotations": {keys.DEVICES_TO_ALLOCATE: ""}}}
    await api.patch(f"{PODS}/p/status", done, headers=BINDER)


async def test_without_its_binding_a_policy_does_nothing(api: Api) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    await api.call("DELETE", f"{path}/{reserved.POLICY}")
    await api.post(PODS, annotated(RECORD))


@pytest.mark.parametrize("shown", [b"\xff", "ü".encode()])
async def test_a_token_of_any_bytes_is_a_wrong_one(api: Api, shown: bytes) -> None:
    """Bytes that are not UTF-8 are surrogates in aiohttp's text, and were answered with 500."""
    url = urlsplit(api.url)
    body = msgspec.json.encode(annotated(RECORD))
    async with await anyio.connect_tcp(str(url.hostname), url.port or 0) as stream:
        lines = (
            f"POST {PODS} HTTP/1.1".encode(),
            b"Host: localhost",
            b"Authorization: Bearer " + shown,
            b"Content-Type: application/json",
            f"Content-Length: {len(body)}".encode(),
        )
        await stream.send(b"\r\n".join((*lines, b"", body)))
        assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")


def asking(
    number: str = "containers", resource: str = keys.VGPU_NUMBER, **spec: Any
) -> dict[str, Any]:
    body = pod("p", **spec)
    container = {"name": "d", "image": "i:1", "resources": {"limits": {resource: "1"}}}
    body["spec"].setdefault(number, []).append(container)
    return body


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n", "schedulerName": "allotment"},
        {"nodeName": "n"},
        {},
        {"schedulerName": "mine"},
    ],
)
async def test_no_pod_gets_devices_past_the_schedulers(
    api: Api, where: str, spec: dict[str, Any]
) -> None:
    """It has no record of its own: the plugin would serve it with that of another pod."""
    refused = await api.post(PODS, asking(where, **spec), status=403)
    assert "needs a scheduler that hands them out" in refused["message"]
    await api.post(PODS, asking(where, **spec), headers=BINDER)


@pytest.mark.parametrize(
    "resource",
    [
        "volcano.sh/gpu-memory",
        "huawei.com/Ascend910B3",
        "huawei.com/Ascend310P-memory",
        keys.NPU_CORE,
    ],
)
async def test_nor_of_any_kind_that_is_handed_out_by_records(api: Api, resource: str) -> None:
    await api.post(PODS, asking(resource=resource), status=403)
    await api.post(PODS, asking(resource=resource, schedulerName="allotment"))


async def test_whole_cards_are_handed_out_by_kubelet_to_anybody(api: Api) -> None:
    await api.post(PODS, asking(resource="nvidia.com/gpu"))


@pytest.mark.parametrize("scheduler", reserved.SCHEDULERS)
async def test_whoever_waits_for_a_scheduler_may_ask(api: Api, scheduler: str) -> None:
    await api.post(PODS, asking(schedulerName=scheduler))
