"""Pods on shared cards through the four services as processes: what users see, kind by kind."""

import statistics
import time
from collections.abc import Iterator

import pytest

from tests.e2e.audit import assert_sound, held
from tests.e2e.stack import LAYOUTS, Json, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- name: v
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 32
  memory: 128Gi
- name: w
  kind: whole
  gpus: {model: H100, count: 2, memory_mib: 80000}
- name: s
  kind: gpushare
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000}
"""
TOTAL = 3
SIX = (
    "volcano.sh/vgpu-node",
    "volcano.sh/vgpu-time",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/bind-phase",
    "volcano.sh/bind-time",
)


@pytest.fixture(scope="module", params=LAYOUTS)
def stack(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("scheduling")
    with Stack(directory, NODES, services=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def _leave_it_empty(stack: Stack) -> Iterator[None]:
    yield
    stack.leave_empty()


def bind(stack: Stack, *names: str) -> None:
    stack.until(lambda: set(names) <= stack.bound(), f"{', '.join(names)} bound")


def annotations(pod: Json) -> dict[str, str]:
    return dict(pod["metadata"]["annotations"])


def running(stack: Stack, name: str) -> bool:
    return str(stack.pod(name)["status"].get("phase")) == "Running"


def test_a_bound_pod_carries_the_annotations_and_runs(stack: Stack) -> None:
    stack.create_pod("one", vgpu(3000, 50))
    stack.until(lambda: running(stack, "one"), "it runs")
    pod = stack.pod("one")
    found = annotations(pod)
    assert set(SIX) <= set(found)
    assert pod["spec"]["nodeName"] == found["volcano.sh/vgpu-node"] == "v"
    assert found["volcano.sh/bind-phase"] == "success"
    assert int(found["allotment.dev/log-seq"]) > 0
    assert [(share[1], share[2]) for share in held(pod)] == [(3000, 50)]
    stack.until(lambda: len(stack.events("one", "Scheduled")) == 1, "Scheduled was told")
    assert stack.events("one", "Scheduled") == ["Successfully assigned default/one to v"]
    assert stack.refusal("one") == ""
    assert_sound(stack)


def test_two_share_a_card_a_third_waits_and_is_bound_when_one_ends(stack: Stack) -> None:
    stack.create_pod("other-card", vgpu(cores=100))
    bind(stack, "other-card")
    stack.create_pod("a", vgpu(8000, 50))
    stack.create_pod("b", vgpu(8000, 50))
    bind(stack, "a", "b")
    assert held(stack.pod("a"))[0][0] == held(stack.pod("b"))[0][0]
    stack.create_pod("c", vgpu(8000, 50))
    stack.until(lambda: stack.refusal("c") != "", "c was refused")
    told = stack.refusal("c")
    assert told.startswith("InsufficientGPUMemory: not enough "), told
    assert "7.8 GiB requested" in told
    assert "in use by default/" in told
    assert f". 0/{TOTAL} nodes are available: 2 NoGPU, 1 InsufficientGPUMemory." in told
    assert told.endswith(" Ask: allot explain pod default/c")
    stack.until(lambda: len(stack.events("c", "FailedScheduling")) == 1, "the event was told")
    time.sleep(1.0)
    assert stack.events("c", "FailedScheduling") == [stack.refusal("c")]
    assert stack.node_of("c") == ""
    stack.delete_pod("a")
    bind(stack, "c")
    assert len(stack.events("c", "FailedScheduling")) == 1
    assert_sound(stack)


def test_a_pod_that_ends_by_itself_frees_its_card(stack: Stack) -> None:
    lasting = {"allotment.dev/run-duration": "500ms"}
    stack.create_pod("short", vgpu(number=2), annotations=lasting)
    bind(stack, "short")
    stack.create_pod("next", vgpu(number=2))
    bind(stack, "next")
    assert stack.pod("short")["status"]["phase"] == "Succeeded"
    assert_sound(stack)


def test_shared_memory_whole_numbers_and_whole_cards(stack: Stack) -> None:
    stack.create_pod("m1", {"volcano.sh/gpu-memory": "4096"})
    stack.create_pod("m2", {"volcano.sh/gpu-memory": "4096"})
    stack.create_pod("n1", {"volcano.sh/gpu-number": "1"})
    stack.create_pod("x", {"nvidia.com/gpu": "2"})
    bind(stack, "m1", "m2", "n1", "x")
    stack.until(lambda: all(running(stack, n) for n in ("m1", "m2", "n1", "x")), "all run")
    index = {n: annotations(stack.pod(n))["volcano.sh/gpu-index"] for n in ("m1", "m2", "n1")}
    assert index["m1"] == index["m2"] != index["n1"]
    assert stack.node_of("x") == "w"
    stack.create_pod("y", {"nvidia.com/gpu": "1"})
    stack.until(lambda: "NotEnoughGPUsOnNode" in stack.refusal("y"), "y was refused")
    assert_sound(stack)


def test_invalid_pods_are_told_why_and_hold_nobody_up(stack: Stack) -> None:
    main = {"name": "main", "image": "i:1", "resources": {"limits": vgpu(1000)}}
    stack.create_pod("memory-only", {"volcano.sh/vgpu-memory": "3000"})
    stack.create_pod("two", {}, containers=[main, {**main, "name": "side"}])
    stack.create_pod("mode", vgpu(1000), annotations={"volcano.sh/vgpu-mode": "magic"})
    stack.create_pod("absurd", vgpu(1000, number=1000))
    stack.create_pod("fine", vgpu(1000), scheduler="volcano")
    bind(stack, "fine")
    wanted = {
        "memory-only": "given without volcano.sh/vgpu-number",
        "two": "only one such container",
        "mode": "'magic'; wanted: hami-core",
        "absurd": "is 1000; at most",
    }
    for name, words in wanted.items():
        stack.until(lambda name=name, words=words: words in stack.refusal(name), name)  # type: ignore[misc]
        stack.until(lambda name=name: len(stack.events(name, "FailedScheduling")) == 1, name)  # type: ignore[misc]
    assert stack.bound() == {"fine"}
    assert_sound(stack)


def test_pods_of_other_schedulers_are_left_alone_and_counted(stack: Stack) -> None:
    stack.create_pod("theirs", vgpu(1000), scheduler="default-scheduler")
    stack.create_pod("ours", vgpu(1000))
    bind(stack, "ours")
    time.sleep(0.3)
    assert stack.node_of("theirs") == ""
    assert stack.refusal("theirs") == ""


def test_a_node_whose_register_string_breaks_takes_nothing_and_the_others_go_on(
    stack: Stack,
) -> None:
    key = "volcano.sh/node-vgpu-register"
    good = annotations(stack.call("GET", "/api/v1/nodes/v"))[key]
    stack.patch_node("v", {"metadata": {"annotations": {key: "GPU-0,10,broken"}}})
    try:
        stack.create_pod("v1", vgpu(1000))
        stack.create_pod("s1", {"volcano.sh/gpu-memory": "1000"})
        bind(stack, "s1")
        stack.until(lambda: "NoGPU" in stack.refusal("v1"), "no node takes v1")
    finally:
        stack.patch_node("v", {"metadata": {"annotations": {key: good}}})
    bind(stack, "v1")
    assert_sound(stack)


def test_time_from_creation_to_bound(stack: Stack) -> None:
    """Printed, not asserted: it says something about this machine."""
    took_s = []
    for number in range(20):
        begin = time.monotonic()
        stack.create_pod(f"t{number}", vgpu(100, 1))
        while not stack.node_of(f"t{number}"):
            assert time.monotonic() - begin < PATIENCE_S
            time.sleep(0.001)
        took_s.append(time.monotonic() - begin)
        stack.delete_pod(f"t{number}")
    median_ms = statistics.median(took_s) * 1000
    print(f"\ncreation to bound, median of 20: {median_ms:.1f} ms, max {max(took_s) * 1000:.1f} ms")
