"""A tenant of local mode, as it is shipped, writes no device records: not on a new pod, not on his
running one. The binder and the device plugins do."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
COUNT, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


class Tenant:
    """Somebody with the kubeconfig of local mode."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: Any = None, media: str = "json") -> Any:
        request = Request(self.url + path, method=method)
        request.add_header("Content-Type", f"application/{media}")
        data = None if body is None else json.dumps(body).encode()
        with urlopen(request, data, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

    def create(self, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        limits = {COUNT: "1", MEMORY: "1000"}
        container = {"name": "c", "image": "busybox:1", "resources": {"limits": limits}}
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"schedulerName": "allotment", "containers": [container], **spec},
        }
        self.call("POST", PODS, body)

    def is_running(self, name: str) -> bool:
        return bool(self.call("GET", f"{PODS}/{name}")["status"]["phase"] == "Running")


@pytest.fixture(params=[(), ("--one-process",)], ids=["apart", "together"])
def tenant(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    def allot(*words: str) -> str:
        """In a process of its own: what local mode leaves running is no child of this one."""
        command = [sys.executable, "-m", "allotment_cli.main", *words]
        options = ["--home", str(tmp_path / "home")]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        found = json.loads(allot("up", "--detach", "--no-inspector", "-o", "json", *request.param))
        yield Tenant(found["apiserver"])
    finally:
        allot("down")


@pytest.mark.slow
async def test_a_tenant_writes_no_device_record(tenant: Tenant) -> None:
    tenant.create("mine")
    await until(lambda: tenant.is_running("mine"))  # the binder wrote its record
    (card,) = {
        entry.split(",")[0]
        for key, entry in tenant.call("GET", f"{PODS}/mine")["metadata"]["annotations"].items()
        if key == "volcano.sh/vgpu-ids-new"
    }
    node = tenant.call("GET", f"{PODS}/mine")["spec"]["nodeName"]
    forged = {
        "volcano.sh/devices-to-allocate": f"{card},NVIDIA,15000,100:;",
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/vgpu-node": node,
        "volcano.sh/vgpu-time": "1",
    }
    with pytest.raises(HTTPError, match="403"):
        tenant.create("ready-made", forged, nodeName=node)
    with pytest.raises(HTTPError, match="403"):
        tenant.create("of-another-scheduler", forged, schedulerName="other")
    change = {"metadata": {"annotations": forged}}
    with pytest.raises(HTTPError, match="403"):
        tenant.call("PATCH", f"{PODS}/mine", change, "merge-patch+json")
    assert tenant.call("GET", "/debug/cards")["incidents"] == []
