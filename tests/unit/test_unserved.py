"""What nobody offers of what a pod asks for is said with the line or the name that would help."""

import json
from typing import Any

import pytest

from allotment.core.config.policy import parse
from allotment.core.explain.causes.nodes import node_steps
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import findings
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.vgpu_nodes import registered
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.placement.unserved import unserved
from allotment.core.reasons import main_cause, shown_cause
from allotment_binder.causes import told
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_proto.device_config import DeviceConfig, Nvidia
from allotment_proto.events import DevicesConfigured, NodeObserved, PolicyLoaded
from allotment_proto.facts import Inventory, PodRequest, Policy, Problem
from allotment_proto.volcano import device_config, keys
from allotment_watcher import objects
from allotment_watcher.normalise import pod_fact
from tests import build, chips

VGPU_ONLY = """tiers:
- plugins:
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
"""


def loaded(text: str) -> PolicyLoaded:
    policy = parse(text, "conf", ("allotment",)).policy
    return PolicyLoaded(policy=policy, source="ConfigMap a/b", text_sha256="")


def shared(name: str = "share") -> NodeObserved:
    """A node whose cards are shared by memory or number."""
    cards = (build.card(0, mode=""),)
    return build.node(name, inventories=(Inventory("gpushare", "", cards),))


def gpu(memory_mib: int = 0, family: str = "gpushare") -> PodRequest:
    return build.request(build.wants(memory_mib, 100, family=family))


@pytest.mark.parametrize(
    ("on", "asked", "switch", "asks_for", "instead"),
    [
        ("VGPUEnable", gpu(), "GPUNumberEnable", "volcano.sh/gpu-number", "VGPUEnable"),
        ("VGPUEnable", gpu(4_000), "GPUSharingEnable", "volcano.sh/gpu-memory", "VGPUEnable"),
        ("GPUNumberEnable", gpu(4_000, "vgpu"), "VGPUEnable", "vgpu", "GPUNumberEnable"),
        ("VGPUEnable", gpu(0, "ascend"), "AscendHAMiVNPUEnable", "ascend", ""),
        ("VGPUEnable", gpu(0, "mindcluster"), "AscendMindClusterVNPUEnable", "mindcluster", ""),
    ],
)
def test_a_family_that_is_switched_off_is_said_with_its_line(
    on: str, asked: PodRequest, switch: str, asks_for: str, instead: str
) -> None:
    text = VGPU_ONLY.replace("VGPUEnable", on)
    pod = build.pod("a", asked)
    state = build.state_of(loaded(text), shared(), pod)
    (said,) = unserved(state, asked)
    assert said.startswith(
        f"deviceshare.{switch} is not set in the scheduler configuration (ConfigMap a/b), so "
        f"{asks_for} is not served: write deviceshare.{switch}: true under the arguments"
    )
    assert ("in place of" in said) is bool(instead)
    assert instead in said
    refused = Refused(pod.uid, pod.namespace, pod.name, "0/1 nodes are available: 1 NoGPU.", True)
    assert f"{said}." in told(state, Whys(state), refused, Readers())
    (found,) = [one for one in findings(state, 0) if one.code == "NotOffered"]
    assert (found.subject, found.message) == ("pod default/pod-a", said)


def test_the_line_that_is_said_is_a_line_that_works() -> None:
    text = VGPU_ONLY.replace("VGPUEnable", "GPUNumberEnable")
    assert unserved(build.state_of(loaded(text), shared()), gpu()) == ()


def test_a_node_does_not_answer_no_gpu_while_every_step_fits() -> None:
    state = build.state_of(loaded(VGPU_ONLY), shared())
    steps = node_steps(state, state.nodes["share"], gpu(), build.pod("a", gpu()))
    assert steps.verdict == "NoGPU"
    (step,) = [one for one in steps.host if one.verdict != "fits"]
    assert step.detail == "deviceshare.GPUNumberEnable is not set: gpushare is not served"
    assert [card.verdict for card in steps.cards] == ["NoGPU"]
    none = node_steps(
        build.state_of(build.node("n", 0)),
        build.state_of(build.node("n", 0)).nodes["n"],
        gpu(),
        build.pod("a", gpu()),
    )
    assert [one.detail for one in none.host if one.verdict != "fits"] == ["has no gpushare devices"]


def offering(*names: str) -> ClusterState:
    return build.state_of(build.node("n1", 0, extended=tuple((name, 4) for name in names)))


@pytest.mark.parametrize(
    ("asked", "offered", "said"),
    [
        (
            "huawei.com/ascend910b3",
            "huawei.com/Ascend910B3",
            "no node offers huawei.com/ascend910b3; did you mean huawei.com/Ascend910B3?",
        ),
        ("nvidia.com/gpus", "nvidia.com/gpu", "did you mean nvidia.com/gpu?"),
        ("example.com/fpga", "nvidia.com/gpu", "no node offers example.com/fpga"),
        ("nvidia.com/gpu", "nvidia.com/gpu", ""),
    ],
)
def test_a_resource_that_nobody_offers_is_said_with_the_nearest(
    asked: str, offered: str, said: str
) -> None:
    found = unserved(offering(offered), PodRequest(extended=((asked, 1),)))
    assert len(found) == bool(said)
    assert "".join(found).endswith(said)


