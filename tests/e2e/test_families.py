"""Every device family in local mode: a pod's life, and what goes wrong with plugins and cards.

The fake device plugins' books are the witness: they know nothing of the log, and count a card that
was oversold, an instance given twice, a card cut anew under a pod, and devices of another pod.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
import yaml

from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.model import Pod
from tests.e2e.audit import fold
from tests.e2e.stack import Json, Stack, vgpu
from tests.replaying import verify

NODES = """
- {name: hami, gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 4}}
- {name: mps, gpus: {model: NVIDIA L40S, count: 2, memory_mib: 46068, mode: mps}}
- name: mig
  gpus: {model: NVIDIA A100-SXM4-80GB, count: 2, memory_mib: 81920, slots: 7, mode: mig}
- {name: share, kind: gpushare, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}
- {name: npu, kind: ascend, npus: {chip: Ascend910B3, count: 4, memory_mib: 65536, networks: 2}}
- name: soft
  kind: ascend
  npus: {chip: Ascend310P, count: 2, memory_mib: 21527, cores: 8, soft: true}
- {name: cluster, kind: mindcluster, npus: {chip: Ascend310P, count: 2}}
"""
FAULT = "allotment.dev/fault"
MERGE = "application/merge-patch+json"
CONFIG = "/api/v1/namespaces/kube-system/configmaps/volcano-vgpu-device-config"
PODS = "/api/v1/namespaces/default/pods"
REPLICASETS = "/apis/apps/v1/namespaces/default/replicasets"


class Case(NamedTuple):
    """A family: its node, what a pod asks for, how its plugin answers."""

    node: str
    limits: Mapping[str, str]
    annotations: Mapping[str, str]
    done: tuple[str, str]
    """What the plugin leaves on the pod, as the beginning of an annotation's value."""
    failed: tuple[str, str] | None
    env: str


def mode(word: str) -> dict[str, str]:
    return {"volcano.sh/vgpu-mode": word}


