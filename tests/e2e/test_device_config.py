"""The device configuration in ConfigMaps: taken up when it changes, left aside when broken."""

import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from allotment.core.explain.doctor import findings
from allotment_proto.codec import decode_envelope
from allotment_proto.events import DevicesConfigured, NodeObserved, PodObserved
from tests.e2e.audit import fold
from tests.e2e.stack import Json, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = "- {name: g, gpus: {model: Tesla T4, count: 1, memory_mib: 16000}}\n"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
NAME = "volcano-vgpu-device-config"
SCALED = """nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceCoreName: volcano.sh/vgpu-cores
  deviceMemoryScaling: {scaling}
  defaultMemory: {memory}
"""


def write(stack: Stack, text: str) -> None:
    """Make the ConfigMap, or change the one that the cluster came with."""
    metadata = {"name": NAME, "namespace": "kube-system"}
    data = {"device-config.yaml": text}
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    try:
        stack.call("PUT", f"{MAPS}/{NAME}", body)
    except HTTPError as error:
        if error.code != 404:
            raise
        stack.call("POST", MAPS, body)


def card_mib(stack: Stack) -> int:
    fact = fold(stack.records()).nodes["g"].fact
    assert fact is not None
    return fact.inventories[0].cards[0].memory_mib


def asks_mib(stack: Stack) -> int:
    (pod,) = fold(stack.records()).pods.values()
    return pod.fact.request.devices[0].memory_mib


def problems(stack: Stack) -> set[str]:
    """Labels of the nodes' problems, as the watcher's metrics tell them."""
    with urlopen(f"http://{stack.processes['watcher'].announced['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0] for line in lines if line.startswith("allot_node_device_problems{")}


def told(stack: Stack, kind: type) -> int:
    events = [e for r in stack.records() for e in decode_envelope(r.payload).events]
    return sum(isinstance(event, kind) for event in events)


def test_a_change_is_an_event_and_reads_nodes_and_pods_again(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES, services=("watcher",)) as stack:
        stack.create_pod("a", vgpu())
        stack.until(lambda: told(stack, PodObserved) == 1, "the pod is told")
        assert fold(stack.records()).devices_seq > 0
        assert (card_mib(stack), asks_mib(stack)) == (16000, 0)
        write(stack, SCALED.format(scaling=2, memory=500))
        stack.until(lambda: card_mib(stack) == 32000, "the node is read again")
        stack.until(lambda: asks_mib(stack) == 500, "the pod is read again")
        mismatch = 'allot_node_device_problems{code="DeviceConfigMismatch",node="g"}'
        # kubelet lists what was registered, not twice that
        stack.until(lambda: problems(stack) == {mismatch}, "the node's problem is counted")
        seq = len(stack.records())

        write(stack, "nvidia: [broken")
        stack.until(
            lambda: stack.metric("watcher", "allot_device_config_problems") == 1, "it is counted"
        )
        said = stack.processes["watcher"].log_path.read_text()
        assert "device configuration not loaded; the old one stays active" in said
        assert "ConfigMap kube-system/volcano-vgpu-device-config" in said
        assert stack.is_ready("watcher")
        stack.until(lambda: len(stack.records()) == seq + 1, "the refusal is in the log")
        found, _ = findings(fold(stack.records()), 0)  # and the node's problem
        assert (found.severity, found.code) == ("error", "InvalidDeviceConfig")
        assert found.subject == f"device configuration ConfigMap kube-system/{NAME}"
        assert "stays active" in found.remedy

        stack.kill("watcher")
        stack.start("watcher")  # broken still: what the log says stays in force
        time.sleep(0.5)
        assert len(stack.records()) == seq + 1
        assert stack.metric("watcher", "allot_device_config_problems") == 1

        stack.call("DELETE", f"{MAPS}/{NAME}")
        stack.until(lambda: card_mib(stack) == 16000, "what is built in is in force again")
        stack.until(lambda: asks_mib(stack) == 0, "for pods, too")
        assert stack.metric("watcher", "allot_device_config_problems") == 0
        assert not findings(fold(stack.records()), 0)
        stack.until(lambda: not problems(stack), "the node has no problem any more")
        assert (told(stack, DevicesConfigured), told(stack, NodeObserved)) == (3, 3)


def test_files_stand_in_for_the_config_maps(tmp_path: Path) -> None:
    devices, nodes = tmp_path / "device-config.yaml", tmp_path / "config.json"
    devices.write_text(SCALED.format(scaling=2, memory=0))
    nodes.write_text('{"nodeconfig": [{"name": "g", "devicememoryscaling": 3}]}')
    files = ["--device-config-file", str(devices), "--node-config-file", str(nodes)]
    with Stack(tmp_path, NODES, services=("watcher",), options={"watcher": files}) as stack:
        stack.until(lambda: told(stack, NodeObserved) == 1, "the node is told")
        assert card_mib(stack) == 48000
        nodes.write_text("{}")
        stack.until(lambda: card_mib(stack) == 32000, "the change is picked up")
        devices.write_text("vnpus: 7")
        stack.until(
            lambda: stack.metric("watcher", "allot_device_config_problems") == 1, "it is counted"
        )
        assert card_mib(stack) == 32000
        stack.kill("watcher")
        watcher = stack.start("watcher", wait=False)
        assert watcher.wait(PATIENCE_S) == 2
        assert f"{devices}: vnpus is 7" in watcher.log_path.read_text()
