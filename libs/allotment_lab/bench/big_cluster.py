"""A loopback API server of a large cluster that is generated on request: for `bench watch`.

    python -m allotment_lab.bench.big_cluster NODES PODS     prints its port

It answers lists (limit, continue) and watches of nodes and pods with objects of the size and shape
that a real API server sends. POST /heartbeats?rounds=N makes the next N rounds of noise on the open
watches: every node's status and some pods' are sent again, with nothing that changes a decision.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator

from aiohttp import web

from allotment_proto.facts import CardFact, Holding
from allotment_proto.volcano import keys, vgpu

CARDS = 8
MEMORY_MIB = 81_920
LIST_VERSION = 10_000_000
NAMESPACES = 50
NOISY_PODS_PER_NODE = 1
FILLER = "x" * 220

_MANAGED = (
    '"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":'
    '"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:'
    '{\\"type\\":\\"Ready\\"}":{".":{},"f:lastProbeTime":{},"f:status":{}}},"f:phase":{}}}}]'
)


def node(number: int, version: int, beat: int = 0) -> str:
    """One Node of about 5 KB; `beat` moves its heartbeat times."""
    name = node_name(number)
    register = vgpu.encode_register(
        tuple(
            CardFact(card_id(number, i), i, "NVIDIA-A100", 10, MEMORY_MIB, 100, True, "hami-core")
            for i in range(CARDS)
        )
    )
    time = f"2026-11-20T{beat // 3600 % 24:02d}:{beat // 60 % 60:02d}:{beat % 60:02d}Z"
    conditions = ",".join(
        f'{{"type":"{kind}","status":"{status}","lastHeartbeatTime":"{time}",'
        '"lastTransitionTime":"2026-11-01T00:00:00Z","reason":"KubeletReports","message":"as said"}'
        for kind, status in (
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        )
    )
    amounts = (
        '{"cpu":"128","ephemeral-storage":"1843269236Ki","hugepages-2Mi":"0","memory":"1056Gi",'
        f'"pods":"110","{keys.VGPU_NUMBER}":"80","{keys.VGPU_MEMORY}":"{CARDS * MEMORY_MIB}",'
        f'"{keys.VGPU_CORES}":"800"}}'
    )
    images = ",".join(
        f'{{"names":["registry.example/team/image-{i}@sha256:{i:064x}"],"sizeBytes":{i + 1}000000}}'
        for i in range(10)
    )
    return (
        f'{{"metadata":{{"name":"{name}","uid":"11111111-0000-4000-8000-{number:012x}",'
        f'"resourceVersion":"{version}","creationTimestamp":"2026-10-01T00:00:00Z","labels":{{'
        '"beta.kubernetes.io/arch":"amd64","kubernetes.io/arch":"amd64",'
        f'"kubernetes.io/hostname":"{name}","kubernetes.io/os":"linux",'
        f'"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB","nvidia.com/gpu.count":"{CARDS}",'
        f'"topology.kubernetes.io/zone":"zone-{number % 3}"}},"annotations":{{'
        f'"node.alpha.kubernetes.io/ttl":"0","{keys.NODE_VGPU_REGISTER}":"{register}"}},{_MANAGED}}},'
        f'"spec":{{"podCIDR":"10.0.0.0/24","providerID":"cloud:///{name}"}},'
        f'"status":{{"capacity":{amounts},"allocatable":{amounts},"conditions":[{conditions}],'
        f'"addresses":[{{"type":"InternalIP","address":"10.0.0.1"}}],"nodeInfo":{{"machineID":'
        f'"{number:032x}","kernelVersion":"6.8.0","osImage":"Linux","architecture":"amd64"}},'
        f'"images":[{images}]}}}}'
    )


def namespace(number: int) -> str:
    """One of the namespaces that the pods are in."""
    return (
        f'{{"metadata":{{"name":"team-{number}","uid":"33333333-0000-4000-8000-{number:012x}",'
        f'"resourceVersion":"{number + 1}"}}}}'
    )


def pod(number: int, nodes: int, version: int, beat: int = 0) -> str:
    """One Pod of about 3 KB: one in ten waits, two run on a card's share, seven use no card."""
    at, kind = number % nodes, number // nodes % 10
    waits, shares = kind == 9, kind in (0, 5)
    annotations = f'"prometheus.io/scrape":"true","kubernetes.io/config.hash":"{number:032x}"'
    limits = '"cpu":"2","memory":"8Gi"'
    if waits or shares:
        limits += f',"{keys.VGPU_NUMBER}":"1","{keys.VGPU_MEMORY}":"8192","{keys.VGPU_CORES}":"10"'
    if shares:
        held = (Holding(vgpu.FAMILY, 0, card_id(at, number // nodes % CARDS), 8192, 10),)
        of_binding = vgpu.binding_annotations(node_name(at), held, 1_795_000_000 + number, 0)
        of_binding[keys.BIND_PHASE] = keys.PHASE_SUCCESS
        annotations += "".join(f',"{key}":"{value}"' for key, value in of_binding.items())
    env = ",".join(f'{{"name":"SETTING_{i}","value":"{FILLER[: 20 + i]}"}}' for i in range(12))
    scheduler = "allotment" if waits or shares else "default-scheduler"
    place = "" if waits else f'"nodeName":"{node_name(at)}",'
    phase = "Pending" if waits else "Running"
    started = f"2026-11-20T10:{beat // 60 % 60:02d}:{beat % 60:02d}Z"
    return (
        f'{{"metadata":{{"name":"trainer-{number:06d}","generateName":"trainer-","namespace":'
        f'"team-{number % NAMESPACES}","uid":"22222222-0000-4000-8000-{number:012x}",'
        f'"resourceVersion":"{version}","creationTimestamp":"2026-11-20T09:{number % 60:02d}:00Z",'
        '"labels":{"app":'
        f'"trainer","pod-template-hash":"{number % 997:09x}"}},"annotations":{{{annotations}}},'
        '"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"trainer","uid":'
        f'"33333333-0000-4000-8000-000000000000","controller":true}}],{_MANAGED}}},"spec":{{{place}'
        '"volumes":[{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":'
        '{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt"}}]}},'
        '{"name":"scratch","emptyDir":{}}],"containers":[{"name":"main","image":'
        f'"registry.example/team/trainer:1.{number % 40}","command":["python","train.py"],"env":'
        f'[{env}],"resources":{{"limits":{{{limits}}},"requests":{{{limits}}}}},"volumeMounts":['
        '{"name":"scratch","mountPath":"/scratch"}],"terminationMessagePath":"/dev/termination-log",'
        '"imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst",'
        f'"serviceAccountName":"default","schedulerName":"{scheduler}","priority":0,"tolerations":['
        '{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute",'
        '"tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists",'
        f'"effect":"NoExecute","tolerationSeconds":300}}]}},"status":{{"phase":"{phase}",'
        f'"conditions":[{{"type":"Ready","status":"True","lastProbeTime":"{started}"}}],"podIP":'
        f'"10.1.0.1","startTime":"2026-11-20T10:00:00Z","qosClass":"Guaranteed"}}}}'
    )


def node_name(number: int) -> str:
    return f"gpu-{number:05d}.cluster.example"


def card_id(node: int, index: int) -> str:
    return f"GPU-{node:08x}-5d0b-4a6e-9f3c-{index:012x}"


class Server:
    """Lists and watches of two kinds of object, all of them generated."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes = nodes
        self._pods = pods
        self._version = LIST_VERSION
        self._beat = 0
        self._watches: dict[str, list[web.StreamResponse]] = {
            "namespaces": [],
            "nodes": [],
            "pods": [],
        }

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces", self.of_namespaces)
        app.router.add_get("/api/v1/nodes", self.of_nodes)
        app.router.add_get("/api/v1/pods", self.of_pods)
        app.router.add_post("/heartbeats", self.heartbeats)
        return app

    async def of_namespaces(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "namespaces", NAMESPACES, namespace)

    async def of_nodes(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "nodes", self._nodes, lambda i: node(i, i + 1))

    async def of_pods(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(
            request, "pods", self._pods, lambda i: pod(i, self._nodes, 1_000_000 + i)
        )

    async def heartbeats(self, request: web.Request) -> web.Response:
        """Noise on the open watches; answers how many events that was, 410 if one was left."""
        try:
            return web.json_response({"events": await self._make_noise(request)})
        except ConnectionResetError as error:
            return web.Response(status=410, text=str(error))

    async def _make_noise(self, request: web.Request) -> int:
        told = 0
        for _ in range(int(request.query["rounds"])):
            self._beat += 10
            for kind, noise in (("nodes", self._node_noise()), ("pods", self._pod_noise())):
                lines = list(noise)
                for stream in self._watches[kind]:
                    for line in lines:
                        await stream.write(line)
                        told += 1
        return told

    def _node_noise(self) -> Iterator[bytes]:
        for number in range(self._nodes):
            self._version += 1
            yield _modified(node(number, self._version, self._beat))

    def _pod_noise(self) -> Iterator[bytes]:
        for number in range(min(self._nodes * NOISY_PODS_PER_NODE, self._pods)):
            self._version += 1
            yield _modified(pod(number, self._nodes, self._version, self._beat))

    async def _answer(
        self, request: web.Request, kind: str, count: int, make: Callable[[int], str]
    ) -> web.StreamResponse:
        query = request.query
        if query.get("watch") == "1":
            return await self._watch(request, kind)
        first = int(query.get("continue", "0"))
        last = min(first + int(query.get("limit", count)), count)
        more = f',"continue":"{last}"' if last < count else ""
        items = ",".join(make(number) for number in range(first, last))
        text = f'{{"metadata":{{"resourceVersion":"{LIST_VERSION}"{more}}},"items":[{items}]}}'
        return web.Response(body=text.encode(), content_type="application/json")

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self._watches[kind].append(response)
        try:
            await asyncio.Event().wait()  # until the client leaves
        finally:
            self._watches[kind].remove(response)
        return response


def _modified(text: str) -> bytes:
    return f'{{"type":"MODIFIED","object":{text}}}\n'.encode()


async def _serve(nodes: int, pods: int) -> None:
    runner = web.AppRunner(Server(nodes, pods).app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
