"""Local mode as a whole: up, down, status, and what is left when somebody is killed.

NATS, the API server and the fake nodes are the real ones; the services are small stand-ins, as what
is tested here is who starts, watches and ends them. Every process of a test carries a variable of
its own, by which those that are left are found.
"""

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import anyio.lowlevel
import pytest

from allotment.adapters.kube.config import load_access
from allotment_local.orchestrator import LocalModeError, down, up
from allotment_local.specs import KUBECONFIG, NATS, ServiceSpec, to_json
from allotment_local.state import read_state
from allotment_local.status import status
from tests.waiting import PATIENCE_S, patience

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc"),
]
MARK = "TEST_OF_LOCAL_MODE"
PAUSE_S = 0.05
LOOP_TURNS = 5
"""More than asyncio takes from a child's end to a closed transport."""
STAND_IN = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

assert sys.argv[1].startswith("nats://127.0.0.1:"), sys.argv
assert os.path.exists(sys.argv[2]), sys.argv
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"http": "127.0.0.1:%d" % server.server_port}), flush=True)
server.serve_forever()
"""


class Bench:
    """A home, stand-in services, and what was said."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.said: list[str] = []
        self.mark = str(directory)
        self.supervisors: set[int] = set()
        script = directory / "stand_in.py"
        script.write_text(STAND_IN)
        argv = (sys.executable, "-S", str(script), NATS, KUBECONFIG)
        self.services = [ServiceSpec("one", argv), ServiceSpec("two", argv)]

    async def up(self, **more: Any) -> dict[str, Any]:
        arguments = {"detach": True, "services": self.services, "say": self.said.append, **more}
        found = await up(self.home, **arguments)
        state = read_state(self.home / "state.json")
        if state is not None:
            self.supervisors.add(state.supervisor.pid)
        return found

    async def down(self) -> bool:
        return await down(self.home, say=self.said.append)

    async def status(self) -> dict[str, Any]:
        return await status(self.home)

    def left(self) -> dict[int, str]:
        """Living processes of this test beside the test itself."""
        found: dict[int, str] = {}
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit() and int(directory.name) != os.getpid():
                try:
                    if f"{MARK}={self.mark}".encode() in (directory / "environ").read_bytes():
                        found[int(directory.name)] = (directory / "cmdline").read_text()
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue
        return found

    async def settles(self, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if await holds():
                return
            await anyio.sleep(PAUSE_S)
        pytest.fail(f"not settled after {PATIENCE_S:.0f} s; left: {self.left()}")

    async def empties(self) -> None:
        async def nothing_left() -> bool:
            return not self.left()

        await self.settles(nothing_left)

    async def forgotten(self) -> None:
        """Until the event loop knows that no supervisor is left. They were made to outlive what
        started them, and here it is this process that has to take note of their end.
        """

        async def none_left() -> bool:
            return not self.supervisors.intersection(_processes())

        await self.settles(none_left)
        for _ in range(LOOP_TURNS):
            await anyio.lowlevel.checkpoint()

    def pids(self) -> tuple[int, int]:
        """Of the supervisor and the warden."""
        state = read_state(self.home / "state.json")
        assert state is not None
        return state.supervisor.pid, state.warden.pid


def _processes() -> set[int]:
    """Also those of which only the end is still to be taken note of."""
    return {
        int(directory.name) for directory in Path("/proc").iterdir() if directory.name.isdigit()
    }


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv(MARK, str(tmp_path))
    made = Bench(tmp_path)
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)
    await made.forgotten()


def service(found: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["services"] if row["name"] == name)
    return row


def fetch(url: str) -> Any:
    with urlopen(url, timeout=PATIENCE_S) as response:
        return json.load(response)


async def test_up_status_restart_and_down(bench: Bench) -> None:
    before = await bench.status()
    assert before["ready"] is False
    assert "allot up" in before["problems"][0]

    found = await bench.up()
    assert (found["ready"], found["problems"]) == (True, [])
    assert [row["name"] for row in found["services"]] == ["nats", "apiserver", "one", "two"]
    assert all(row["alive"] and row["ready"] for row in found["services"])
    assert found == await bench.status()
    address, credentials = await load_access(Path(found["kubeconfig"]))
    assert address.url == found["apiserver"]
    assert await credentials.header() is None
    nodes = await anyio.to_thread.run_sync(fetch, f"{found['apiserver']}/api/v1/nodes")
    assert len(nodes["items"]) == 11
    cards = await anyio.to_thread.run_sync(fetch, f"{found['apiserver']}/debug/cards")
    assert (cards["oversold"], len(cards["cards"])) == ([], 8 + 8 + 4 + 4 + 4 + 2 + 8 + 4 + 8 + 4)

    again = await bench.up()
    assert "already running" in bench.said[-1]
    assert again["supervisor"] == found["supervisor"]

    for name in ("one", "apiserver", "nats"):
        os.kill(service(found, name)["pid"], signal.SIGKILL)

    async def came_back() -> bool:
        now = await bench.status()
        return bool(now["ready"]) and all(
            service(now, name)["restarts"] == 1 for name in ("one", "apiserver", "nats")
        )

    await bench.settles(came_back)
    after = await bench.status()
    assert (after["apiserver"], after["nats"]) == (found["apiserver"], found["nats"])
    assert service(after, "one")["pid"] != service(found, "one")["pid"]
    assert service(after, "two") == service(found, "two")

    assert await bench.down() is True
    assert bench.left() == {}
    assert not (bench.home / "kubeconfig").exists()
    assert (await bench.status())["ready"] is False
    assert await bench.down() is False


