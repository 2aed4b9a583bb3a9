"""The phases of `allot bench e2e`: a burst, a steady trickle, pending pods, the bare client."""

from typing import NamedTuple

import anyio
import msgspec

from allotment_cli.errors import CliError
from allotment_lab.bench import e2e_pods
from allotment_lab.bench.e2e_load import BareClient, Eyes
from allotment_lab.bench.e2e_pods import Body

WITHIN_S = 60.0
SLOWEST_PER_S = 20
"""Slower than this is not slow but stuck."""


class Burst(NamedTuple):
    """Pods created as fast as the load can, and bound as fast as the services can."""

    created_per_second: float
    bound_per_second: float
    """From the first that was sent to the last that was seen bound."""
    latencies_us: list[int]


class Phases:
    """One namespace of one run. Every phase raises CliError unless all its pods were bound."""

    def __init__(
        self,
        bare: BareClient,
        eyes: Eyes,
        pods: str,
        run: str,
        scheduler: str,
        replicas: int,
    ) -> None:
        self._bare = bare
        self._eyes = eyes
        self._pods = pods
        self._run = run
        self._scheduler = scheduler
        self._replicas = replicas

    async def burst(self, prefix: str, count: int) -> Burst:
        bodies, names = self._bodies(prefix, count)
        took_s = await self._bare.create_all(self._pods, bodies, self._eyes.sent)
        await self._eyes.wait_bound(names, _within_s(count))
        begun_s = min(self._eyes.sent_s[name] for name in names)
        ended_s = max(self._eyes.bound_s[name] for name in names)
        latencies = self._eyes.latencies_us(names)
        return Burst(count / took_s, count / (ended_s - begun_s), latencies)

    async def steady(self, prefix: str, rate: int, seconds: float) -> list[int]:
        """`rate` pods a second, evenly; latencies from sent to seen bound, µs, in order."""
        bodies, names = self._bodies(prefix, max(1, round(rate * seconds)))
        begun_s = anyio.current_time()
        async with anyio.create_task_group() as sending:
            for number, body in enumerate(bodies):
                await anyio.sleep_until(begun_s + number / rate)
                sending.start_soon(self._create, body)
        await self._eyes.wait_bound(names, _within_s(len(names)))
        return self._eyes.latencies_us(names)

    async def create(self, prefix: str, count: int, *, plain: bool) -> list[str]:
        """Create pods and leave them pending; their names."""
        bodies, names = self._bodies(prefix, count, plain=plain)
        await self._bare.create_all(self._pods, bodies, self._eyes.sent)
        early = sum(name in self._eyes.bound_s for name in names)
        if early:
            raise CliError(f"{early} pods were bound while nobody was to bind them")
        return names

    async def bound(self, names: list[str]) -> float:
        """Wait until pods that were left pending are bound; Bindings a second while they were."""
        await self._eyes.wait_bound(names, _within_s(len(names)))
        return self._eyes.bound_per_second(names)

    async def bare(self, prefix: str, count: int, nodes: list[str]) -> float:
        """Bindings a second that a client reaches which does nothing else."""
        bodies, names = self._bodies(prefix, count, plain=True, scheduler="nobody")
        await self._bare.create_all(self._pods, bodies)
        bindings = [_binding(name, nodes[i % len(nodes)]) for i, name in enumerate(names)]
        await self._bare.bind_all(self._pods, bindings)
        await self._eyes.wait_bound(names, _within_s(count))
        return self._eyes.bound_per_second(names)

    async def delete(self, names: list[str]) -> None:
        await self._bare.delete_all(self._pods, names)

    async def _create(self, body: Body) -> None:
        self._eyes.sent(body.name)
        await self._bare.send("POST", self._pods, body.data, (201,))

    def _bodies(
        self, prefix: str, count: int, *, plain: bool = False, scheduler: str = ""
    ) -> tuple[list[Body], list[str]]:
        names = list(e2e_pods.names(prefix, count))
        bodies = e2e_pods.pod_bodies(
            names,
            scheduler or self._scheduler,
            self._run,
            plain=plain,
            replicas=self._replicas,
        )
        return bodies, names


def _binding(pod: str, node: str) -> Body:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    return Body(pod, msgspec.json.encode(body))


def _within_s(count: int) -> float:
    return WITHIN_S + count / SLOWEST_PER_S
