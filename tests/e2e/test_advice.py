"""On a running cluster: what waiting pods are told would make them fit does so when it is done."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from allotment_cli.main import main
from tests.e2e.stack import Stack, vgpu

NODES = """\
- {name: small, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}, cpu: 64, memory: 256Gi}
- {name: kept, gpus: {model: Tesla A100, count: 1, memory_mib: 40000}, cpu: 64, memory: 256Gi,
   taints: [{key: dedicated, value: serving, effect: NoSchedule}]}
"""
TOLERATION = {
    "key": "dedicated",
    "operator": "Equal",
    "value": "serving",
    "effect": "NoSchedule",
}


def allot(stack: Stack, *arguments: str, stdin: str = "") -> Any:
    words = [*arguments, "--nats", stack.nats.url, "-o", "json"]
    result = CliRunner().invoke(main, words, input=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def changes(found: Any) -> dict[str, Any]:
    return {each["text"]: each["change"] for each in found["counterfactuals"]}


def test_what_is_advised_helps_when_it_is_done(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("big", vgpu(30_000, 10))
        stack.create_pod("typo", {"volcano.sh/vgpu-numbre": "1"})
        stack.create_pod("never", vgpu(99_000, 10))
        names = ("big", "typo", "never")
        stack.until(lambda: all(map(stack.refusal, names)), "all three are refused")

        big = allot(stack, "explain", "pod", "big")
        offered = changes(big)
        change = offered["tolerate dedicated=serving:NoSchedule"]
        line = "- {key: dedicated, operator: Equal, value: serving, effect: NoSchedule}"
        path = "/spec/tolerations/-"
        assert change == {"op": "add", "path": path, "value": TOLERATION, "line": line}
        assert "ask for 15.6 GiB of card memory, 13.7 GiB less" in offered
        assert any("dedicated=serving:NoSchedule" in lack["text"] for lack in big["lacks"])

        typo = " ".join(allot(stack, "explain", "pod", "typo")["status"]["why"].split())
        assert "no node offers volcano.sh/vgpu-numbre; did you mean volcano.sh/vgpu-number?" in typo

        never = allot(stack, "explain", "pod", "never")
        assert never["status"]["fitsEmptyCluster"] is False
        assert "waitingFor" not in never
        assert "ask for 15.6 GiB of card memory, 81.1 GiB less" in changes(never)

        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "tolerant"},
            "spec": {
                "schedulerName": "allotment",
                "tolerations": [TOLERATION],
                "containers": [
                    {"name": "main", "image": "i:1", "resources": {"limits": vgpu(30_000, 10)}},
                ],
            },
        }
        (asked,) = allot(stack, "fit", "-f", "-", stdin=json.dumps(manifest))["pods"]
        assert (asked["fits"], asked["node"], asked["devices"]) == (True, "kept", ["GPU-0"])
        stack.call("POST", "/api/v1/namespaces/default/pods", manifest)
        stack.until(lambda: "tolerant" in stack.bound(), "the pod with the toleration is bound")
        assert stack.node_of("tolerant") == "kept"