def test_names_that_no_node_lists_are_known_from_the_configuration() -> None:
    configured = DevicesConfigured(config=chips.CONFIG, source="c", text_sha256="")
    asked = PodRequest(extended=(("huawei.com/ascend310p-memory", 1),))
    (said,) = unserved(build.state_of(configured, build.node("n1", 0)), asked)
    assert said == (
        "no node offers huawei.com/ascend310p-memory; the device configuration has "
        "huawei.com/Ascend310P-memory, which no node offers either"
    )
    inventory = chips.inventory("ascend", chips.ascend_source(chips.entry("d1")))
    node = build.node("n2", 0, inventories=(inventory,))
    (said,) = unserved(build.state_of(configured, node), asked)
    assert said.endswith("did you mean huawei.com/Ascend310P-memory?")


LOWER = """vnpus:
- commonWord: Ascend310P
  chipName: 310P3
  resourceName: huawei.com/ascend310p
  resourceMemoryName: huawei.com/ascend310p-memory
  memoryAllocatable: 21527
  memoryCapacity: 24576
  aiCore: 8
  aiCPU: 7
  templates:
  - {name: vir01, memory: 3072, aiCore: 1, aiCPU: 1}
"""


def test_names_of_the_configuration_decide_also_in_lower_case() -> None:
    config = device_config.parse(LOWER, "text").config
    assert config is not None
    names = FAMILIES["ascend"].resources(config)
    assert names == {"huawei.com/ascend310p" + end for end in ("", "-memory", "-core")}
    register = json.dumps([chips.entry("d1")])
    labels = {keys.hami_register("Ascend310P"): register}
    listed = {"huawei.com/ascend310p": "7"}
    found = chips.inventory(
        "ascend",
        chips.ascend_source(config=config)._replace(
            annotations=labels, allocatable=listed, capacity=listed
        ),
    )
    node = build.node("n1", 0, inventories=(found,), extended=tuple((n, 7) for n in listed))
    configured = DevicesConfigured(config=config, source="c", text_sha256="")
    state = build.state_of(configured, node)
    for case, served in ((str.lower, True), (str, False)):
        limits: dict[str, str | int | float] = {
            case("huawei.com/Ascend310P"): "1",
            case("huawei.com/Ascend310P-memory"): "3072",
        }
        container = objects.Container(name="c", resources=objects.Resources(limits=limits))
        pod = objects.PodObject(
            metadata=objects.Meta(uid="a", name="a", namespace="d"),
            spec=objects.PodSpec(scheduler_name="allotment", containers=[container]),
        )
        request = pod_fact(pod, Policy(), config).request
        assert isinstance(fits(state.nodes["n1"], request, Policy()), Fit) is served
        assert unserved(state, request) == (
            ()
            if served
            else tuple(
                f"no node offers {name}; did you mean {name.lower()}?" for name in sorted(limits)
            )
        )


HALF = {"volcano.sh/vgpu-number": "40", "volcano.sh/vgpu-memory": "64000"}


def vgpu_source(allocatable: dict[str, str], config: DeviceConfig, **annotations: str) -> Any:
    source = chips.ascend_source()
    return source._replace(allocatable=allocatable, config=config, annotations=annotations)


def test_a_half_deployed_device_plugin_is_said() -> None:
    nvidia = Nvidia(count_name=keys.VGPU_NUMBER, memory_name=keys.VGPU_MEMORY)
    inventory, (problem,) = registered("vgpu", vgpu_source(HALF, DeviceConfig(nvidia=nvidia)))
    assert inventory is None
    assert problem.code == "NotRegistered"
    assert "kubelet lists volcano.sh/vgpu-number, volcano.sh/vgpu-memory" in problem.message
    whole = Nvidia(count_name="nvidia.com/gpu", memory_name="nvidia.com/gpumem")
    listed = {"nvidia.com/gpu": "8"}  # by NVIDIA's own plugin, for whole cards
    assert registered("vgpu", vgpu_source(listed, DeviceConfig(nvidia=whole))) == (None, ())
    none = dict.fromkeys(HALF, "0")
    assert registered("vgpu", vgpu_source(none, DeviceConfig(nvidia=nvidia))) == (None, ())
    state = build.state_of(build.node("n1", 0, problems=(problem,)), build.pod("a"))
    node, pod = sorted(findings(state, 0), key=lambda one: one.subject)
    assert (node.severity, node.code) == ("error", "NotRegistered")
    assert "no node has vgpu devices; node n1: NotRegistered: annotation" in pod.message


def test_a_family_that_the_policy_does_not_serve_is_not_warned_of() -> None:
    problem = Problem("BrokenNpuNode", "device information", "is missing")
    node = build.node("n1", 0, problems=(problem,))
    assert findings(build.state_of(loaded(VGPU_ONLY), node), 0) == []
    (found,) = findings(build.state_of(node), 0)
    assert found.code == "BrokenNpuNode"


def test_nodes_that_the_pod_excludes_are_no_cause_beside_one_that_it_accepts() -> None:
    counted = (("SelectorMismatch", 10), ("NoGPU", 1))
    assert (main_cause(counted), shown_cause(counted)) == ("SelectorMismatch", "NoGPU")
    assert shown_cause((("AffinityMismatch", 10), ("InsufficientCPU", 1))) == "InsufficientCPU"
    assert shown_cause((("SelectorMismatch", 10), ("TaintNotTolerated", 1))) == "SelectorMismatch"
    assert shown_cause((("SelectorMismatch", 3),)) == "SelectorMismatch"
    assert shown_cause(()) == "NoNodes"


def test_where_a_configuration_was_read_outlives_a_snapshot() -> None:
    state = build.state_of(loaded(VGPU_ONLY))
    restored = snapshot.decode(snapshot.encode(state))
    assert restored.config_sources == {"scheduler": "ConfigMap a/b"}
