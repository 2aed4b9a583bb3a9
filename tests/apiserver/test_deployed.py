"""What is deployed: applied twice, CRDs, and the policy about who may write device records."""

from collections.abc import AsyncIterator

import pytest
import yaml
from tests.apiserver.servers import (
    RBAC,
    Api,
    Json,
    done,
    make_account,
    pod,
    refused,
    until_it,
)
from tests.contract.manifests import KUSTOMIZATIONS, ROOT, needs_kubectl

from allotment.adapters.kube.client import STRATEGIC_PATCH, KubeClient, connect
from allotment.adapters.kube.result import Ok
from allotment_local.definitions import read_definitions
from allotment_proto.volcano import keys

pytestmark = pytest.mark.anyio
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GROUPS, QUEUES = "scheduling.volcano.sh/v1beta1", "/apis/scheduling.volcano.sh/v1beta1/queues"
POLICY = "allotment-assignments"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
RECORD = {
    keys.DEVICES_TO_ALLOCATE: "GPU-1,NVIDIA,15000,100:;",
    keys.VGPU_NODE: "n",
    keys.BIND_PHASE: "allocating",
}
SHARE = {"limits": {keys.VGPU_NUMBER: "1", keys.VGPU_MEMORY: "1000"}}


@pytest.fixture
async def defined(api: Api) -> Api:
    """With our custom resources."""
    for definition in read_definitions():
        answer = await api.client.create(DEFINITIONS, definition)
        assert isinstance(answer, Ok) or answer.status == 409, answer

    async def are_served() -> bool:
        paths = (api.at("podgroups", group=GROUPS), QUEUES)
        return all([isinstance(await api.client.get(path), Ok) for path in paths])

    await until_it(are_served)
    return api


async def test_a_custom_resource_keeps_what_its_schema_says(defined: Api) -> None:
    api = defined
    group = {
        "apiVersion": GROUPS,
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2, "queue": "default"},
        "status": {"phase": "Running"},
    }
    made = await api.create("podgroups", group, GROUPS)
    assert "phase" not in made.get("status", {})
    assert made["metadata"]["generation"] == 1
    path = api.at("podgroups", "g", GROUPS)
    status = {"status": {"phase": "Inqueue", "running": 1}, "spec": {"minMember": 3}}
    changed = done(await api.client.patch(f"{path}/status", status))
    assert (changed["status"]["phase"], changed["spec"]["minMember"]) == ("Inqueue", 2)
    assert changed["metadata"]["generation"] == 1
    larger = done(await api.client.patch(path, {"spec": {"minMember": 3}}))
    assert (larger["status"]["phase"], larger["spec"]["minMember"]) == ("Inqueue", 3)
    assert larger["metadata"]["generation"] == 2
    other: list[Json] = [{"metadata": {"uid": "another"}}, {"metadata": {"resourceVersion": "1"}}]
    for patch in other:
        refused(await api.client.patch(path, patch), 409, "Conflict")
    refused(await api.client.patch(path, {"spec": {"minMember": "many"}}), 422, "Invalid")
    refused(
        await api.client.patch(path, {"spec": {}}, STRATEGIC_PATCH), 415, "UnsupportedMediaType"
    )
    done(await api.client.delete(path, uid=made["metadata"]["uid"]))
    refused(await api.client.get(path), 404, "NotFound")


@pytest.fixture
async def tenant(api: Api) -> AsyncIterator[KubeClient]:
    """May do anything with the pods of the namespace, and no more."""
    token = None
    if api.real:
        await make_account(api, "tenant")
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
        everything = {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}
        group = RBAC.removeprefix("/apis/")
        meta = {"metadata": {"name": "tenant"}}
        await api.create("roles", {**meta, "rules": [everything]}, group)
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": api.namespace}
        binding = {**meta, "roleRef": role, "subjects": [subject]}
        await api.create("rolebindings", binding, group)
        token = await api.token("tenant", api.namespace)
    async with connect(api.kubeconfig("tenant", token)) as client:
        yield client