VGPU_DONE = ("volcano.sh/bind-phase", "success")
VGPU_FAILED = ("volcano.sh/bind-phase", "failed")
HAMI_DONE = ("hami.io/bind-phase", "success")
HAMI_FAILED = ("hami.io/bind-phase", "failed")
TEMPLATE = {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "16000"}
SLICE = {
    "huawei.com/Ascend310P": "1",
    "huawei.com/Ascend310P-memory": "4000",
    "huawei.com/Ascend310P-core": "30",
}
CASES = {
    "hami-core": Case(
        "hami", vgpu(4000, 20), mode("hami-core"), VGPU_DONE, VGPU_FAILED, "CUDA_DEVICE_SM_LIMIT"
    ),
    "mps": Case(
        "mps",
        vgpu(4000, 20),
        mode("mps"),
        VGPU_DONE,
        VGPU_FAILED,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    ),
    "mig": Case("mig", vgpu(9000), mode("mig"), VGPU_DONE, VGPU_FAILED, "NVIDIA_VISIBLE_DEVICES"),
    "gpushare": Case(
        "share",
        {"volcano.sh/gpu-memory": "4000"},
        {},
        ("volcano.sh/gpu-assigned", "true"),
        None,
        "VOLCANO_GPU_ALLOCATED",
    ),
    "ascend-template": Case("npu", TEMPLATE, {}, HAMI_DONE, HAMI_FAILED, "ASCEND_VNPU_SPECS"),
    "ascend-soft": Case(
        "soft",
        SLICE,
        {"huawei.com/vnpu-mode": "hami-core"},
        HAMI_DONE,
        HAMI_FAILED,
        "NPU_MEM_QUOTA",
    ),
    "mindcluster": Case(
        "cluster",
        {"huawei.com/npu-core": "2"},
        {},
        ("huawei.com/AscendReal", "Ascend310P-2c"),
        None,
        "ASCEND_VNPU_SPECS",
    ),
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


class Cluster:
    """The stack that the tests of this file share."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def create(self, name: str, case: Case, **annotations: str) -> None:
        given = {**case.annotations, **annotations}
        self.stack.create_pod(name, case.limits, annotations=given)

    def phase(self, name: str) -> str:
        return str(self.stack.pod(name)["status"]["phase"])

    def runs(self, *names: str) -> None:
        for name in names:
            self.stack.until(lambda name=name: self.phase(name) == "Running", f"{name} runs")  # type: ignore[misc]

    def fails(self, name: str) -> None:
        self.stack.until(lambda: self.phase(name) == "Failed", f"{name} fails")

    def end(self, *names: str) -> None:
        for name in names:
            self.stack.delete_pod(name)
        there = [*names]
        self.stack.until(
            lambda: not {*there} & {p["metadata"]["name"] for p in self.stack.pods()},
            f"{', '.join(there)} are gone",
        )

    def fault(self, node: str, text: str | None) -> None:
        self.stack.patch_node(node, {"metadata": {"annotations": {FAULT: text}}})

    def lose(self, node: str, text: str) -> None:
        """A fault of a card, seen by the scheduler."""
        before = self.healthy(node)
        self.fault(node, text)
        self.stack.until(lambda: self.healthy(node) < before, f"{text} of {node} is in the log")

    def healthy(self, node: str) -> frozenset[str]:
        """The cards of a node that the log's newest fact calls healthy."""
        fact = fold(self.stack.records()).nodes[node].fact
        assert fact is not None
        return frozenset(
            card.id for inventory in fact.inventories for card in inventory.cards if card.healthy
        )

    def annotation(self, name: str, key: str) -> str:
        return str(self.stack.pod(name)["metadata"]["annotations"].get(key, ""))

    def env(self, name: str) -> dict[str, str]:
        """What the pod's only container was given."""
        found: dict[str, dict[str, str]] = json.loads(self.annotation(name, "allotment.dev/env"))
        [given] = found.values()
        return given

    def holders(self, node: str) -> dict[str, str]:
        """Pod → card, as the node's device plugins handed them out."""
        return {
            holder["pod"].partition("/")[2]: card["card"]
            for card in self.stack.books()["cards"]
            if card["node"] == node
            for holder in card["holders"]
        }

    def index_of(self, node: str, card: str) -> int:
        return next(
            int(found["index"])
            for found in self.stack.books()["cards"]
            if (found["node"], found["card"]) == (node, card)
        )

    def known(self, name: str) -> Pod:
        """The pod as the log tells of it."""
        state = fold(self.stack.records())
        return next(pod for pod in state.pods.values() if pod.fact.name == name)

    def configure(self, text: str) -> None:
        self.stack.call("PATCH", CONFIG, {"data": {"device-config.yaml": text}}, MERGE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("families"), NODES, configured=True) as stack:
        yield stack


@pytest.fixture
def cluster(running: Stack) -> Iterator[Cluster]:
    """Nobody is there before, and nobody is left; whatever happened, the books are in order."""
    cluster = Cluster(running)
    config = running.call("GET", CONFIG)["data"]["device-config.yaml"]
    yield cluster
    for node in ("hami", "mps", "mig", "share", "npu", "soft", "cluster"):
        cluster.fault(node, None)
    cluster.end(*(pod["metadata"]["name"] for pod in running.pods()))
    cluster.configure(config)
    running.until(lambda: not fold(running.records()).pods, "the log tells of no pod")
    books = running.books()
    assert {code: n for code, n in books["counts"].items() if n} == {}, books["incidents"]
    assert [card["card"] for card in books["cards"] if card["holders"]] == []
    state = fold(running.records())
    assert check(state) == []
    assert oversold(state) == []
    assert all(not node.allocations for node in state.nodes.values())
    report = verify(running.records())
    assert report.identical == report.decisions > 0, report.first_difference


@EVERY
def test_a_pods_life(cluster: Cluster, case: Case) -> None:
    """Placed, acknowledged, told its limits, released."""
    cluster.create("a", case)
    cluster.runs("a")
    assert cluster.stack.node_of("a") == case.node
    assert cluster.annotation("a", case.done[0]).startswith(case.done[1])
    assert case.env in cluster.env("a")
    card = cluster.holders(case.node)["a"]
    allocation = cluster.known("a").allocation
    assert allocation is not None
    assert [held.card for held in allocation.holdings] == [card]
    cluster.end("a")
    assert cluster.holders(case.node) == {}


@EVERY
def test_a_plugin_that_fails_fails_one_pod_only(cluster: Cluster, case: Case) -> None:
    cluster.create("unlucky", case, **{FAULT: "allocate-fails"})
    cluster.fails("unlucky")
    if case.failed is not None:
        assert cluster.annotation("unlucky", case.failed[0]) == case.failed[1]
    assert "UnexpectedAdmissionError" in cluster.stack.pod("unlucky")["status"]["reason"]
    cluster.create("a", case)
    cluster.create("b", case)
    cluster.runs("a", "b")
    assert set(cluster.holders(case.node)) == {"a", "b"}
    assert cluster.known("unlucky").allocation is None


@EVERY
@pytest.mark.parametrize("fault", ["card-unhealthy", "card-gone"])
def test_a_card_is_lost_under_a_running_pod(cluster: Cluster, case: Case, fault: str) -> None:
    """It is ill, or the plugin registers without it: its pod runs on, others go elsewhere."""
    if case.node == "share" and fault == "card-gone":
        pytest.skip("the older plugin tells only how many cards there are")
    cluster.create("a", case)
    cluster.create("a2", case)
    cluster.runs("a", "a2")
    (card,) = set(cluster.holders(case.node).values())
    cluster.lose(case.node, f"{fault}={cluster.index_of(case.node, card)}")
    cluster.create("b", case)
    cluster.runs("b")
    assert cluster.phase("a") == "Running"
    assert cluster.holders(case.node)["b"] != card
    cluster.end("a")
    cluster.fault(case.node, None)
    cluster.create("c", case)
    cluster.runs("c")


@pytest.mark.parametrize("name", ["hami-core", "mig", "ascend-template", "mindcluster"])
def test_an_owners_next_pod_avoids_the_card_that_failed(cluster: Cluster, name: str) -> None:
    case = CASES[name]
    for taken in ("taken", "too"):
        cluster.create(taken, case)
        cluster.runs(taken)
    (card,) = set(cluster.holders(case.node).values())
    cluster.fault(case.node, f"allocate-fails={cluster.index_of(case.node, card)}")
    owner = create_owner(cluster.stack)
    create_owned(cluster.stack, "first", case, owner)
    cluster.fails("first")
    create_owned(cluster.stack, "second", case, owner)
    cluster.runs("second")
    assert cluster.holders(case.node)["second"] != card


def create_owner(stack: Stack) -> Json:
    """A ReplicaSet, as the pods that it makes name it."""
    kind: Json = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    labels = {"app": "owned"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
    body = {**kind, "metadata": {"generateName": "owner-"}, "spec": spec}
    meta = stack.call("POST", REPLICASETS, body)["metadata"]
    return {**kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def create_owned(stack: Stack, name: str, case: Case, owner: Json) -> None:
    """A pod as a ReplicaSet makes it."""
    container = {"name": "main", "image": "i:1", "resources": {"limits": dict(case.limits)}}
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": dict(case.annotations),
            "ownerReferences": [owner],
        },
        "spec": {"schedulerName": "allotment", "containers": [container]},
    }
    stack.call("POST", PODS, body)


def test_a_card_is_cut_anew_only_when_it_is_empty(cluster: Cluster) -> None:
    """Geometry change under load: who needs another one waits until the last holder has gone."""
    stack = cluster.stack
    cluster.lose("mig", "card-unhealthy=1")
    for name in ("a", "b"):
        cluster.create(name, CASES["mig"])
    cluster.runs("a", "b")
    (card,) = set(cluster.holders("mig").values())
    cut = stack.books()["geometries"][f"mig/{card}"]
    stack.create_pod("whole", vgpu(80000), annotations=mode("mig"))
    stack.until(lambda: stack.refusal("whole") != "", "it is refused")
    cluster.end("a")
    cluster.create("c", CASES["mig"])
    cluster.runs("c")
    assert stack.node_of("whole") == ""
    assert stack.books()["geometries"][f"mig/{card}"] == cut
    cluster.end("b", "c")
    cluster.runs("whole")
    assert stack.books()["geometries"][f"mig/{card}"] == "group4" != cut
    assert len(cluster.env("whole")["NVIDIA_VISIBLE_DEVICES"].split(",")) == 1


def test_a_table_that_is_edited_under_load(cluster: Cluster) -> None:
    """Instances of a geometry that is no longer there are held on; the next ones are of the new."""
    stack, case = cluster.stack, CASES["mig"]
    cluster.create("old", case)
    cluster.runs("old")
    config = yaml.safe_load(stack.call("GET", CONFIG)["data"]["device-config.yaml"])
    halves = {"group": "halves", "geometries": [{"name": "3g.40gb", "memory": 40192, "count": 2}]}
    config["nvidia"]["knownMigGeometries"] = [
        {"models": ["A100-SXM4-80GB"], "allowedGeometries": [halves]}
    ]
    seq = fold(stack.records()).devices_seq
    cluster.configure(yaml.safe_dump(config))
    stack.until(lambda: fold(stack.records()).devices_seq > seq, "the configuration is told")
    stack.until(
        lambda: "halves" in str(fold(stack.records()).nodes["mig"].fact), "the node is read anew"
    )
    cluster.create("new", case)
    cluster.runs("new")
    holders = cluster.holders("mig")
    assert holders["new"] != holders["old"]
    assert "[halves-" in cluster.annotation("new", "volcano.sh/vgpu-ids-new")
    assert cluster.phase("old") == "Running"
    cluster.end("old")
    for name in ("b", "c", "d"):
        cluster.create(name, case)
    cluster.runs("b", "c", "d")


def test_two_chips_come_from_one_network(cluster: Cluster) -> None:
    stack = cluster.stack
    cluster.create("share", CASES["ascend-template"])
    cluster.runs("share")
    stack.create_pod("pair", {"huawei.com/Ascend910B3": "2"})
    cluster.runs("pair")
    chips = cluster.env("pair")["ASCEND_VISIBLE_DEVICES"].split(",")
    assert len({int(chip) // 2 for chip in chips}) == 1
    taken = int(cluster.env("share")["ASCEND_VISIBLE_DEVICES"])
    assert taken not in {int(chip) for chip in chips}


def test_resources_are_renamed_while_pods_run(cluster: Cluster) -> None:
    """Scheduler and plugins go by the new names; what was given under the old ones stays given."""
    stack, case = cluster.stack, CASES["hami-core"]
    cluster.create("old", case)
    cluster.runs("old")
    config = yaml.safe_load(stack.call("GET", CONFIG)["data"]["device-config.yaml"])
    config["nvidia"] |= {
        "resourceCountName": "nvidia.com/gpu",
        "resourceMemoryName": "nvidia.com/gpumem",
        "resourceCoreName": "nvidia.com/gpucores",
    }
    seq = fold(stack.records()).devices_seq
    cluster.configure(yaml.safe_dump(config))
    stack.until(lambda: fold(stack.records()).devices_seq > seq, "the configuration is told")
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "14000", "nvidia.com/gpucores": "10"}
    for name in ("a", "b"):
        stack.create_pod(name, limits, annotations=case.annotations)
    cluster.runs("old")
    stack.until(lambda: "Running" in (cluster.phase("a"), cluster.phase("b")), "one of them runs")
    (placed,) = cluster.holders("hami").keys() - {"old"}
    assert cluster.holders("hami")[placed] != cluster.holders("hami")["old"]
    assert cluster.env(placed)["CUDA_DEVICE_MEMORY_LIMIT_0"] == "14000m"
    (refused,) = {"a", "b"} - {placed}
    stack.until(lambda: stack.refusal(refused) != "", "the other one does not fit")
    cluster.end("old")
    cluster.runs(refused)
