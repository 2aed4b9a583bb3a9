"""The phases of `allot bench e2e`: a burst, a steady trickle, and the bare client."""

from typing import NamedTuple

import anyio

from allotment.core.errors import AllotError
from allotment_lab.bench.e2e import pods as e2e_pods
from allotment_lab.bench.e2e.kubelets import Kubelets
from allotment_lab.bench.e2e.load import BareClient, Eyes
from allotment_lab.bench.e2e.pods import Body

WITHIN_S = 60.0
SLOWEST_PER_S = 20
"""Slower than this is not slow but stuck."""
NOBODY = "none"
"""The scheduler of pods that the bare client binds."""


class Load(NamedTuple):
    """What the pods of a run are, on which nodes and in which queues."""

    run: str
    scheduler: str
    ask: str
    replicas: int
    allocate_s: float
    nodes: list[str]
    queues: list[str]

    def within_s(self, pods: int) -> float:
        """After so long pods are stuck: as if one device plugin had to serve them all."""
        return WITHIN_S + pods / SLOWEST_PER_S + pods * self.allocate_s


class Done(NamedTuple):
    """A phase whose pods all run. Rates count from the first that was sent to the last."""

    names: list[str]
    created_per_second: float
    bound_per_second: float
    running_per_second: float


def _unheard(load: Load) -> str:
    """What to look at if no scheduler took a peer's pods."""
    return (
        f"does a scheduler of the name {load.scheduler} run in that cluster? (it is what pods have "
        "in spec.schedulerName: kube-scheduler is called default-scheduler)"
    )


class Phases:
    """One namespace of one run. Every phase raises AllotError unless all its pods run."""

    def __init__(
        self, bare: BareClient, eyes: Eyes, pods: str, load: Load, kubelets: Kubelets | None
    ) -> None:
        """`kubelets` are those that are played here, if any are."""
        self.eyes = eyes
        self._kubelets = kubelets
        self._bare = bare
        self._pods = pods
        self._load = load

    async def burst(self, prefix: str, count: int) -> Done:
        """All pods at once."""
        bodies, names = self._bodies(prefix, count, self._load.scheduler)
        took_s = await self._bare.create_all(self._pods, bodies, self.eyes.sent)
        return await self._done(names, count / took_s)

    async def steady(self, prefix: str, rate: int, seconds: float) -> Done:
        """`rate` pods a second, evenly."""
        count = max(1, round(rate * seconds))
        bodies, names = self._bodies(prefix, count, self._load.scheduler)
        begun_s = anyio.current_time()
        async with anyio.create_task_group() as sending:
            for number, body in enumerate(bodies):
                await anyio.sleep_until(begun_s + number / rate)
                sending.start_soon(self._create, body)
        return await self._done(names, rate)

    async def bare(self, prefix: str, count: int, first_stamp: int) -> Done:
        """A client that decides nothing: it creates each pod and binds it, node after node."""
        bodies, names = self._bodies(prefix, count, NOBODY)
        load = self._load
        bindings = e2e_pods.bindings(names, load.nodes, load.ask, load.replicas, first_stamp)
        pairs = list(zip(bodies, bindings, strict=True))
        await self._bare.create_and_bind_all(self._pods, pairs, self.eyes.sent)
        return await self._done(names, 0.0)

    def books(self) -> dict[str, int]:
        """What went wrong by the books of the device plugins that are played here."""
        return {} if self._kubelets is None else self._kubelets.counts()

    async def _done(self, names: list[str], created_per_second: float) -> Done:
        eyes, load = self.eyes, self._load
        try:
            await eyes.wait_running(names, load.within_s(len(names)))
        except AllotError as error:
            if load.scheduler in (load.run, NOBODY) or any(name in eyes.bound_s for name in names):
                raise
            raise AllotError(f"{error.message}, and none was bound", _unheard(load)) from error
        if eyes.double:
            raise AllotError(f"{eyes.double} pods were bound to one node and then to another")
        return Done(
            names,
            created_per_second,
            eyes.per_second(names, eyes.bound_s),
            eyes.per_second(names, eyes.running_s),
        )

    async def _create(self, body: Body) -> None:
        self.eyes.sent(body.name)
        await self._bare.send("POST", self._pods, body.data, (201,))

    def _bodies(self, prefix: str, count: int, scheduler: str) -> tuple[list[Body], list[str]]:
        load, names = self._load, list(e2e_pods.names(prefix, count))
        asked = load.run, load.ask, load.replicas, load.queues
        bodies = e2e_pods.pod_bodies(names, scheduler, *asked)
        return bodies, names
