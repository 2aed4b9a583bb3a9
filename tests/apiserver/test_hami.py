"""The page for HAMi's users: its commands on a real API server, its names against the code."""

import re

import pytest
from tests.apiserver.servers import NODES, Api, KubeApiserver, done, make_account, pod
from tests.contract.manifests import needs_kubectl
from tests.documents import commands, read

from allotment.adapters.kube.result import Ok
from allotment.core.placement.devices.foreign import ANNOTATIONS, RESOURCES
from allotment_proto.volcano import keys

pytestmark = [pytest.mark.anyio, needs_kubectl]
PAGE = read("deploy/HAMI.md")
REGISTER = "hami.io/node-nvidia-register"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"
TEMPLATE = {
    "metadata": {"labels": {"app": "hami"}},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}
SCHEDULER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "hami-scheduler"},
    "spec": {"selector": {"matchLabels": {"app": "hami"}}, "template": TEMPLATE},
}
WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "hami-webhook"},
    "webhooks": [
        {
            "name": "vgpu.hami.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "hami-scheduler", "namespace": "kube-system"}},
            "failurePolicy": "Fail",
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
                ]
            },
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "sideEffects": "None",
            "timeoutSeconds": 1,
        }
    ],
}
"""As HAMi's chart selects pods; nobody answers, so whoever is asked about a pod rejects it."""


@pytest.fixture(params=["kube-apiserver"])
def server(own: KubeApiserver) -> KubeApiserver:
    """A server of this test's own: the webhook concerns every pod."""
    return own


async def test_its_commands_do_what_they_say(api: Api) -> None:
    trial = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trial"}}
    done(await api.client.create("/api/v1/namespaces", trial))
    await make_account(api, "default", "trial")
    meta = {"name": "gpu-1", "labels": {"gpu": "on"}, "annotations": {REGISTER: "GPU-1,10:"}}
    done(await api.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta}))
    done(await api.client.create(DEPLOYMENTS, SCHEDULER))
    done(await api.client.create(WEBHOOKS, WEBHOOK))
    body = pod("p", containers=[{"name": "c", "image": "i:1"}])
    for words in commands(PAGE, "kubectl"):
        if words[0] == "delete":  # until here HAMi's webhook is asked, but about the trial's pods
            done(await api.client.create("/api/v1/namespaces/trial/pods", body))
            answer = await api.client.create(api.at("pods"), body)
            assert not isinstance(answer, Ok)
            assert "vgpu.hami.io" in answer.message
        if "gpu=on" in words:
            node = await api.read(f"{NODES}/gpu-1")
            assert "gpu" not in node["metadata"].get("labels", {})
            assert REGISTER not in node["metadata"].get("annotations", {})
            assert "trial" in {taint["key"] for taint in node["spec"]["taints"]}
        await api.kubectl(*words)
    done(await api.client.create(api.at("pods"), body))
    assert (await api.read(f"{DEPLOYMENTS}/hami-scheduler"))["spec"]["replicas"] == 0
    assert (await api.read(f"{NODES}/gpu-1"))["metadata"]["labels"] == {"gpu": "on"}


def test_its_table_says_what_the_code_translates() -> None:
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| ")][1:]
    told = {
        foreign: re.findall(r"`([^`]+)`", here)[:1]
        for there, here in rows
        for foreign in re.findall(r"`([^`]+)`", there)
    }
    ours = {
        foreign.senses: name
        for name, foreign in RESOURCES.items()
        if name in keys.__dict__.values()
    }
    for name, foreign in RESOURCES.items():
        if foreign.whose == "HAMi" or name == "nvidia.com/gpu":
            assert told.pop(name) == [ours[foreign.senses]]
    for name, foreign in ANNOTATIONS.items():
        if foreign.whose == "HAMi":
            assert told.pop(name) == [foreign.key]
    same = {keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE, "huawei.com/Ascend…", "hami.io/…"}
    assert told == {name: [] for name in same}
