"""Fail-over and upgrades under load: `python -m tests.bench.failover` measures this machine.

Three nats-servers with the configuration, the keys and the TLS that we ship, two replicas of each
service, local mode's API server; all of them processes. Pods come at a steady rate while something
is killed or replaced. For each such event:

* `active_s`: until another replica says in /readyz that it is active
* `gap_s`: the longest time without a Binding from the event on, until all who waited are bound
* `slowest_s`: the longest that a pod waited for its Binding, from the moment its creation was sent

With `--segment-bytes` segments of the log are closed all the while, and each seam counts as well:

* `pause_s`: the longest time without a decision that touches the time from the closing to the end
  of its checkpoint; `took_s`: that time

At the end the whole log is audited: no pod is lost, bound twice or given what another holds.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

from allotment.adapters.log.connection import connect
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import find_binary
from allotment.adapters.log.nats_users import inbox_of
from allotment.core.logport import Record
from allotment_local.nodes.annotations import RUN_DURATION
from allotment_proto.codec import decode_envelope
from allotment_proto.events import SegmentClosed
from allotment_proto.subjects import CHECKPOINT, DECISION, STREAM
from tests.contract.nats_shipped import admit, credentials_of
from tests.contract.nats_three import cluster_texts, free_ports
from tests.e2e.audit import assert_sound
from tests.e2e.stack import ROLES, Stack, container, vgpu
from tests.waiting import PATIENCE_S, until_so

SERVICES = (*ROLES, "controller")
SERVERS = range(3)
NODES = """
- prefix: g
  count: 40
  gpus: {model: Tesla T4, count: 8, memory_mib: 16000, slots: 10}
  cpu: 512
  memory: 2048Gi