@pytest.fixture
async def guarded(api: Api, tenant: KubeClient) -> AsyncIterator[Api]:
    """With the policy in place, which the real server takes a while to learn."""
    objects = {}
    for found in yaml.safe_load_all((ROOT / "deploy/base/annotation-policy.yaml").read_text()):
        path = f"{ADMISSION}/{PLURALS[found['kind']]}"
        objects[f"{path}/{POLICY}"] = done(await api.client.create(path, found))

    async def is_known() -> bool:
        body = {**pod("forged"), "metadata": {"name": "forged", "annotations": RECORD}}
        answer = await tenant.create(api.at("pods"), body, {"dryRun": "All"})
        return not isinstance(answer, Ok) and answer.status == 403

    try:
        await until_it(is_known)
        yield api
    finally:
        for path in objects:
            done(await api.client.delete(path))


async def test_a_tenant_writes_no_device_record(guarded: Api, tenant: KubeClient) -> None:
    api = guarded
    path = api.at("pods", "mine")
    made = done(await tenant.create(api.at("pods"), pod("mine")))
    harmless = {"metadata": {"annotations": {keys.GROUP_NAME: "g", keys.GPU_INDEX: "0"}}}
    done(await tenant.patch(path, harmless))
    forged: Json = {"metadata": {"annotations": RECORD}}
    for place in (path, f"{path}/status"):
        said = refused(await tenant.patch(place, forged), 403, "Forbidden").message
        assert (
            f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request" in said
        )
        assert keys.DEVICES_TO_ALLOCATE in said
    uid = made["metadata"]["uid"]
    refused(await tenant.bind(api.namespace, "mine", uid, "n", RECORD), 403, "Forbidden")
    done(await api.client.bind(api.namespace, "mine", uid, "n", RECORD))
    bound = done(await tenant.get(path))
    assert bound["metadata"]["annotations"].items() >= RECORD.items()
    gone: Json = {"metadata": {"annotations": dict.fromkeys(RECORD)}}
    refused(await tenant.patch(path, gone), 403, "Forbidden")
    index = {"metadata": {"annotations": {keys.GPU_INDEX: "1"}}}
    refused(await tenant.patch(path, index), 403, "Forbidden")  # bound: it says what it holds
    done(await api.client.patch(path, {"metadata": {"annotations": {keys.BIND_PHASE: "success"}}}))


async def test_a_pod_with_shares_passes_no_scheduler(guarded: Api, tenant: KubeClient) -> None:
    api = guarded
    containers = [{"name": "c", "image": "i:1", "resources": SHARE}]
    answers = {}
    for name, spec in (
        ("ours", {}),
        ("another", {"schedulerName": "default-scheduler"}),
        ("placed", {"nodeName": "n"}),
    ):
        body = pod(name, containers=containers, **spec)
        answers[name] = await tenant.create(api.at("pods"), body)
    done(answers["ours"])
    for name in ("another", "placed"):
        said = refused(answers[name], 403, "Forbidden").message
        assert "a pod that asks for shared devices" in said
    done(
        await api.client.create(api.at("pods"), pod("allowed", containers=containers, nodeName="n"))
    )


@needs_kubectl
@pytest.mark.parametrize("where", KUSTOMIZATIONS)
async def test_what_is_applied_again_changes_nothing(api: Api, where: str) -> None:
    """Neither as a client applies it, nor as the server does after that."""
    path = str(ROOT / where)
    await api.kubectl("apply", "-k", path)
    before = await _shown(api, path)
    await api.kubectl("apply", "-k", path)
    assert await _shown(api, path) == before
    if api.real is None:  # which takes no such patches, and says so
        said = await api.kubectl("apply", "--server-side", "-k", path, status=1)
        assert "the body of the request was in an unknown format" in said
    else:
        for manager in ("kubectl", "kubectl", "another"):
            await api.kubectl("apply", "--server-side", "-k", path, f"--field-manager={manager}")
            assert await _shown(api, path) == before
    await api.kubectl("delete", ",".join(PLURALS.values()), POLICY)


async def _shown(api: Api, path: str) -> dict[str, Json]:
    """Everything that was applied, without what controllers and clients note about it (which counts
    as a generation of a Deployment, and restarts nothing)."""
    shown = yaml.safe_load(await api.kubectl("get", "-k", path, "-o", "yaml"))
    found = {}
    for item in shown["items"]:
        metadata = item.pop("metadata")
        item.pop("status", None)
        item["labels"] = metadata.get("labels")
        found[f"{item['kind']}/{metadata['name']}"] = item
    assert found
    return found
