"""What `allot simulate` warns of before it runs, and what it says of files that it cannot read."""

from pathlib import Path

import pytest

from allotment_lab.simulate.policies import choose
from tests.simulating import NODES, PODS, TEXT, simulate

MEMORY = "volcano.sh/vgpu-memory: 8000"
TOLERANT = """
actions: allocate
tiers:
- plugins:
  - name: deviceshare
  - name: predicates
    arguments: {predicate.TaintTolerationEnable: false}
"""


def warnings_of(text: str, tmp_path: Path, *more: str) -> list[str]:
    path = tmp_path / "w.yaml"
    path.write_text(text.replace("100h", "1h"))
    said = simulate("--workload", str(path), "--json", *more).stderr.splitlines()
    return [line.removeprefix("warning: ") for line in said if line.startswith("warning: ")]


def test_a_misspelt_column_is_told_with_the_nearest(trace: list[str], tmp_path: Path) -> None:
    assert "warning" not in simulate(*trace).stderr
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES.replace("model\n", "model,zone\n").replace("A\n", "A,x\n"))
    nodes.write_text(nodes.read_text().replace("B\n", "B,x\n"))
    pods.write_text(PODS.replace("gpu_spec", "gpu_specs", 1))
    assert simulate(*trace).stderr.splitlines() == [
        f"warning: {nodes}:1: column 'zone' is not known and not read; "
        "known are sn, cpu_milli, memory_mib, gpu, model",
        f"warning: {pods}:1: column 'gpu_specs' is not known and not read; did you mean gpu_spec?",
    ]


def test_a_resource_that_no_node_has_is_told_with_the_nearest(tmp_path: Path) -> None:
    assert warnings_of(TEXT, tmp_path) == []
    text = TEXT.replace(MEMORY, "volcano.sh/vgpu-mem: 8000").replace("memory: 1Gi", "memry: 1Gi")
    assert warnings_of(text, tmp_path, "--policy", "spread", "--policy", "none") == [
        "pods[0] train: no node has volcano.sh/vgpu-mem; did you mean volcano.sh/vgpu-memory?",
        "pods[1] serve: no node has memry; did you mean memory?",
    ]
    assert warnings_of(TEXT.replace("memory: 1Gi", "example.com/x: 0"), tmp_path) == []


@pytest.mark.parametrize(
    ("find", "put", "why"),
    [
        (
            MEMORY,
            "volcano.sh/vgpu-memory: 8Gi",
            "InsufficientGPUMemory, no suitable card has enough free memory: "
            "it asks for 8,589,934,592 MiB of a card",
        ),
        (
            "use-gputype: A100}",
            "use-gputype: T4}",
            "GPUModelMismatch, no card has a model that the pod accepts",
        ),
        ("{cpu: 4,", "{cpu: 400,", "InsufficientCPU, not enough free CPU on the node"),
    ],
)
def test_a_pod_that_no_empty_node_holds_is_told_once(
    find: str, put: str, why: str, tmp_path: Path
) -> None:
    found = warnings_of(TEXT.replace(find, put), tmp_path, "--policy", "spread", "--policy", "none")
    assert found == [f"pods[0] train: no node could hold even one when empty; last obstacle: {why}"]


def test_what_fits_is_asked_of_the_policies_that_are_run(tmp_path: Path) -> None:
    text = TEXT.replace("count: 2\n", "count: 2\n    taints: [{key: gpu}]\n")
    assert "TaintNotTolerated" in warnings_of(text, tmp_path)[0]
    (tmp_path / "tolerant.conf").write_text(TOLERANT)
    assert warnings_of(text, tmp_path, "--policy", str(tmp_path / "tolerant.conf")) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PODS.replace("p7,", "pé,").encode("latin-1"), ":9: not UTF-8: byte 0xe9 is no part of it"),
        (PODS.encode("utf-16"), ":1: not UTF-8: it begins as UTF-16 does"),
        (PODS.encode("utf-16-le"), ":1: not UTF-8: there is a character U+0000"),
    ],
)
def test_another_encoding_is_told_with_its_line(
    content: bytes, said: str, trace: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "pods.csv"
    path.write_bytes(content)
    for arguments in (trace, ["--workload", str(path)]):
        assert simulate(*arguments, code=2).stderr.splitlines() == [
            f"allot: {path}{said}",
            "allot: save the file as UTF-8",
        ]
    path.write_text(PODS)
    other = tmp_path / "scheduler.conf"
    other.write_bytes(content)
    assert f"{other}{said}" in simulate(*trace, "--policy", str(other), code=2).stderr


def test_the_recorded_policy_is_named_where_policies_are(trace: list[str]) -> None:
    word = "recorded (that of a log, with --file)"
    assert word in " ".join(simulate("--help").stdout.split())
    assert word in simulate(*trace, "--policy", "bst", code=2).stderr
    said = simulate(*trace, "--policy", "recorded", code=2).stderr.splitlines()
    assert said == ["allot: --policy recorded is that of a log", "allot: give --file"]
    recorded = choose(("spread",), None, print)[0].policy
    assert choose(("recorded",), recorded, print)[0].policy == recorded