"""
RUNS_FOR = "20s"
WATCHED_S = 6.0
"""How long after an event pods count for it, at least."""
READY_FOR_S = 10.0
"""`minReadySeconds` of the StatefulSet."""
RESUMES_S = 20.0
CALM_S = 1.5
"""Before an event: what was disturbed before has settled."""


class ThreeServers:
    """The servers of a cluster, each on ports that stay its own, so that it can come back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = free_ports(6)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return ",".join(f"tls://127.0.0.1:{port}" for port in self._ports[:3])

    def start(self) -> None:
        self.folder.mkdir()
        admit(self.folder)
        self.start_with(cluster_texts(self.folder))

    def start_with(self, texts: Sequence[str]) -> None:
        """Start them with configurations of theirs, in a folder with keys and certificates."""
        for number, text in enumerate(texts):
            (self.folder / f"server-{number}.conf").write_text(text)
            include = self.folder / f"include-{number}.conf"
            client, monitor = self._ports[number], self._ports[3 + number]
            own = include.read_text().replace("127.0.0.1:-1", f"127.0.0.1:{client}", 1)
            include.write_text(own.replace("127.0.0.1:-1", f"127.0.0.1:{monitor}", 1))
        for number in SERVERS:
            self.start_one(number)
        until_so(lambda: all(self.is_healthy(number) for number in SERVERS))

    def start_one(self, number: int) -> None:
        self._running[number] = subprocess.Popen(
            [find_binary().path, "-c", self.folder / f"server-{number}.conf"],
            env={"SERVER_NAME": f"nats-{number}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end_one(self, number: int, how: signal.Signals) -> None:
        self._running[number].send_signal(how)
        self._running[number].wait(PATIENCE_S)

    def restart(self, number: int) -> None:
        """As Kubernetes does: asked to end, and ready again."""
        self.end_one(number, signal.SIGTERM)
        self.start_one(number)
        until_so(lambda: self.is_healthy(number, "?js-server-only=true"))

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def is_healthy(self, number: int, query: str = "") -> bool:
        """What the pod's readiness probe asks; without a query, whether all copies are current."""
        with contextlib.suppress(OSError):
            return bool(self._ask(number, f"healthz{query}")["status"] == "ok")
        return False

    def leader(self) -> int:
        """The server that leads the log."""
        for number in SERVERS:
            with contextlib.suppress(OSError):
                for account in self._ask(number, "jsz?streams=1")["account_details"]:
                    for stream in account.get("stream_detail", ()):
                        if stream["name"] == STREAM and stream["cluster"].get("leader"):
                            return int(stream["cluster"]["leader"].removeprefix("nats-"))
        raise AssertionError("nobody leads the log")

    def _ask(self, number: int, path: str) -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{self._ports[3 + number]}/{path}", timeout=5) as answer:
            return dict(json.loads(answer.read()))


class ThreeStack(Stack):
    """Two replicas of each service on three nats-servers."""

    nats: ThreeServers  # type: ignore[assignment]

    def __init__(self, directory: Path, segment_bytes: int | None = None) -> None:
        services = [f"{role}{twin}" for role in ROLES for twin in ("", "-2")]
        super().__init__(directory, NODES, services=services, controlled=True)
        self.nats = ThreeServers(directory / "three")
        for role in SERVICES:
            own = credentials_of(self.nats.folder, role)
            nats = ["--nats-nkey", own.nkey_seed_file, "--nats-ca", own.tls_ca_file]
            self.options[role] = [str(word) for word in (*nats, "--log-replicas", "3")]
        if segment_bytes is not None:
            binder = self.options["binder"]
            self.options["binder"] = [*binder, "--segment-bytes", str(segment_bytes)]

    def _start(self) -> None:
        super()._start()
        self.start("controller-2")

    async def _records(self) -> list[Record]:
        credentials = credentials_of(self.nats.folder, "watcher")
        servers = self.nats.url.split(",")
        async with connect(
            servers, "audit", credentials=credentials, inbox_prefix=inbox_of("watcher")
        ) as connection:
            log = await JetStreamLog.open(connection, makes=False)
            return [r async for batch in log.read(1, await log.last_seq()) for r in batch]

    def replicas(self, role: str) -> list[str]:
        return [name for name in self.processes if name.partition("-")[0] == role]

    def active(self, role: str) -> str | None:
        """The replica that says that it is active."""
        for name in self.replicas(role):
            held = self.readiness(name)[1].get("holds", {}).get("lease", "")
            if self.processes[name].is_running and held.startswith("active"):
                return name
        return None

    def end(self, name: str, how: signal.Signals) -> None:
        """End a replica and forget it."""
        process = self.processes[name]
        process.signal(how)
        process.wait(PATIENCE_S)
        process.kill()
        del self.processes[name]


class Load:
    """Pods at a steady rate. By name: when each was sent, and when it was seen on a node."""

    def __init__(self, stack: Stack, rate: float) -> None:
        self.sent: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._address = urlsplit(stack.url).netloc
        self._every_s = 1 / rate
        self._stops = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._watch, self._create)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()

    def waiting(self) -> list[str]:
        return [name for name in list(self.sent) if name not in self.bound]

    def _create(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        due = time.monotonic()
        number = 0
        while not self._stops.is_set():
            name = f"p{number}"
            annotations = {RUN_DURATION: RUNS_FOR}
            spec = {"schedulerName": "allotment", "containers": [container("c", vgpu(1600, 10))]}
            body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
            self.sent[name] = time.monotonic()
            connection.request(
                "POST",
                "/api/v1/namespaces/default/pods",
                json.dumps({"apiVersion": "v1", "kind": "Pod", **body}),
                {"Content-Type": "application/json"},
            )
            with connection.getresponse() as answer:
                assert answer.status == 201, answer.read()
                answer.read()
            number += 1
            due += self._every_s
            self._stops.wait(max(0.0, due - time.monotonic()))
        connection.close()

    def _watch(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        connection.request("GET", "/api/v1/namespaces/default/pods?watch=1&resourceVersion=0")
        answer = connection.getresponse()
        while not (self._stops.is_set() and not self.waiting()):
            pod = json.loads(answer.readline())["object"]
            if pod["spec"].get("nodeName"):
                self.bound.setdefault(pod["metadata"]["name"], time.monotonic())
        connection.close()


class Found(NamedTuple):
    """What an event did to the pods that came meanwhile."""

    event: str
    active_s: float | None
    gap_s: float
    slowest_s: float
    pods: int


def measure(stack: ThreeStack, load: Load, event: str, act: Callable[[], Sequence[str]]) -> Found:
    """Do it, and see what becomes of the pods. `act` returns the roles whose active replica it
    killed.
    """
    until_so(lambda: all(stack.nats.is_healthy(number) for number in SERVERS))
    until_so(lambda: all(stack.active(role) for role in SERVICES))
    until_so(lambda: len(load.waiting()) < 3)
    time.sleep(CALM_S)
    begin = time.monotonic()
    roles = act()
    active_s = None
    if roles:
        until_so(lambda: all(stack.active(role) for role in roles))
        active_s = time.monotonic() - begin
    ended = time.monotonic()
    time.sleep(max(0.0, begin + WATCHED_S - ended))
    counted = [name for name, sent in load.sent.items() if sent < max(ended, begin + WATCHED_S)]
    until_so(lambda: all(name in load.bound for name in counted))
    times = sorted(at for at in load.bound.values() if at > begin)
    gaps = [later - earlier for earlier, later in zip([begin, *times], times, strict=False)]
    waited = [load.bound[name] - load.sent[name] for name in counted if load.bound[name] > begin]
    return Found(event, active_s, max(gaps), max(waited), len(waited))


def killing(stack: ThreeStack, *roles: str, server: int | None = None) -> Callable[[], list[str]]:
    """kill -9 of the active replicas of these services, and of a server."""

    def act() -> list[str]:
        if server is not None:
            stack.nats.end_one(server, signal.SIGKILL)
        for name in [stack.active(role) or "" for role in roles]:
            stack.end(name, signal.SIGKILL)
        return list(roles)

    return act


def upgrade(stack: ThreeStack) -> list[str]:
    """Replace all services, as Deployments of two replicas do: one more, then one less, twice."""
    for turn in (1, 2):
        old = {role: stack.replicas(role)[0] for role in SERVICES}
        new = [f"{role}-{turn}{time.monotonic_ns()}" for role in SERVICES]
        for name in new:
            stack.start(name, wait=False)
        for name in new:
            stack.processes[name].announce()
        for name, leaves in zip(new, old.values(), strict=True):
            until_so(lambda name=name: stack.is_ready(name))  # type: ignore[misc]
            stack.end(leaves, signal.SIGTERM)
    return list(SERVICES)


def roll_servers(stack: ThreeStack) -> list[str]:
    """Restart the servers, the last first, each a while after the one before is ready."""
    for number in reversed(SERVERS):
        stack.nats.restart(number)
        time.sleep(READY_FOR_S)
    return []


def events(stack: ThreeStack) -> Iterator[tuple[str, Callable[[], Sequence[str]]]]:
    """Each when the one before is over."""
    for role in SERVICES:
        yield f"kill -9 the active {role}", killing(stack, role)
    leader = stack.nats.leader()
    yield "kill -9 a nats-server that follows", killing(stack, server=(leader + 1) % 3)
    follower = (stack.nats.leader() + 1) % 3
    yield "a machine: a follower, all active", killing(stack, *SERVICES, server=follower)
    yield "kill -9 the leader of the log", killing(stack, server=stack.nats.leader())
    yield "a machine: the leader, all active", killing(stack, *SERVICES, server=stack.nats.leader())
    yield "upgrade of all services at once", lambda: upgrade(stack)
    yield "restart of the three nats-servers", lambda: roll_servers(stack)


def heal(stack: ThreeStack) -> None:
    """Bring back what was killed. A server that does not resume its copy of the log is restarted,
    as the runbook says of `AllotmentLogCopyBehind`.
    """
    for number in SERVERS:
        if not stack.nats.is_healthy(number, "?js-server-only=true"):
            stack.nats.end_one(number, signal.SIGKILL)
            stack.nats.start_one(number)
            begin = time.monotonic()
            while not stack.nats.is_healthy(number):
                if time.monotonic() - begin > RESUMES_S:
                    print(f"nats-{number} resumes no copy: restarted", file=sys.stderr)
                    stack.nats.restart(number)
                    break
                time.sleep(0.5)
    for role in SERVICES:
        for _ in range(2 - len(stack.replicas(role))):
            stack.start(f"{role}-{time.monotonic_ns()}")


class SeamFound(NamedTuple):
    """What the closing of a segment did to decisions."""

    segment: int
    took_s: float
    pause_s: float


def seams(records: Sequence[Record]) -> list[SeamFound]:
    """The closed segments, read from the log."""
    decided = [record.time_ns for record in records if record.subject == DECISION]
    gaps = list(itertools.pairwise(decided))
    found = []
    for record in records:
        for event in decode_envelope(record.payload).events if record.subject == CHECKPOINT else ():
            if isinstance(event, SegmentClosed):
                began = records[event.last_seq - 1].time_ns
                touching = [b - a for a, b in gaps if a < record.time_ns and b > began]
                took_ns, pause_ns = record.time_ns - began, max(touching, default=0)
                found.append(SeamFound(event.number, took_ns / 1e9, pause_ns / 1e9))
    return found


def run(
    directory: Path, rate: float, repeat: int, wanted: str, segment_bytes: int | None
) -> Iterator[Found | SeamFound]:
    """What each event did, one after the other, and then each seam. Raises AssertionError if the
    audit fails.
    """
    with ThreeStack(directory, segment_bytes) as stack:
        with Load(stack, rate) as load:
            for _ in range(repeat):
                for event, act in events(stack):
                    if re.search(wanted, event):
                        yield measure(stack, load, event, act)
                        heal(stack)
        until_so(lambda: not load.waiting())
        until_so(lambda: not [pod for pod in stack.pods() if pod["status"]["phase"] == "Running"])
        assert_sound(stack)
        yield from seams(stack.records())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover")
    parser.add_argument("--rate", type=float, default=25, help="pods a second")
    parser.add_argument("--repeat", type=int, default=3, help="how often each event is measured")
    parser.add_argument("--only", default="", help="events whose name matches this expression")
    parser.add_argument("--segment-bytes", type=int, help="close a segment so often")
    given = parser.parse_args(arguments)
    found: dict[str, list[Found]] = defaultdict(list)
    closed: list[SeamFound] = []
    with tempfile.TemporaryDirectory() as directory:
        for one in run(Path(directory), given.rate, given.repeat, given.only, given.segment_bytes):
            print(json.dumps(one._asdict()), file=sys.stderr, flush=True)
            if isinstance(one, SeamFound):
                closed.append(one)
            else:
                found[one.event].append(one)
    print(f"{'event':36}{'active':>12}{'gap':>12}{'slowest pod':>14}{'pods':>7}")
    for event, several in found.items():
        active = _span(one.active_s or 0.0 for one in several)
        gap, slowest = _span(one.gap_s for one in several), _span(one.slowest_s for one in several)
        pods = sum(one.pods for one in several)
        print(f"{event:36}{active:>12}{gap:>12}{slowest:>14}{pods:>7}")
    if closed:
        took, pause = _span(one.took_s for one in closed), _span(one.pause_s for one in closed)
        print(f"{len(closed)} segments closed, each in {took}; longest pause of decisions {pause}")
    print("no pod was lost or bound twice; the log's audit and replay agree")


def _span(seconds: Iterable[float]) -> str:
    least, *_, most = sorted([*seconds] * 2)
    return f"{least:.1f}–{most:.1f} s" if most else "–"


if __name__ == "__main__":
    main(sys.argv[1:])