async def test_homes_are_apart_and_a_new_life_has_a_new_log(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path)
    other.home = tmp_path / "other"
    other.supervisors = bench.supervisors  # whose end the fixture waits for
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("- {prefix: c, count: 2, kind: cpu}\n")
    first: dict[str, dict[str, Any]] = {}

    async def start(which: Bench, file: Path | None) -> None:
        first[which.home.name] = await which.up(nodes_file=file)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start, bench, nodes)
        tasks.start_soon(start, other, None)
    assert first["home"]["ready"]
    assert first["other"]["ready"]
    assert first["home"]["nats"] != first["other"]["nats"]
    made = await anyio.to_thread.run_sync(fetch, f"{first['home']['apiserver']}/api/v1/nodes")
    assert [item["metadata"]["name"] for item in made["items"]] == ["c-0", "c-1"]
    await other.down()
    assert (await bench.status())["ready"] is True
    await bench.down()
    assert bench.left() == {}

    await bench.up()
    assert any("new cluster with a new log" in text for text in bench.said)
    assert len(list(bench.home.glob("nats.*"))) == 1
    assert (bench.home / "logs" / "one.log.1").exists()
    await bench.down()
    assert bench.left() == {}


async def test_a_killed_supervisor_takes_everything_along(bench: Bench) -> None:
    await bench.up()
    supervisor, _ = bench.pids()
    os.kill(supervisor, signal.SIGKILL)
    await bench.empties()
    found = await bench.status()
    assert found["ready"] is False
    assert found["problems"][0] == "the supervisor is gone; clean up with: allot down"
    # Stale state is no obstacle.
    assert (await bench.up())["ready"] is True
    await bench.down()
    assert bench.left() == {}


async def test_down_ends_what_is_left_of_a_massacre(bench: Bench) -> None:
    await bench.up()
    supervisor, warden = bench.pids()
    os.kill(warden, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    await anyio.sleep(0.2)
    assert len(bench.left()) == 4
    assert await bench.down() is True
    assert bench.left() == {}


async def test_a_service_that_cannot_start_fails_up_and_leaves_nothing(bench: Bench) -> None:
    wrong = (sys.executable, "-S", "-c", "import sys; sys.exit('setting x is wrong')")
    bench.services.append(ServiceSpec("bad", wrong))
    with pytest.raises(LocalModeError) as caught:
        await bench.up()
    (problem,) = caught.value.problems
    assert problem.startswith("bad ended with exit status 1 while starting")
    assert "setting x is wrong" in problem
    assert bench.left() == {}
    assert any("setting x is wrong" in text for text in (await bench.status())["problems"])


async def test_wrong_files_are_said_before_anything_starts(bench: Bench, tmp_path: Path) -> None:
    nodes, policy = tmp_path / "nodes.yaml", tmp_path / "policy.yaml"
    nodes.write_text("- name: N\n")
    with pytest.raises(LocalModeError, match=r"nodes\.yaml:1: \[0\]\.name"):
        await bench.up(nodes_file=nodes)
    with pytest.raises(LocalModeError, match=r"policy\.yaml: cannot be read"):
        await bench.up(policy_file=policy)
    assert not bench.home.exists()
    assert bench.left() == {}


async def test_lines_of_the_policy_without_effect_are_said(bench: Bench, tmp_path: Path) -> None:
    policy = tmp_path / "policy.conf"
    policy.write_text("tiers:\n- plugins:\n  - name: usage\n")
    await bench.up(policy_file=policy)
    assert f"warning: {policy}:3:11: plugin usage: read, has no effect" in bench.said
    await bench.down()


async def test_the_foreground_ends_with_its_signal(bench: Bench, tmp_path: Path) -> None:
    runner = tmp_path / "foreground.py"
    runner.write_text(
        "import sys, anyio, functools\n"
        "from pathlib import Path\n"
        "from allotment_local.orchestrator import up\n"
        "from allotment_local.specs import from_json\n"
        "home, services = Path(sys.argv[1]), from_json(sys.argv[2])\n"
        "anyio.run(functools.partial(up, home, detach=False, services=services))\n"
    )
    command = [sys.executable, str(runner), str(bench.home), to_json(bench.services)]
    async with await anyio.open_process(command) as process:
        assert process.stderr is not None
        said = ""
        with patience():
            while "ready;" not in said:
                said += (await process.stderr.receive()).decode()
            assert (await bench.status())["ready"] is True
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert bench.left() == {}
