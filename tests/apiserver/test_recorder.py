"""The recorder next to another scheduler: it shows what that one does, and changes no pod."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import anyio
import pytest
from tests.apiserver.servers import (
    NODES,
    SPACE,
    Api,
    Json,
    KubeApiserver,
    Right,
    add_nodes,
    asked_of,
    done,
    until_it,
)
from tests.contract.manifests import ROOT, needs_kubectl, of_kind, rendered
from tests.e2e.stack import Process
from tests.waiting import patience

from allotment.adapters.log.nats_server import NatsServer
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys
from allotment_proto.volcano.vgpu import binding_annotations, decode_register

pytestmark = [pytest.mark.anyio, needs_kubectl]
OVERLAY = "deploy/overlays/recorder"
OTHER = "volcano"
SHARE = {"limits": {keys.VGPU_NUMBER: "1", keys.VGPU_MEMORY: "4000"}}
NOT_GRANTED = ("watcher", "list", "", "configmaps")
"""MindCluster's, as in the base: deploy/base/watcher-mindcluster.yaml grants it."""
CONTAINERS = [{"name": "c", "image": "i:1", "resources": SHARE}]


@pytest.fixture(params=["local mode", "kube-apiserver"])
def server(request: pytest.FixtureRequest) -> KubeApiserver | None:
    """One of this test's own: all its pods are recorded. None: local mode's."""
    if request.param == "local mode":
        return None
    found: KubeApiserver = request.getfixturevalue("own")
    return found


def granted() -> set[Right]:
    """Every right in the whole cluster, and in the namespace of the release."""
    return {
        (role["metadata"]["name"].removeprefix("allotment-"), verb, group, resource)
        for role in of_kind(OVERLAY, "Role", "ClusterRole")
        for rule in role["rules"]
        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def test_no_account_may_write_outside_the_namespace() -> None:
    (role,) = of_kind(OVERLAY, "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert not of_kind(OVERLAY, "ValidatingAdmissionPolicy", "CustomResourceDefinition")
    names = {found["metadata"]["name"] for found in of_kind(OVERLAY, "Deployment")}
    assert names == {"allotment-watcher", "allotment-inspector"}
    subjects = {
        subject["name"] for found in rendered(OVERLAY) for subject in found.get("subjects", ())
    }
    assert subjects == {"allotment-watcher", "allotment-nats-setup"}


async def test_it_records_what_another_scheduler_places(api: Api, tmp_path: Path) -> None:
    await api.kubectl("apply", "-k", str(ROOT / OVERLAY))
    await add_nodes(api)
    found = [each["metadata"] for each in (await api.read(NODES))["items"]]
    node = next(each for each in found if keys.NODE_VGPU_REGISTER in each.get("annotations", {}))
    card = decode_register(node["annotations"][keys.NODE_VGPU_REGISTER]).cards[0]
    name = node["name"]
    for each in ("placed", "waits"):
        await api.pod(each, schedulerName=OTHER, containers=CONTAINERS)
    uid = (await api.read(api.at("pods", "placed")))["metadata"]["uid"]
    record = binding_annotations(name, (Holding("vgpu", 0, card.id, 4000, 0),), 1, 1)
    done(await api.client.bind(api.namespace, "placed", uid, name, record))
    before = await _pods(api)
    token = await api.token("allotment-watcher", SPACE) if api.real else None
    with _recorder(tmp_path, api.kubeconfig("watcher", token)) as url:
        await until_it(lambda: _shows(api, url))
        told = await _asked(url, "doctor")
        codes = {finding["code"] for finding in told["findings"]}
        assert not codes & {"NobodyActive", "OtherScheduler", "AssignmentsUnguarded"}, told
        why = await _asked(url, "explain", "pod", f"{api.namespace}/waits")
        assert "Allotment only records here" in why["status"]["why"]
    assert await _pods(api) == before
    if api.real is not None:
        assert api.real.audit is not None
        asked = asked_of(api.real.audit)
        assert {each for each, codes in asked.items() if codes & {401, 403}} <= {NOT_GRANTED}
        of_pods = {verb for _, verb, _, resource in asked if resource.partition("/")[0] == "pods"}
        assert of_pods == {"list", "watch"}
        assert asked.keys() <= granted()


@contextlib.contextmanager
def _recorder(directory: Path, config: Path) -> Iterator[str]:
    """The watcher as the overlay starts it; the address of its NATS."""
    (watcher,) = (
        found
        for found in of_kind(OVERLAY, "Deployment")
        if found["metadata"]["name"] == "allotment-watcher"
    )
    (container,) = watcher["spec"]["template"]["spec"]["containers"]
    (names,) = (one for one in container["env"] if one["name"] == "ALLOT_SCHEDULER_NAMES")
    with NatsServer(directory / "nats") as nats:
        command = ["allotment_watcher", "--nats-url", nats.url, "--kubeconfig", str(config)]
        command += [f"--scheduler-names={names['value']}"]
        process = Process("watcher", command, directory)
        try:
            process.announce()
            yield nats.url
        finally:
            process.kill()


async def _pods(api: Api) -> dict[str, str]:
    """The version of every pod."""
    items = (await api.read("/api/v1/pods"))["items"]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items}


async def _shows(api: Api, url: str) -> bool:
    """Whether both pods are in the log, with the card that the other scheduler gave the first."""
    rows = {row["name"]: row for row in (await _asked(url, "get", "pods", "-A")).get("items", ())}
    if rows.keys() != {"placed", "waits"}:
        return False
    placed, waits = rows["placed"], rows["waits"]
    assert (waits["cause"], waits["cards"]) == ("NotOurs", [])
    return len(placed["cards"]) == 1 and placed["memoryBytes"] == 4000 << 20


async def _asked(url: str, *words: str) -> Json:
    """What `allot … -o json` prints; nothing before there is a log."""
    command = [sys.executable, "-m", "allotment_cli.main", *words, "--nats", url, "-o", "json"]
    with patience():
        ended = await anyio.run_process(command, check=False, env=dict(os.environ))
    return dict(json.loads(ended.stdout or b"{}"))
